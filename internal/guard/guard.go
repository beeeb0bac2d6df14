package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard/catalog"
)

// Options of a Guard.
type Options struct {
	// Facts of the cluster. Without them every rule over plan or facts is skipped, visibly.
	Facts Facts
	// Planners tell what an object would do, by kind. Without its kind's, a rule over plan is skipped, visibly.
	Planners map[string]Planner
	// Authorizer answers what an account may do. Without it every rule over authorizer is skipped, visibly.
	Authorizer authorizer.UnconditionalAuthorizer
	// Limits that hold where no Guardrail sets others. Default: the built-in ones.
	Limits func() limit.Limits
	// AwaitGuardrails: until the first SetGuardrails everything counts as paused and nothing is admitted.
	AwaitGuardrails bool
	// Clock. Default: the machine's.
	Clock clock.PassiveClock
}

// Guard judges objects by the rule set in force. It is safe for concurrent use.
type Guard struct {
	rules    atomic.Pointer[RuleSet]
	policy   atomic.Pointer[guardrail.Policy]
	facts    Facts
	planners map[string]Planner
	limits   func() limit.Limits
	clock    clock.PassiveClock

	mu     sync.Mutex
	notify []func(Change)
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
	g := &Guard{facts: opts.Facts, planners: opts.Planners, limits: opts.Limits, clock: opts.Clock}
	for kind, planner := range opts.Planners {
		if want := builtinKinds()[kind].plan; planner.plan != want {
			return nil, fmt.Errorf("the planner of %s gives %v, want %v", kind, planner.plan, want)
		}
	}
	if g.clock == nil {
		g.clock = clock.RealClock{}
	}
	if g.limits == nil {
		g.limits = limit.Builtin
	}
	policy := guardrail.Merge(g.limits(), nil)
	if opts.AwaitGuardrails {
		policy = guardrail.Unread(g.limits())
	}
	g.policy.Store(&policy)
	g.rules.Store(set)
	return g, nil
}

// RuleSetHash names the rules in force for a kind; "" when there are none.
func (g *Guard) RuleSetHash(kind string) string {
	k := g.rules.Load().kinds[kind]
	if k == nil {
		return ""
	}
	return k.hash
}

// Judges says whether there are rules for a kind.
func (g *Guard) Judges(kind string) bool { return g.rules.Load().kinds[kind] != nil }
