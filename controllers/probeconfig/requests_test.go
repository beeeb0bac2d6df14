package probeconfig

import (
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kube"
)

// countReads counts the scales that are read from now on.
func (w *env) countReads() *atomic.Int64 {
	var n atomic.Int64
	w.api.meanwhile = func() { n.Add(1) }
	return &n
}

// Ten thousand targets that fail together would otherwise read all their dependents at each run, to be told each time that
// nothing may be done.
func TestWhatIsHeldBackReadsNothing(t *testing.T) {
	for name, hold := range map[string]func(*env){
		"by the cap": func(w *env) {
			w.fail("shoot-5")
			w.want("shoot-5", "0r 0r", "it has the only place")
			w.clock.Step(time.Minute) // its run is stale, and nothing more is done for it
			w.settle()
		},
		"by the breaker": func(w *env) {
			w.Observer.fleet().FollowBreaker(&limit.Opening{ID: "20260301t115900z", OpenedAt: noon})
		},
		"by a clock that stepped": func(w *env) { w.Observer.fleet().SuspendScaleDown(noon.Add(time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 6, nil)
			for i := range 6 {
				w.probe(shoot(i), probe.OK, probe.OK)
			}
			hold(w)
			reads := w.countReads()
			w.fail("shoot-0")
			w.want("shoot-0", "3 3", "held back")
			if n := reads.Load(); n != 0 {
				t.Errorf("%d reads of scales, want none", n)
			}
			if held := w.target("shoot-0").Permit.Reason; held == "" {
				t.Error("it isn't told what holds it back")
			}
			w.probe("shoot-0", probe.OK, probe.OK)
			if held := w.target("shoot-0").Permit.Reason; held != "" {
				t.Errorf("held back by %s, and there is nothing to do", held)
			}
		})
	}
}

// woken counts the requests for targets, and takes them out of the queue.
func woken(q kube.Queue) (n int) {
	for ; q.Len() > 0; n++ {
		request, _ := q.Get()
		q.Done(request)
	}
	return n
}

func TestWhoWakesTargets(t *testing.T) {
	const all, one, none = 4, 1, 0
	for name, c := range map[string]struct {
		happens func(*env)
		want    int
	}{
		"its own status": {func(w *env) {
			pc := w.stored()
			pc.Status.Targets.ExternalUnhealthy++
			if err := w.api.Status().Update(w.t.Context(), pc); err != nil {
				w.t.Fatal(err)
			}
			w.Observer.policies.Seen(t.Context(), w.stored())
		}, none},
		"a new generation": {func(w *env) {
			w.edit(w.stored(), `{"metadata":{"generation":2},"spec":{"probeInterval":"20s"}}`)
		}, all},
		"a finalizer that is gone": {func(w *env) {
			pc := w.stored()
			pc.Finalizers = nil
			w.Observer.policies.Seen(t.Context(), pc)
		}, all},
		"a deletion": {func(w *env) {
			if err := w.api.Delete(w.t.Context(), w.stored()); err != nil {
				w.t.Fatal(err)
			}
			w.Observer.policies.Seen(t.Context(), w.stored())
		}, all},
		"its namespace": {func(w *env) {
			w.Observer.namespaceSeen(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0", Labels: map[string]string{"role": "hosted"}, Annotations: map[string]string{"autohealer.resourcestack.com/hibernated": "true"}}})
		}, one},
		"a success":                     {func(w *env) { w.observe("shoot-0", probe.OK) }, none},
		"a failure below the threshold": {func(w *env) { w.observe("shoot-0", probe.Timeout) }, none},
		"a doubt about credentials":     {func(w *env) { w.observe("shoot-0", probe.Unauthorized) }, one},
		"the end of what was held back": {func(w *env) {
			w.Observer.fleet().SuspendScaleDown(noon.Add(time.Hour))
			w.fail("shoot-0")
			woken(w.queue)
			w.observe("shoot-0", probe.Unauthorized)
		}, one},
		"the end of a flow": {func(w *env) {
			w.observe("shoot-0", probe.Timeout)
			w.observe("shoot-0", probe.Timeout)
			w.breakOnce("shoot-0")
			woken(w.queue)
			w.observe("shoot-0", probe.NotRun)
		}, one},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 4, nil)
			for i := range 4 {
				w.probe(shoot(i), probe.OK, probe.OK)
			}
			w.keep()
			q := priorityqueue.New[reconcile.Request]("")
			defer q.ShutDown()
			w.queue = q
			w.Observer.attachTargets(q)
			woken(q)
			c.happens(w)
			if n := woken(q); n != c.want {
				t.Errorf("it wakes %d targets, want %d", n, c.want)
			}
		})
	}
}

// observe tells of a run in a namespace, and lets nothing follow.
func (w *env) observe(namespace string, external probe.Class) {
	w.t.Helper()
	w.clock.Step(10 * time.Second)
	now := w.clock.Now()
	w.runs.Observe(w.keyOf(namespace), probe.Run{Started: now, Ended: now, Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: external}})
}

// A target whose writes are refused would otherwise be looked at as fast as the API server answers.
func TestWhoIsRefusedIsOnlyTriedAgain(t *testing.T) {
	w := newEnv(t, 1, nil)
	q := priorityqueue.New[reconcile.Request]("")
	defer q.ShutDown()
	w.api.unpatched = true
	w.fail("shoot-0")
	w.want("shoot-0", "3 3", "refused")
	w.Observer.attachTargets(q)
	woken(q)
	if _, err := w.Reconcile(t.Context(), request(w)); err == nil {
		t.Error("nothing is refused")
	}
	if n := woken(q); n != 0 {
		t.Errorf("it wakes itself %d times beside", n)
	}
}

func TestWhoMayDoMoreByWhatIsFoundLooksAgain(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "failed")
	w.guard.SetGuardrails(othersOnly)
	w.see()
	w.settle()
	q := priorityqueue.New[reconcile.Request]("")
	defer q.ShutDown()
	w.Observer.attachTargets(q)
	woken(q)
	w.Observer.apply(w.keyOf("shoot-0"), probe.ConfigAssigned{Config: w.target("shoot-0").Config, NamespaceIsNew: true}) // as a process finds it that takes over
	for i, want := range []int{1, 0} {
		if _, err := w.Reconcile(t.Context(), request(w)); err != nil {
			t.Fatal(err)
		}
		if n := woken(q); n != want {
			t.Errorf("look %d wakes it %d times, want %d", i, n, want)
		}
	}
}
