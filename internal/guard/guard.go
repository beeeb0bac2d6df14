// Package guard judges policies by CEL rules: at admission, before they are stored, and again at run time, before
// anything acts on them. The rules are data (catalog/), compiled as the API server compiles its own: types are checked
// against the CRD, values are executed dynamically, cost is bounded. Whatever changes the cluster takes a Validated,
// which only this package can make.
package guard

import (
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
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
	// Stored finds stored policies. Without it the rules that look at them, for Guardrails and exceptions, are skipped.
	Stored Stored
	// Live reads from the API server which exceptions are stored, for reviews that would refuse. Without it those of SetExceptions count.
	Live client.Reader
	// Authorizer answers what an account may do. Without it every rule over authorizer is skipped, visibly.
	Authorizer authorizer.UnconditionalAuthorizer
	// OwnNamespace is Autohealer's: elsewhere policies act for tenants, with their accounts' rights. "" when it isn't known;
	// then every namespace counts as a tenant's.
	OwnNamespace string
	// AwaitGuardrails: until the first SetGuardrails everything counts as paused, and of the kinds that act nothing is admitted.
	AwaitGuardrails bool
	// Clock. Default: the machine's.
	Clock clock.PassiveClock
}

// Guard judges objects by the rule set in force. It is safe for concurrent use.
type Guard struct {
	opts  Options
	kinds map[string]*builtinKind
	rules atomic.Pointer[ruleSet]

	// setting is held while Guardrails are compiled and put in force, one list after the other.
	setting sync.Mutex
	// asking bounds the reads of exceptions: whoever reaches the webhook may send what would be refused.
	asking flowcontrol.RateLimiter

	// reviewing bounds what reviews of Guardrails take of the processor: see inTurn.
	reviewing *semaphore.Weighted

	// mu is held while one rule set takes the place of another.
	mu     sync.Mutex
	newest []*v1alpha1.Guardrail // needs mu: what Tighten was given last
	lost   string                // needs mu: what GuardrailsUnknown was given last
	notify []func(Change)        // needs mu
}

// builtinKinds are those of the built-in catalogue, compiled against the built-in CRDs, which takes a good part of a second: once a process.
var builtinKinds = sync.OnceValues(func() (map[string]*builtinKind, error) { return compileBuiltin(catalog.FS, crds.FS) })

// New judges by the built-in catalogue.
func New(opts Options) (*Guard, error) {
	kinds, err := builtinKinds()
	if err != nil {
		return nil, fmt.Errorf("compile rules: %w", err)
	}
	return startGuard(opts, kinds)
}

// NewFrom compiles the catalogues in a folder against the CRDs of another instead of the built-in ones: benchmarks count rules.
func NewFrom(opts Options, catalogues, definitions fs.FS) (*Guard, error) {
	kinds, err := compileBuiltin(catalogues, definitions)
	if err != nil {
		return nil, fmt.Errorf("compile rules: %w", err)
	}
	return startGuard(opts, kinds)
}

// startGuard puts the built-in rules in force.
func startGuard(opts Options, kinds map[string]*builtinKind) (*Guard, error) {
	for name, planner := range opts.Planners {
		if want := infoOf(name).live; planner.plan != want {
			return nil, fmt.Errorf("the planner of %s gives %v, want %v", name, planner.plan, want)
		}
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	g := &Guard{opts: opts, kinds: kinds, reviewing: semaphore.NewWeighted(1), asking: flowcontrol.NewTokenBucketRateLimiter(10, 50)}
	set := g.assemble(nil, nil, guardrail.Merge(limit.Builtin(), nil))
	if opts.AwaitGuardrails {
		set.unread, set.merged = true, guardrail.Unread(limit.Builtin())
		set.policy = set.merged
	}
	g.rules.Store(set)
	return g, nil
}

// assemble makes a rule set of compiled rules. Exceptions are those in force.
func (g *Guard) assemble(all []*ownRules, compiled compiledRules, policy guardrail.Policy) *ruleSet {
	set := &ruleSet{
		kinds: map[string]*kindRules{}, merged: policy, policy: policy, limits: limitsValue(policy.Limits),
		guardrails: map[string]*ownRules{}, compiled: compiled,
	}
	if was := g.rules.Load(); was != nil {
		set.exceptions = was.exceptions
	}
	for _, own := range all {
		set.guardrails[own.Name] = own
	}
	for name, k := range g.kinds {
		var rules []*compiledRule
		for _, own := range all {
			rules = append(rules, own.byKind[name]...)
		}
		set.kinds[name] = k.with(rules, policy)
	}
	return set
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
func (g *Guard) Judges(kind string) bool { return g.kinds[kind] != nil }

// Policy is what all Guardrails together say, rules apart.
func (g *Guard) Policy() guardrail.Policy { return g.rules.Load().policy }

// Change is what must be judged again.
type Change struct {
	// Kinds whose rules, or what these read, changed; sorted.
	Kinds []string
	// Targets are objects for which exceptions came, went or changed.
	Targets []Target
	// Policy: limits, pauses, precedence or declared condition types changed.
	Policy bool
}

// empty: nothing changed.
func (c Change) empty() bool { return len(c.Kinds) == 0 && len(c.Targets) == 0 && !c.Policy }

// OnChange calls back after rules, exceptions or the policy changed, with what must be judged again. The new state is in
// force by then, and no lock is held.
func (g *Guard) OnChange(notify func(Change)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notify = append(g.notify, notify)
}

// notifyAll calls back all that subscribed.
func (g *Guard) notifyAll(c Change) {
	if c.empty() {
		return
	}
	g.mu.Lock()
	notify := slices.Clone(g.notify)
	g.mu.Unlock()
	for _, n := range notify {
		n(c)
	}
}
