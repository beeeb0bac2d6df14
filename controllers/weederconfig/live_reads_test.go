package weederconfig

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// live is an API server with these objects that counts what it is asked, or fails.
type live struct {
	client.Client
	asked int
	err   error
	// before is called before each answer. Default: nothing is.
	before func()
}

func newLive(objects ...client.Object) *live {
	l := &live{}
	scheme := runtime.NewScheme()
	utilruntime.Must(errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)))
	ask := func() error {
		l.asked++
		if l.before != nil {
			l.before()
		}
		return l.err
	}
	l.Client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if err := ask(); err != nil {
				return err
			}
			return c.Get(ctx, key, into, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			if err := ask(); err != nil {
				return err
			}
			return c.List(ctx, into, opts...)
		},
	})
	return l
}

// reason decides on a pod as the reconciler does: "delete", or what holds it back. What was reserved is given back.
func reason(t *testing.T, r *PodReconciler, pod types.NamespacedName) string {
	t.Helper()
	plan, next := r.decide(t.Context(), pod)
	if next == weeder.Delete {
		r.releaseReservation(plan)
		return "delete"
	}
	if len(plan.Holds) == 0 {
		return ""
	}
	return string(plan.Holds[0].Reason)
}

const (
	service   = 1 // requests: the Service,
	andSlices = 1 // and its EndpointSlices
)

func TestASilentWatchOfEndpointsIsNotBelieved(t *testing.T) {
	api := types.NamespacedName{Namespace: ownNamespace, Name: "api-1"}
	for name, c := range map[string]struct {
		silent time.Duration
		stored []client.Object
		err    error
		want   string
		asked  int
	}{
		"it told of something lately":           {20 * time.Second, nil, nil, "delete", 0},
		"nothing changed meanwhile":             {21 * time.Second, []client.Object{slice(true, "etcd-0")}, nil, "delete", service + andSlices},
		"the pod stands behind the Service now": {21 * time.Second, []client.Object{slice(true, "etcd-0", "api-1")}, nil, "PodOfTheService", service + andSlices},
		"the Service selects the pod now": {21 * time.Second, []client.Object{slice(true, "etcd-0"), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: "etcd"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "api"}},
		}}, nil, "PodOfTheService", service + andSlices},
		"nobody answers": {21 * time.Second, nil, errors.New("timeout"), "FactsInDoubt", service},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.observe(t.Context(), stored("wc", nil))
			w.pod(weeder.ReadPod(crashing("api-1")))
			w.recover()
			l := newLive(c.stored...)
			l.err = c.err
			r := &PodReconciler{Observer: w.Observer, Live: l, Recorder: &DeletionRecorder{Observer: w.Observer}}
			w.clock.Step(c.silent)
			if got := reason(t, r, api); got != c.want || l.asked != c.asked {
				t.Errorf("%q after %d requests, want %q after %d", got, l.asked, c.want, c.asked)
			}
		})
	}
}

func TestWhatWasReadIsBelievedForAWhile(t *testing.T) {
	api := types.NamespacedName{Namespace: ownNamespace, Name: "api-1"}
	w := newWorld(t)
	w.observe(t.Context(), stored("wc", nil))
	w.pod(weeder.ReadPod(crashing("api-1")))
	w.recover()
	l := newLive(slice(true, "etcd-0"))
	r := &PodReconciler{Observer: w.Observer, Live: l, Recorder: &DeletionRecorder{Observer: w.Observer}}
	for _, c := range []struct {
		after time.Duration
		asked int
	}{{21 * time.Second, 2}, {20 * time.Second, 2}, {time.Second, 4}} {
		w.clock.Step(c.after)
		if got := reason(t, r, api); got != "delete" || l.asked != c.asked {
			t.Errorf("%q after %d requests, want a deletion after %d", got, l.asked, c.asked)
		}
	}
	l.err = errors.New("timeout")
	w.clock.Step(21 * time.Second)
	for range 2 {
		if got := reason(t, r, api); got != "FactsInDoubt" {
			t.Errorf("%q though nobody answers", got)
		}
	}
	l.err = nil
	if got := reason(t, r, api); got != "delete" {
		t.Errorf("%q once somebody answers", got)
	}
}

func TestDeletionsThatAreDecidedAtOnceShareARead(t *testing.T) {
	w := newWorld(t)
	w.observe(t.Context(), stored("wc", nil))
	w.pod(weeder.ReadPod(crashing("api-1")))
	w.recover()
	plan, _ := w.weeder().Decide(types.NamespacedName{Namespace: ownNamespace, Name: "api-1"}, w.Facts.Moment(), "")
	w.clock.Step(21 * time.Second)
	l := newLive(slice(true, "etcd-0"))
	r := &PodReconciler{Observer: w.Observer, Live: l, Recorder: &DeletionRecorder{Observer: w.Observer}}
	synctest.Test(t, func(t *testing.T) {
		l.before = func() { time.Sleep(time.Second) } // in the bubble: until all of them ask
		var asking sync.WaitGroup
		for range 64 {
			asking.Go(func() {
				if read, err := r.refreshStale(t.Context(), plan); !read || err != nil {
					t.Errorf("read is %t, error %v", read, err)
				}
			})
		}
		asking.Wait()
	})
	if l.asked != service+andSlices {
		t.Errorf("%d requests", l.asked)
	}
}

func TestANamespaceThatLostItsLabelIsNoticed(t *testing.T) {
	const shop = "shop"
	ns := func(value string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop, Labels: map[string]string{"weed": value}}}
	}
	inShop := func(object client.Object) { object.SetNamespace(shop) }
	for value, want := range map[string]string{"yes": "delete", "no": ""} {
		t.Run(value, func(t *testing.T) {
			w := newWorld(t)
			w.observe(t.Context(), stored("wc", func(s *v1alpha1.WeederConfigSpec) {
				s.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"weed": "yes"}}
			}))
			w.namespace(ns("yes"))
			pod := crashing("api-1")
			inShop(pod)
			w.pod(weeder.ReadPod(pod))
			w.pod(weeder.ReadPod(readyNow(shop, "etcd-0", noon)))
			w.weeder().MarkSynced(w.Facts.Moment())
			for _, s := range []*discoveryv1.EndpointSlice{slice(false, "etcd-0"), slice(true, "etcd-0")} {
				inShop(s)
				w.slice(s)
			}
			l := newLive(ns(value))
			r := &PodReconciler{Observer: w.Observer, Live: l, Recorder: &DeletionRecorder{Observer: w.Observer}}
			if got := reason(t, r, client.ObjectKeyFromObject(pod)); got != want || l.asked != 1 {
				t.Errorf("%q after %d requests, want %q after reading the namespace", got, l.asked, want)
			}
		})
	}
}

func TestASilentWatchOfWorkloadsIsNotBelieved(t *testing.T) {
	api := types.NamespacedName{Namespace: ownNamespace, Name: "api-1"}
	set := func(until string) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: ownNamespace, Name: "api", Annotations: map[string]string{"autohealer.resourcestack.com/hold-until": until},
		}}
	}
	held, over := set("2026-03-01T13:00:00Z"), set("2026-03-01T11:00:00Z")
	for name, c := range map[string]struct {
		told   *appsv1.StatefulSet
		silent time.Duration
		stored []client.Object
		err    error
		want   string
		asked  int
	}{
		"it told of something lately": {over, 20 * time.Second, []client.Object{held}, nil, "delete", 0},
		"it never told of anything":   {nil, 0, []client.Object{held}, nil, "HoldUntil", 1},
		"somebody asked for a hold":   {over, 21 * time.Second, []client.Object{held}, nil, "HoldUntil", 1},
		"nobody did":                  {over, 21 * time.Second, []client.Object{over}, nil, "delete", 1},
		"it is gone":                  {over, 21 * time.Second, nil, nil, "delete", 1},
		"nobody answers":              {over, 21 * time.Second, nil, errors.New("timeout"), "FactsInDoubt", 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.observe(t.Context(), stored("wc", nil))
			pod := crashing("api-1")
			pod.OwnerReferences[0].Kind = "StatefulSet"
			w.pod(weeder.ReadPod(pod))
			if c.told != nil {
				watchHolds[*appsv1.StatefulSet](w.Observer, "StatefulSet", c.told).Handlers(nil).OnAdd(c.told, true)
			}
			w.clock.Step(c.silent)
			w.recover()
			l := newLive(c.stored...)
			l.err = c.err
			r := &PodReconciler{Observer: w.Observer, Live: l, Recorder: &DeletionRecorder{Observer: w.Observer}}
			for range 2 {
				if got := reason(t, r, api); got != c.want || c.err == nil && l.asked != c.asked {
					t.Errorf("%q after %d requests, want %q after %d", got, l.asked, c.want, c.asked)
				}
			}
		})
	}
}
