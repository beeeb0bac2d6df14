package weederconfig

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// liveReadCache remembers what was read live before deletions, and when: whose pods a Service's are, whether the config is still about
// the namespace, and whether the pod's workload asks to be left alone. Of the pod itself the deletion's preconditions make sure.
type liveReadCache struct {
	sync.Map

	reads singleflight.Group
}

type liveRead struct{ kind, namespace, name string }

// refreshStale reads live what the watches have been quiet about; read says that it did, so that the plan must be made again.
func (r *PodReconciler) refreshStale(ctx context.Context, plan weeder.Plan) (read bool, err error) {
	now, namespace, service, of := r.Observer.Facts.Clock.Now(), plan.Pod.Namespace, plan.Delete.Service, plan.Pod.Workload()
	for _, check := range []struct {
		at   liveRead
		must bool
		read func() error
	}{
		{liveRead{"Service", namespace, service}, r.Observer.watchSilent(kindSlice, now), func() error {
			return r.readService(ctx, types.NamespacedName{Namespace: namespace, Name: service})
		}},
		// Labels of namespaces change once in a blue moon.
		{liveRead{"Namespace", "", namespace}, namespace != plan.Delete.Key.Namespace, func() error { return r.readNamespace(ctx, namespace) }},
		{liveRead{of.Kind, namespace, of.Name}, r.Observer.watchSilent(of.Kind, now), func() error { return r.readWorkload(ctx, of) }},
	} {
		if !check.must || r.liveReads.fresh(check.at, now.Add(-r.Observer.Facts.Timings.MaxWatchSilence())) {
			continue
		}
		read = true
		if err = r.liveReads.once(check.at, now, check.read); err != nil {
			return read, err
		}
	}
	return read, nil
}

// once reads, or waits while another pod's deletion has the same read: those that one recovery allows are decided at once.
// Whose read it is doesn't matter: reconciliations end with the manager, all together.
func (c *liveReadCache) once(of liveRead, now time.Time, read func() error) error {
	_, err, _ := c.reads.Do(of.kind+" "+of.namespace+"/"+of.name, func() (any, error) {
		err := read()
		if err == nil {
			c.Store(of, now)
		}
		return nil, err
	})
	return err
}

// fresh says whether it was read since then. Older reads are dropped.
func (c *liveReadCache) fresh(of liveRead, since time.Time) bool {
	c.Range(func(other, at any) bool {
		if at.(time.Time).Before(since) {
			c.Delete(other)
		}
		return true
	})
	_, known := c.Load(of)
	return known
}

func (r *PodReconciler) readService(ctx context.Context, key types.NamespacedName) error {
	var svc corev1.Service
	err := r.Live.Get(ctx, key, &svc)
	switch {
	case err == nil:
		r.Observer.service(&svc)
	case !apierrors.IsNotFound(err): // slices may be there without it
		return fmt.Errorf("read Service %s before deleting what depends on it: %w", key, err)
	}
	var slices discoveryv1.EndpointSliceList
	of := client.MatchingLabels{discoveryv1.LabelServiceName: key.Name}
	if err := r.Live.List(ctx, &slices, client.InNamespace(key.Namespace), of); err != nil {
		return fmt.Errorf("list the EndpointSlices of Service %s before deleting what depends on it: %w", key, err)
	}
	for i := range slices.Items {
		r.Observer.handleChanges(r.Observer.weeder().ObserveSlice(&slices.Items[i], r.Observer.Facts.Moment()))
	}
	return nil
}

func (r *PodReconciler) readNamespace(ctx context.Context, name string) error {
	var ns corev1.Namespace
	if err := r.Live.Get(ctx, types.NamespacedName{Name: name}, &ns); err != nil {
		return fmt.Errorf("read namespace %s before deleting a pod in it: %w", name, err)
	}
	r.Observer.namespace(&ns)
	return nil
}

func (r *PodReconciler) readWorkload(ctx context.Context, w weeder.Workload) error {
	object := metadataOf(workload(w.Kind))
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: w.Name}, object)
	switch {
	case err == nil:
		r.Observer.observeHold(w.Kind, object)
	case apierrors.IsNotFound(err): // its pods go with it
		r.Observer.forgetHold(w)
	default:
		return fmt.Errorf("read %s before deleting a pod of it: %w", w, err)
	}
	return nil
}
