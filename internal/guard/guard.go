// Package guard judges policies by CEL rules: at admission, before they are stored, and again at run time, before
// anything acts on them. The rules are data (catalog/), compiled as the API server compiles its own: types are checked
// against the CRD, values are executed dynamically, cost is bounded. Whatever changes the cluster takes a Validated,
// which only this package can make.
package guard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

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

// Validated is an object that the rules in force admitted. Only Admit makes one that is valid, so code that asks for a
// Validated can't be given an object that nobody checked.
type Validated[T client.Object] struct {
	object      T
	uid         types.UID
	generation  int64
	ruleSetHash string
	observes    bool
}

// Valid is false for the zero value, on which nothing may act.
func (v Validated[T]) Valid() bool { return v.ruleSetHash != "" && v.uid != "" }

// Enforces says that it is valid and that its policy isn't in mode Observe: some rules admit a policy only because that does nothing.
func (v Validated[T]) Enforces() bool { return v.Valid() && !v.observes }

// Object is a copy of what was judged. It panics on the zero value.
func (v Validated[T]) Object() T {
	if !v.Valid() {
		panic("guard: the object of a Validated that nobody made")
	}
	return v.object.DeepCopyObject().(T)
}

// UID of the object.
func (v Validated[T]) UID() types.UID { return v.uid }

// Generation that was judged.
func (v Validated[T]) Generation() int64 { return v.generation }

// RuleSetHash names the rules that judged.
func (v Validated[T]) RuleSetHash() string { return v.ruleSetHash }

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}()

// Admit judges a stored object by the rules that hold at run time: those over the object itself. Rules over plan, facts,
// the request or the old object judge creations and changes only; acting on them later would undo a policy because the
// cluster, not the policy, changed. The Validated is the zero value unless the verdict admits the object.
func Admit[T client.Object](ctx context.Context, g *Guard, obj T) (Validated[T], Verdict) {
	obj = obj.DeepCopyObject().(T) // neither planners nor whoever acts share it with a cache
	verdict, content, err := g.admit(ctx, obj)
	if err == nil && obj.GetUID() == "" {
		err = fmt.Errorf("%q was never stored: it has no UID", obj.GetName())
	}
	if err != nil {
		verdict.skip(unreadable(err))
	}
	if !verdict.Allowed {
		return Validated[T]{}, verdict
	}
	return Validated[T]{
		object: obj, uid: obj.GetUID(), generation: obj.GetGeneration(),
		ruleSetHash: verdict.RuleSetHash, observes: observes(content),
	}, verdict
}

// unreadable refuses an object that can't be judged at all.
func unreadable(err error) Skip {
	return Skip{Rule: "guard/object", Severity: Deny, Reason: err.Error()}
}

func (g *Guard) admit(ctx context.Context, obj client.Object) (Verdict, map[string]any, error) {
	rules := g.rules.Load()
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return Verdict{}, nil, fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	kind := rules.kinds[gvk.Kind]
	if kind == nil {
		return Verdict{}, nil, fmt.Errorf("there are no rules for kind %q", gvk.Kind)
	}
	judged, err := judgedOf(gvk.Kind, obj)
	if err != nil {
		return Verdict{RuleSetHash: kind.hash}, nil, err
	}
	return g.evaluation(ctx, rules, kind, judged).atRunTime(), judged.content, nil
}

// SpecHash is the SHA-256 of an object's spec, in hexadecimal: equal specs give equal hashes, whatever the order of their
// maps, and whether or not they write down fields that say nothing. It isn't cut short: who writes both specs could look
// for two with the same hash, one to be excepted and one to be used.
func SpecHash(obj client.Object) (string, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return "", fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	judged, err := judgedOf(gvk.Kind, obj)
	if err != nil {
		return "", err
	}
	return hashOf(judged.content)
}

// hashOf hashes content that judgedOf gave: webhook, controllers and tools have the same text then.
func hashOf(content map[string]any) (string, error) {
	text, err := json.Marshal(content["spec"])
	if err != nil {
		return "", fmt.Errorf("encode spec: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
