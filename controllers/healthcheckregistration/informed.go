package healthcheckregistration

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/policy"
)

// informed has what each registration meant to its targets when they were last asked for because of it. The zero value has
// nothing.
type informed struct {
	mu sync.Mutex
	of map[types.UID]meaning // needs mu
}

// meaning is all of a registration by which its targets go, but for what is judged anew with each look.
type meaning struct {
	generation, judged int64
	invalidations      int
	outdated, going    bool
	state              lifecycle.State
	reset              string
	pause              policy.Pause
	known              bool
}

func (o *Observer) meaning(j storedRegistration) meaning {
	hcr := j.Object
	return meaning{
		generation: hcr.Generation, judged: j.Generation, invalidations: j.Invalidations, outdated: j.Outdated, going: hcr.DeletionTimestamp != nil,
		state: j.State(hcr.Spec.Mode == v1alpha1.Observe), reset: hcr.Annotations[v1alpha1.AnnotationResetBreaker], pause: j.Pause, known: j.PauseKnown,
	}
}

func (i *informed) forget(uid types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.of, uid)
}

func (i *informed) clear() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.of)
}

// inform asks for a look at all targets of a registration that means something else to them than when they were last asked for.
// Our own status is written again and again while some of them change, which mustn't have thousands of others looked at. It says
// whether they were asked for, then or now.
func (o *Observer) inform(ctx context.Context, key types.NamespacedName) bool {
	o.informed.mu.Lock()
	defer o.informed.mu.Unlock()
	j, ok := o.policies.Get(key)
	if !ok || !o.synced.Load() {
		return false
	}
	now := o.meaning(j)
	if was, known := o.informed.of[j.Object.UID]; known && was == now {
		return true
	}
	if !o.lookAtTargets(ctx, j.Read.kind, metav1.NamespaceAll) {
		return false
	}
	if o.informed.of == nil {
		o.informed.of = map[types.UID]meaning{}
	}
	o.informed.of[j.Object.UID] = now
	return true
}

// lookAtTargets asks for a look at all objects of a kind in a namespace, or in all of them, and says whether they are known.
func (o *Observer) lookAtTargets(ctx context.Context, kind schema.GroupVersionKind, namespace string) bool {
	if err := o.Watches.Watch(ctx, kind, true); err != nil {
		return false // the registration's own reconciler asks again, and tells why not
	}
	objects, err := o.Watches.List(ctx, kind, namespace, everything)
	if err != nil {
		return false
	}
	keys := make([]types.NamespacedName, len(objects))
	for i, object := range objects {
		keys[i] = nameOf(checking.Target{Kind: kind.GroupKind(), Key: client.ObjectKeyFromObject(object)})
	}
	o.targets.AddAll(keys...)
	return true
}
