package guardrailexception

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Observer puts all exceptions in force, and notices when the target of one changes.
type Observer struct {
	Cache cache.Cache
	Guard *guard.Guard

	statuses kube.Requests

	mu     sync.Mutex
	naming map[v1alpha1.ExceptionTarget][]string // needs mu: exceptions by target; nil until all are in force
}

// NeedLeaderElection is true: targets are watched for the status alone.
func (*Observer) NeedLeaderElection() bool { return true }

// Start watches the targets until ctx ends.
func (o *Observer) Start(ctx context.Context) error {
	var watches []kube.Watch
	for _, kind := range kinds.Policies() {
		changed := func(object client.Object) {
			changed := v1alpha1.ExceptionTarget{Kind: kind.Name(), Namespace: object.GetNamespace(), Name: object.GetName()}
			o.requestFor(func(target v1alpha1.ExceptionTarget) bool { return target == changed })
		}
		watches = append(watches, kube.On(client.Object(kind.New()), changed, changed))
	}
	return kube.NewWatches(o.Cache).Run(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}, watches...)
}

// use puts these exceptions in force in place of all former ones. Whoever judges an object that one lifts a rule for knows
// itself when that ends, so there is nothing to be done again.
func (o *Observer) use(ctx context.Context, all []*v1alpha1.GuardrailException) (never time.Time) {
	o.Guard.SetExceptions(all)
	log.FromContext(ctx).Info("GuardrailExceptions are in force", "exceptions", len(all))
	naming := map[v1alpha1.ExceptionTarget][]string{}
	for _, exception := range all {
		naming[exception.Spec.TargetRef] = append(naming[exception.Spec.TargetRef], exception.Name)
	}
	o.mu.Lock()
	o.naming = naming
	o.mu.Unlock()
	for _, exception := range all {
		o.request(exception.Name)
	}
	return never
}

// rulesChanged asks for the status of the exceptions from rules that changed.
func (o *Observer) rulesChanged(c guard.Change) {
	o.requestFor(func(target v1alpha1.ExceptionTarget) bool {
		return slices.Contains(c.Kinds, target.Kind) || slices.Contains(c.Kinds, "GuardrailException")
	})
}

// lead takes the queue of a replica that became the leader.
func (o *Observer) lead(q kube.Queue) {
	o.statuses.Attach(q)
	o.requestFor(func(v1alpha1.ExceptionTarget) bool { return true })
}

func (o *Observer) request(name string) { o.statuses.Add(types.NamespacedName{Name: name}, 0) }

// requestFor asks for the status of the exceptions for these targets.
func (o *Observer) requestFor(concerned func(v1alpha1.ExceptionTarget) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for target, names := range o.naming {
		if concerned(target) {
			for _, name := range names {
				o.request(name)
			}
		}
	}
}
