package oracle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// Options say what to hold the manager to. The zero value is what Autohealer promises.
type Options struct {
	// User is the manager's. Default: system:serviceaccount:autohealer-system:autohealer-manager.
	User string
	// Admissible gives an error for a policy that the rules refuse. Default: everything is admissible.
	Admissible func(policy *unstructured.Unstructured) error
	// Kinds of policies. Default: ConditionSets.
	Kinds []Kind
	// Guardrails says to follow them: their limits take the place of those here, and while one pauses nothing harmful may
	// be done. Their CRD must be installed.
	Guardrails bool

	// MaxTaintedPercent and MaxEvictingPercent of nodes may carry taints of ours that keep pods away, that evict.
	// Default: 10 and 5. A Guardrail's limits take their place.
	MaxTaintedPercent, MaxEvictingPercent int
	// MaxPodDeletionsPerMinute is how many pods may be deleted in a minute. Default: 60. A Guardrail's limit takes its place.
	MaxPodDeletionsPerMinute int
	// MaxScaledDownPercent of all targets, and one at least, may be scaled down at once. Default: 20. A Guardrail's limit takes
	// its place.
	MaxScaledDownPercent int
	// EvictPace is the least time between two nodes of a zone that begin to evict. Default: 5 min.
	EvictPace time.Duration
	// RightsHold is for how long an answer to what an account may do is believed. Default: 1 min.
	RightsHold time.Duration
	// DoubtGrace is how long after Freeze harm may still be done. Default: 60 s.
	DoubtGrace time.Duration
	// UndoWithin is how long after its deletion a policy may still stand in a record. Default: 60 s.
	UndoWithin time.Duration
	// Lag is how far the manager's view may be behind: so long may it act for a policy that was just changed or deleted,
	// and on a state that has changed since. Default: 5 s.
	Lag time.Duration
}

func (o Options) withDefaults() Options {
	if o.User == "" {
		o.User = "system:serviceaccount:autohealer-system:autohealer-manager"
	}
	if o.Admissible == nil {
		o.Admissible = func(*unstructured.Unstructured) error { return nil }
	}
	if o.Kinds == nil {
		o.Kinds = []Kind{ConditionSets{}}
	}
	if o.MaxTaintedPercent == 0 {
		o.MaxTaintedPercent = 10
	}
	if o.MaxEvictingPercent == 0 {
		o.MaxEvictingPercent = 5
	}
	if o.MaxScaledDownPercent == 0 {
		o.MaxScaledDownPercent = 20
	}
	if o.MaxPodDeletionsPerMinute == 0 {
		o.MaxPodDeletionsPerMinute = 60
	}
	for value, fallback := range map[*time.Duration]time.Duration{
		&o.EvictPace: 5 * time.Minute, &o.RightsHold: time.Minute, &o.DoubtGrace: time.Minute, &o.UndoWithin: time.Minute, &o.Lag: 5 * time.Second,
	} {
		if *value == 0 {
			*value = fallback
		}
	}
	return o
}

// Oracle records what happens in a cluster from Attach on.
type Oracle struct {
	options  Options
	history  *history
	metadata metadata.Interface
	client   kubernetes.Interface

	markers atomic.Int64
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	freezes []freeze        // needs mu
	cuts    []freeze        // needs mu; inputs are namespaces
	given   map[string]bool // needs mu; lines that News gave
}

// freeze is a time in which an input of the manager told nothing new, or in which nodes were cut off.
type freeze struct {
	input    string
	from, to time.Time // to is zero while it lasts
}

// Attach begins to watch a cluster in which the CRDs of all kinds are installed. It returns once everything that happens
// from then on will be seen; ctx bounds that wait. End it with Stop.
func Attach(ctx context.Context, c *cluster.Cluster, o Options) (*Oracle, error) {
	o = o.withDefaults()
	clients, err := newClients(c)
	if err != nil {
		return nil, err
	}
	// Detached from ctx: that bounds the start, Stop ends what runs.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	oracle := &Oracle{options: o, history: newHistory(o), metadata: clients.metadata, client: clients.core, cancel: cancel, given: map[string]bool{}}
	tail, err := newTail(c.AuditLog, oracle.history)
	if err != nil {
		cancel()
		return nil, err
	}
	oracle.running.Go(func() { tail.run(running) })
	for _, followed := range oracle.history.followed {
		oracle.running.Go(func() { followed.run(running, clients.dynamic) })
	}
	if err := oracle.history.waitStarted(ctx); err != nil {
		oracle.Stop()
		return nil, fmt.Errorf("attach the oracle: %w", err)
	}
	return oracle, nil
}

type clients struct {
	core     kubernetes.Interface
	dynamic  dynamic.Interface
	metadata metadata.Interface
}

func newClients(c *cluster.Cluster) (clients, error) {
	var made clients
	var err error
	if made.core, err = kubernetes.NewForConfig(c.Config); err != nil {
		return clients{}, fmt.Errorf("make the oracle's client: %w", err)
	}
	if made.dynamic, err = dynamic.NewForConfig(c.Config); err != nil {
		return clients{}, fmt.Errorf("make the oracle's dynamic client: %w", err)
	}
	if made.metadata, err = metadata.NewForConfig(c.Config); err != nil {
		return clients{}, fmt.Errorf("make the oracle's metadata client: %w", err)
	}
	return made, nil
}

// Stop ends the watches. The last Check must be before.
func (o *Oracle) Stop() {
	o.cancel()
	o.running.Wait()
}

// Freeze says that from now on an input of the manager (an informer, a reporter, a clock, the rules) tells nothing new.
func (o *Oracle) Freeze(input string) { o.begin(&o.freezes, input) }

// Thaw ends a Freeze.
func (o *Oracle) Thaw(input string) { o.end(o.freezes, input) }

// CutOff says that from now on the nodes of the cluster that is probed from a namespace can't reach it, and so not renew their leases.
func (o *Oracle) CutOff(namespace string) { o.begin(&o.cuts, namespace) }

// Mend ends a CutOff.
func (o *Oracle) Mend(namespace string) { o.end(o.cuts, namespace) }

func (o *Oracle) begin(all *[]freeze, input string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*all = append(*all, freeze{input: input, from: time.Now()})
}

func (o *Oracle) end(all []freeze, input string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range all {
		if all[i].input == input && all[i].to.IsZero() {
			all[i].to = time.Now()
		}
	}
}

// Check judges everything that happened from Attach until now, and gives all violations in the order they happened.
// When the oracle can't see all of it, that is a violation too.
func (o *Oracle) Check(ctx context.Context) []Violation {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	until, err := o.catchUp(ctx)
	now := time.Now()
	if err != nil {
		return []Violation{{Invariant: Blind, At: now, Text: err.Error()}}
	}
	o.mu.Lock()
	freezes, cuts := slices.Clone(o.freezes), slices.Clone(o.cuts)
	o.mu.Unlock()
	return judge(o.history.events(until), o.options, freezes, cuts, now)
}

// News are the lines of what Check gives, but for those that an earlier News gave: another spec has failed with these.
func (o *Oracle) News(ctx context.Context) []string { return o.fresh(o.Check(ctx)) }

func (o *Oracle) fresh(all []Violation) (lines []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, v := range all {
		if line := v.String(); !o.given[line] {
			o.given[line] = true
			lines = append(lines, line)
		}
	}
	return lines
}

// catchUp waits until the watches and the audit log have told everything up to now, and gives the version up to which
// they have.
func (o *Oracle) catchUp(ctx context.Context) (until uint64, err error) {
	for _, followed := range o.history.followed {
		list, err := o.metadata.Resource(followed.resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", followed.resource.Resource, err)
		}
		if err := o.history.waitSeen(ctx, followed, list); err != nil {
			return 0, fmt.Errorf("wait for the watch of %s: %w", followed.resource.Resource, err)
		}
		version := versionOf(list.ResourceVersion)
		if until == 0 || version < until {
			until = version
		}
	}
	// The API server writes an audit line before it ends its answer: what was answered before this request is in the
	// log before it. Deleting a pod that isn't there changes nothing, and is logged.
	marker := fmt.Sprintf("%s%d-%d", markerPrefix, time.Now().UnixNano(), o.markers.Add(1))
	if err := o.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, marker, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("mark the audit log: %w", err)
	}
	if err := o.history.waitMarker(ctx, marker); err != nil {
		return 0, fmt.Errorf("wait for the audit log: %w", err)
	}
	return until, nil
}
