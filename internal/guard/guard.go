package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"

	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard/catalog"
)

// Options of a Guard.
type Options struct {
	// Facts of the cluster. Without them every rule over plan or facts is skipped, visibly.
	Facts Facts
	// Limits in force. Default: the built-in ones.
	Limits func() limit.Limits
	// Clock. Default: the machine's.
	Clock clock.PassiveClock
}

// Guard judges objects by the rule set in force. It is safe for concurrent use.
type Guard struct {
	rules  atomic.Pointer[RuleSet]
	facts  Facts
	limits func() limit.Limits
	clock  clock.PassiveClock
}

// New compiles the built-in catalogue against the built-in CRDs.
func New(opts Options) (*Guard, error) { return newGuard(opts, catalog.FS, crds.FS) }

func newGuard(opts Options, catalogues, definitions fs.FS) (*Guard, error) {
	set, err := compileRuleSet(catalogues, definitions)
	if err != nil {
		return nil, fmt.Errorf("compile rules: %w", err)
	}
	if len(set.kinds) == 0 {
		return nil, errors.New("compile rules: the catalogue is empty")
	}
	g := &Guard{facts: opts.Facts, limits: opts.Limits, clock: opts.Clock}
	if g.limits == nil {
		g.limits = limit.Builtin
	}
	if g.clock == nil {
		g.clock = clock.RealClock{}
	}
	g.rules.Store(set)
	return g, nil
}

// RuleSetHash names the rules in force.
func (g *Guard) RuleSetHash() string { return g.rules.Load().hash }

// Judges says whether there are rules for a kind.
func (g *Guard) Judges(kind string) bool { return g.rules.Load().kinds[kind] != nil }
