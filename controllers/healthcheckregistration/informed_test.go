package healthcheckregistration

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// twoWorkers is a cache with as many.
type twoWorkers struct {
	informertest.FakeInformers

	listed int
	// record of both, and whether they are being deleted.
	record string
	going  bool
}

func (c *twoWorkers) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	c.listed++
	if in := (&client.ListOptions{}).ApplyOptions(options).Namespace; in != "" && in != "n" {
		return nil
	}
	into := list.(*unstructured.UnstructuredList)
	for _, name := range []string{"a", "b"} {
		w := unstructured.Unstructured{}
		w.SetGroupVersionKind(worker)
		w.SetNamespace("n")
		w.SetName(name)
		w.SetAnnotations(recorded(c.record))
		if c.going {
			w.SetDeletionTimestamp(&metav1.Time{Time: noon})
		}
		into.Items = append(into.Items, w)
	}
	return nil
}

// leading is an observer that leads, and knows two Workers and a registration about them.
type leading struct {
	*Observer
	t       *testing.T
	cache   *twoWorkers
	hcr     *v1alpha1.HealthCheckRegistration
	targets kube.Queue
}

func leads(t *testing.T) *leading {
	t.Helper()
	l := &leading{Observer: knowing(t), t: t, cache: &twoWorkers{}, hcr: suspended("r", "v1alpha1", "Mine")}
	l.cache.Scheme = runtime.NewScheme()
	l.Watches = checking.WatchesOf(l.cache, l.targetChanged, testingclock.NewFakePassiveClock(noon))
	l.targets = priorityqueue.New[reconcile.Request]("")
	t.Cleanup(l.targets.ShutDown)
	l.synced.Store(true)
	l.see(func(*v1alpha1.HealthCheckRegistration) {})
	l.attachTargets(l.targets)
	l.asked()
	return l
}

// see has the stored registration change, and judged where that must be.
func (l *leading) see(change func(*v1alpha1.HealthCheckRegistration)) {
	l.hcr = l.hcr.DeepCopy()
	change(l.hcr)
	l.policies.Seen(l.t.Context(), l.hcr)
	if j, ok := l.policies.Get(client.ObjectKeyFromObject(l.hcr)); !ok || j.Outdated {
		l.policies.Judge(l.t.Context(), client.ObjectKeyFromObject(l.hcr))
	}
}

// asked gives how many targets are to be looked at now, and which first.
func (l *leading) asked() (n int, first string) {
	for ; l.targets.Len() > 0; n++ {
		request, _, _ := l.targets.GetWithPriority()
		l.targets.Done(request)
		if n == 0 {
			first = targetOf(request.NamespacedName).Key.Name
		}
	}
	return n, first
}

func TestWhatHasAllTargetsLookedAt(t *testing.T) {
	const all, none = 2, 0
	for name, c := range map[string]struct {
		happens func(*leading)
		want    int
	}{
		"its own status": {func(l *leading) {
			l.see(func(hcr *v1alpha1.HealthCheckRegistration) {
				hcr.Status = v1alpha1.HealthCheckRegistrationStatus{Targets: 2, Unhealthy: 1, ObservedGeneration: 1}
			})
		}, none},
		"another judgement that says the same": {func(l *leading) { l.policies.Judge(l.t.Context(), client.ObjectKeyFromObject(l.hcr)) }, none},
		"a rule that changes, and says the same of it": {func(l *leading) {
			l.policies.RulesChanged(guard.Change{Kinds: []string{kindRegistration}})
			l.policies.Judge(l.t.Context(), client.ObjectKeyFromObject(l.hcr))
		}, all},
		"an edit": {func(l *leading) { l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.Generation++ }) }, all},
		"its mode": {func(l *leading) {
			l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.Generation++; hcr.Spec.Mode = v1alpha1.Observe })
		}, all},
		"an edit that isn't judged yet": {func(l *leading) {
			l.hcr.Generation++
			l.policies.Seen(l.t.Context(), l.hcr)
		}, all},
		"a reset of the breaker": {func(l *leading) {
			l.see(func(hcr *v1alpha1.HealthCheckRegistration) {
				hcr.Annotations = map[string]string{v1alpha1.AnnotationResetBreaker: "x"}
			})
		}, all},
		"its finalizer": {func(l *leading) { l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.Finalizers = nil }) }, all},
		"its deletion": {func(l *leading) {
			l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.DeletionTimestamp = &metav1.Time{Time: noon} })
		}, all},
		"one of its name that is made anew": {func(l *leading) {
			l.policies.Gone(l.hcr)
			l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.UID = "s" })
		}, all},
		"a pause": {func(l *leading) {
			paused := guardrail.Merge(limit.Builtin(), nil)
			paused.PausedBy = []string{"p"}
			l.policies.Pause(paused)
			l.policies.Judge(l.t.Context(), client.ObjectKeyFromObject(l.hcr))
		}, all},
		"this replica's lead": {func(l *leading) { l.attachTargets(l.targets) }, all},
	} {
		t.Run(name, func(t *testing.T) {
			l := leads(t)
			c.happens(l)
			if n, _ := l.asked(); n != c.want {
				t.Errorf("%d targets are looked at, not %d", n, c.want)
			}
		})
	}
}

func TestTargetsThatCantBeReadAreAskedForLater(t *testing.T) {
	l := leads(t)
	l.cache.Error = errors.New("no kind")
	l.Watches = checking.WatchesOf(l.cache, l.targetChanged, testingclock.NewFakePassiveClock(noon))
	l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.Generation++ })
	if n, _ := l.asked(); n != 0 || l.notifyTargets(t.Context(), client.ObjectKeyFromObject(l.hcr)) {
		t.Fatalf("%d targets of an unread kind are looked at", n)
	}
	l.cache.Error = nil
	if !l.notifyTargets(t.Context(), client.ObjectKeyFromObject(l.hcr)) {
		t.Error("a kind that is read counts as unread")
	}
	if n, _ := l.asked(); n != 2 {
		t.Errorf("%d targets are looked at, not both", n)
	}
}

// Whoever edits a registration waits for it, so that a flood of changes mustn't keep it waiting for ever.
func TestWhatAnEditConcernsIsLookedAtInItsTurn(t *testing.T) {
	l := leads(t)
	byTime := reconcile.Request{NamespacedName: nameOf(targetNamed("quiet"))}
	l.targets.AddWithOpts(priorityqueue.AddOpts{Priority: new(kube.LowPriority)}, byTime)
	l.enqueueAll(t.Context())
	l.targetChanged(targetNamed("changed"))
	n, first := l.asked()
	if n != 4 || first != "a" && first != "b" {
		t.Errorf("%s is looked at first, of %d; want what was asked for first, and nothing that only time asks for", first, n)
	}
}

func TestTargetsAreLookedAtWhenTheirNamespaceIsLabelled(t *testing.T) {
	tenant := &v1alpha1.LabelSelector{MatchLabels: map[string]string{"tenant": "yes"}}
	for name, c := range map[string]struct {
		selector      *v1alpha1.LabelSelector
		before, after map[string]string
		namespace     string
		want          int
	}{
		"labelled":                  {tenant, nil, map[string]string{"tenant": "yes"}, "n", 2},
		"no longer":                 {tenant, map[string]string{"tenant": "yes"}, nil, "n", 2},
		"as it was":                 {tenant, map[string]string{"tenant": "yes"}, map[string]string{"tenant": "yes"}, "n", 0},
		"one that has no targets":   {tenant, nil, map[string]string{"tenant": "yes"}, "other", 0},
		"nobody goes by the labels": {nil, nil, map[string]string{"tenant": "yes"}, "n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := leads(t)
			l.see(func(hcr *v1alpha1.HealthCheckRegistration) {
				hcr.Generation++
				hcr.Spec.Target.NamespaceSelector = c.selector
			})
			l.asked()
			of := func(labels map[string]string) *corev1.Namespace {
				return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace, Labels: labels}}
			}
			l.namespaceRelabelled(t.Context(), of(c.before), of(c.after))
			if n, _ := l.asked(); n != c.want {
				t.Errorf("%d targets are looked at, not %d", n, c.want)
			}
		})
	}
}

func TestTargetsOfARelabelledNamespaceAreLookedAtOnceTheirKindCanBeRead(t *testing.T) {
	l := leads(t)
	l.see(func(hcr *v1alpha1.HealthCheckRegistration) {
		hcr.Generation++
		hcr.Spec.Target.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"tenant": "yes"}}
	})
	l.asked()
	read := func(synced ...controllertest.InformerOption) {
		l.cache.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{worker: controllertest.NewFakeInformer(synced...)}
		l.Watches = checking.WatchesOf(l.cache, l.targetChanged, testingclock.NewFakePassiveClock(noon))
	}
	read()
	l.namespaceRelabelled(t.Context(), &corev1.Namespace{}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"tenant": "yes"}}})
	if n, _ := l.asked(); n != 0 || l.notifyTargets(t.Context(), client.ObjectKeyFromObject(l.hcr)) {
		t.Errorf("%d targets are looked at while none are read", n)
	}
	read(controllertest.Synced)
	if done := l.notifyTargets(t.Context(), client.ObjectKeyFromObject(l.hcr)); !done {
		t.Error("they aren't asked for")
	}
	if n, _ := l.asked(); n != 2 {
		t.Errorf("%d targets are looked at, not 2", n)
	}
}

// A wave of ten thousand would otherwise count ten thousand targets for each of them.
func TestTargetsAreCountedOnceASecond(t *testing.T) {
	l := leads(t)
	clock := l.Facts.Clock.(*testingclock.FakeClock)
	ask := func() int {
		j, _ := l.policies.Get(client.ObjectKeyFromObject(l.hcr))
		before := l.cache.listed
		if n := l.targetCount(t.Context(), j.Read.registration, &l.results.results(l.hcr.UID).breaker); n != 2 {
			t.Errorf("%d targets are counted, not 2", n)
		}
		return l.cache.listed - before
	}
	for i, step := range []struct {
		after  time.Duration
		edited bool
		want   int
	}{{want: 1}, {want: 0}, {after: 999 * time.Millisecond, want: 0}, {after: time.Millisecond, want: 1}, {edited: true, want: 1}, {after: -time.Hour, want: 1}} {
		clock.SetTime(clock.Now().Add(step.after))
		if step.edited {
			l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.Generation++ })
		}
		if n := ask(); n != step.want {
			t.Errorf("step %d lists %d times, not %d", i, n, step.want)
		}
	}
	l.policies.Gone(l.hcr)
	if len(l.results.byUID) != 0 {
		t.Error("a registration that is gone is remembered")
	}
}
