package guardrailexception

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// Observer puts all exceptions in force, and notices when the target of one changes.
type Observer struct {
	Cache cache.Cache
	Guard *guard.Guard

	targets targets

	mu     sync.Mutex
	queue  kube.Queue                            // needs mu; nil until this replica leads
	naming map[v1alpha1.ExceptionTarget][]string // needs mu: exceptions by target; nil until all are in force
}

// NeedLeaderElection is true: targets are watched for the status alone.
func (*Observer) NeedLeaderElection() bool { return true }

// Start watches the targets until ctx ends.
func (o *Observer) Start(ctx context.Context) error {
	lost := make(chan error, 1)
	for kind, empty := range o.targets {
		informer, err := o.Cache.GetInformer(ctx, empty)
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		changed := func(object client.Object) {
			o.enqueueNaming(v1alpha1.ExceptionTarget{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()})
		}
		registration, err := informer.AddEventHandler(kube.Handlers(changed, changed, func(err error) {
			select {
			case lost <- err:
			default: // one is enough
			}
		}))
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		defer func() { _ = informer.RemoveEventHandler(registration) }()
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return nil // stopped before it began
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-lost:
		return fmt.Errorf("watch targets of exceptions: %w", err)
	}
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
		o.enqueue(exception.Name)
	}
	return never
}

// rulesChanged asks for the status of the exceptions from rules that changed.
func (o *Observer) rulesChanged(c guard.Change) {
	o.mu.Lock()
	naming := o.naming
	o.mu.Unlock()
	for target := range naming {
		if slices.Contains(c.Kinds, target.Kind) || slices.Contains(c.Kinds, "GuardrailException") {
			o.enqueueNaming(target)
		}
	}
}

// attach takes the queue of a replica that became the leader.
func (o *Observer) attach(q kube.Queue) {
	o.mu.Lock()
	o.queue = q
	naming := o.naming
	o.mu.Unlock()
	for _, names := range naming {
		for _, name := range names {
			o.enqueue(name)
		}
	}
}

func (o *Observer) enqueue(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kube.Enqueue(o.queue, types.NamespacedName{Name: name}, 0)
}

// enqueueNaming asks for the status of the exceptions for a target.
func (o *Observer) enqueueNaming(target v1alpha1.ExceptionTarget) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range o.naming[target] {
		kube.Enqueue(o.queue, types.NamespacedName{Name: name}, 0)
	}
}
