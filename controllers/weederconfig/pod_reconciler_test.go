package weederconfig

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

// scene is a reconciler for a pod that crash-loops once its Service recovered, before an API server that answers as it is told.
type scene struct {
	*PodReconciler
	world *world
	live  *live
	shelf *shelf
	// asked are the resource versions that were asked to be deleted or evicted; each takes one of the answers, the last over
	// and over.
	asked   []string
	answers []error
	note    error // of the status' writes
	current error // says whether the config is what was admitted
	// checking is called when that is asked. Default: nothing is.
	checking func(context.Context)
}

// Check says whether the config is what was admitted.
func (s *scene) Check(ctx context.Context, _ schema.GroupVersionKind, _ types.NamespacedName, _ types.UID, _ int64) error {
	if s.checking != nil {
		s.checking(ctx)
	}
	return s.current
}

func newScene(t *testing.T, change func(*v1alpha1.WeederConfigSpec), answers ...error) *scene {
	t.Helper()
	s := entrant(t, stored("wc", change), answers...)
	s.world.weeder().Claim(nil, s.world.Facts.Moment())
	return s
}

// entrant is a process that is about to lead: it knows of config wc and a pod to delete for it, and not what was done for it
// last.
func entrant(t *testing.T, wc *v1alpha1.WeederConfig, answers ...error) *scene {
	t.Helper()
	s := &scene{world: newWorld(t), live: newLive(crashing("api-1")), answers: answers}
	s.world.meet(t.Context(), wc)
	s.world.pod(weeder.ReadPod(crashing("api-1")))
	s.world.recover()
	s.shelf = newShelf(func() error { return s.note })
	pods := fake.NewClientset()
	answer := func(p *metav1.Preconditions) (bool, runtime.Object, error) {
		s.asked = append(s.asked, *p.ResourceVersion)
		if *p.UID != "api-1-uid" {
			t.Errorf("asked for the pod with UID %s", *p.UID)
		}
		if !s.shelf.has("api-1") {
			t.Error("asked before the status told of it")
		}
		return true, nil, s.answers[min(len(s.asked), len(s.answers))-1]
	}
	pods.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return answer(a.(clienttesting.DeleteActionImpl).DeleteOptions.Preconditions)
	})
	pods.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return answer(a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction).DeleteOptions.Preconditions)
	})
	s.PodReconciler = &PodReconciler{
		Observer: s.world.Observer, Live: s.live, Errors: &policy.ErrorTracker{}, Report: s.world.Report,
		Recorder: &DeletionRecorder{Client: s.shelf, Observer: s.world.Observer, Live: s.live},
		Pods:     &actuate.Pods{Client: pods.CoreV1(), Current: s, Acts: logr.Discard()},
		sending:  semaphore.NewWeighted(1),
	}
	return s
}

func (s *scene) reconcile(t *testing.T) (reconcile.Result, error) {
	t.Helper()
	return s.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ownNamespace, Name: "api-1"}})
}

// counted is how many deletions stand in the config's books.
func (s *scene) counted(t *testing.T) int64 {
	t.Helper()
	sum, ok := s.world.weeder().Summary("wc-uid", s.world.Facts.Moment())
	if !ok {
		t.Fatal("the config isn't known")
	}
	return sum.Deleted
}

// changes gives the stored pod its next resource version.
func (s *scene) changes(t *testing.T, how func(*corev1.Pod)) {
	t.Helper()
	before := s.live.before
	s.live.before = nil
	defer func() { s.live.before = before }()
	var pod corev1.Pod
	if err := s.live.Get(t.Context(), types.NamespacedName{Namespace: ownNamespace, Name: "api-1"}, &pod); err != nil {
		t.Fatal(err)
	}
	how(&pod)
	if err := s.live.Update(t.Context(), &pod); err != nil {
		t.Fatal(err)
	}
}

func evicting(spec *v1alpha1.WeederConfigSpec) { spec.Deletion = v1alpha1.Evict }

var podResource = schema.GroupResource{Resource: "pods"}

func conflict() error { return apierrors.NewConflict(podResource, "api-1", errors.New("changed")) }

func disrupting() error {
	err := apierrors.NewTooManyRequests("its budget is spent", 10)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "api needs 1"}}
	return err
}

func TestWhatBecomesOfADeletion(t *testing.T) {
	lost := errors.New("connection lost")
	for name, c := range map[string]struct {
		change  func(*v1alpha1.WeederConfigSpec)
		answers []error
		prepare func(*scene)
		asked   []string // resource versions
		counted int64
		again   time.Duration // after which it looks again; 0 for not by itself
		fails   bool
	}{
		"it is done":          {answers: []error{nil}, asked: []string{"1"}, counted: 1},
		"it is evicted":       {change: evicting, answers: []error{nil}, asked: []string{"1"}, counted: 1},
		"it is gone":          {answers: []error{apierrors.NewNotFound(podResource, "api-1")}, asked: []string{"1"}},
		"it may not be":       {answers: []error{apierrors.NewForbidden(podResource, "api-1", errors.New("no"))}, asked: []string{"1"}, fails: true},
		"nobody answers":      {answers: []error{lost}, asked: []string{"1"}, counted: 1, fails: true},
		"an API server fails": {answers: []error{apierrors.NewInternalError(lost)}, asked: []string{"1"}, counted: 1, fails: true},
		"it changed, and still crash-loops": {
			answers: []error{conflict(), nil}, asked: []string{"1", "2"}, counted: 1,
			prepare: func(s *scene) { s.changes(t, func(*corev1.Pod) {}) },
		},
		"it changed, and isn't a dependent any more": {
			answers: []error{conflict()}, asked: []string{"1"},
			prepare: func(s *scene) { s.changes(t, func(p *corev1.Pod) { p.Labels["app"] = "other" }) },
		},
		"it changed, and nobody says how": {answers: []error{conflict()}, asked: []string{"1"}, prepare: func(s *scene) { s.live.err = lost }, fails: true},
		"it changes each time": {
			answers: []error{conflict()}, asked: []string{"1", "2", "3", "4"}, again: time.Second,
			prepare: func(s *scene) { s.live.before = func() { s.changes(t, func(*corev1.Pod) {}) } },
		},
		"a PodDisruptionBudget holds it":                     {change: evicting, answers: []error{disrupting()}, asked: []string{"1"}, again: 5*time.Second + time.Millisecond},
		"it can't be noted":                                  {prepare: func(s *scene) { s.note = lost }, fails: true},
		"the config was changed":                             {prepare: func(s *scene) { s.current = kube.ErrSuperseded }, again: time.Second},
		"nobody says whether the config is stored like that": {prepare: func(s *scene) { s.current = lost }, fails: true},
		"the Guardrails' CRD is gone":                        {prepare: func(s *scene) { s.current = apierrors.NewNotFound(schema.GroupResource{Resource: "guardrails"}, "") }, fails: true},
		"the config isn't judged any more": {again: time.Second, prepare: func(s *scene) {
			changed := stored("wc", nil)
			changed.Generation++
			s.Observer.policies.Seen(t.Context(), changed)
		}},
		"another replica leads": {prepare: func(s *scene) { s.Pods.Leads = func() bool { return false } }, again: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, c.change, c.answers...)
			if c.prepare != nil {
				c.prepare(s)
			}
			result, err := s.reconcile(t)
			if !slices.Equal(s.asked, c.asked) {
				t.Errorf("asked for %q, want %q", s.asked, c.asked)
			}
			if n := s.counted(t); n != c.counted {
				t.Errorf("%d deletions are counted, want %d", n, c.counted)
			}
			if result.RequeueAfter != c.again || (err != nil) != c.fails {
				t.Errorf("it looks again after %s, error %v", result.RequeueAfter, err)
			}
		})
	}
}

// What became of a deletion that nobody answered only the pod can tell.
func TestAfterALostAnswerThePodIsReadFirst(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*testing.T, *scene)
		asked   []string
		counted int64
		fails   bool
	}{
		"it is there":          {func(*testing.T, *scene) {}, []string{"1", "1"}, 1, false},
		"it is there, changed": {func(t *testing.T, s *scene) { s.changes(t, func(*corev1.Pod) {}) }, []string{"1", "2"}, 1, false},
		"it is gone": {func(t *testing.T, s *scene) {
			if err := s.live.Delete(t.Context(), crashing("api-1")); err != nil {
				t.Fatal(err)
			}
		}, []string{"1"}, 1, false},
		"nobody answers again": {func(_ *testing.T, s *scene) { s.live.err = errors.New("timeout") }, []string{"1"}, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, nil, errors.New("connection lost"), nil)
			if _, err := s.reconcile(t); err == nil {
				t.Fatal("it doesn't fail")
			}
			c.prepare(t, s)
			if _, err := s.reconcile(t); (err != nil) != c.fails {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(s.asked, c.asked) || s.counted(t) != c.counted {
				t.Errorf("asked for %q, %d are counted; want %q, %d", s.asked, s.counted(t), c.asked, c.counted)
			}
		})
	}
}

// Whether the config is what was admitted may be a slow answer.
func TestWhatComesWhileTheConfigIsReadHoldsADeletion(t *testing.T) {
	for name, c := range map[string]struct {
		news  func(*world)
		asked []string
	}{
		"nothing":                           {func(*world) {}, []string{"1"}},
		"the window's end":                  {func(w *world) { w.clock.Step(5 * time.Minute) }, nil},
		"the pod stands behind the Service": {func(w *world) { w.slice(slice(true, "etcd-0", "api-1")) }, nil},
		"a hold on the pod": {func(w *world) {
			held := crashing("api-1")
			held.ResourceVersion, held.Annotations = "2", map[string]string{v1alpha1.AnnotationHoldUntil: noon.Add(time.Hour).Format(time.RFC3339)}
			w.pod(weeder.ReadPod(held))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, nil, nil)
			s.checking = func(context.Context) { c.news(s.world) }
			if _, err := s.reconcile(t); err != nil {
				t.Error(err)
			}
			if !slices.Equal(s.asked, c.asked) || s.counted(t) != int64(len(c.asked)) {
				t.Errorf("asked for %q, %d are counted; want %q", s.asked, s.counted(t), c.asked)
			}
		})
	}
}

// An answer that doesn't come must neither keep others waiting nor let a pod go after the window.
func TestADeletionIsAskedForNoLongerThanItsWindowLasts(t *testing.T) {
	for after, most := range map[time.Duration]time.Duration{0: 10 * time.Second, 297 * time.Second: 3 * time.Second} {
		s := newScene(t, nil, nil)
		s.shelf.answer = func() error { s.world.clock.Step(after); return nil }
		s.checking = func(ctx context.Context) {
			if until, bounded := ctx.Deadline(); !bounded || time.Until(until) > most {
				t.Errorf("%s after the recovery it is asked until %s (%t)", after, until, bounded)
			}
		}
		if _, err := s.reconcile(t); err != nil || len(s.asked) != 1 {
			t.Errorf("asked for %q, error %v", s.asked, err)
		}
	}
}

func TestAPodThatIsGoneIsNoTroubleAnyMore(t *testing.T) {
	s := newScene(t, nil, apierrors.NewForbidden(podResource, "api-1", errors.New("no")), apierrors.NewNotFound(podResource, "api-1"))
	if _, err := s.reconcile(t); err == nil || s.Errors.Get("wc-uid") == nil {
		t.Fatal("it is no trouble that the deletion is forbidden")
	}
	if _, err := s.reconcile(t); err != nil || s.Errors.Get("wc-uid") != nil {
		t.Errorf("error %v, trouble %v", err, s.Errors.Get("wc-uid"))
	}
}

// In a storm a deletion waits for the write that notes it, and for its turn.
func TestWhatForbidsADeletionWhileItIsNotedHoldsIt(t *testing.T) {
	rail := func(spec v1alpha1.GuardrailSpec) []*v1alpha1.Guardrail {
		return []*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "platform"}, Spec: spec}}
	}
	refuses := v1alpha1.GuardrailRule{Name: "none", Kinds: []string{kindWeederConfig}, Expression: "object.metadata.name != 'wc'"}
	for name, c := range map[string]struct {
		meanwhile []*v1alpha1.Guardrail
		news      func(*world)
		asked     []string
		after     time.Duration
	}{
		"nothing":                           {asked: []string{"1"}},
		"most of the window":                {asked: []string{"1"}, after: 19 * time.Second},
		"the window's end":                  {after: 20 * time.Second},
		"a limit that is loose":             {meanwhile: rail(v1alpha1.GuardrailSpec{Limits: &v1alpha1.GuardrailLimits{MaxPodDeletionsPerMinute: new(int32(100))}}), asked: []string{"1"}},
		"a pause":                           {meanwhile: rail(v1alpha1.GuardrailSpec{Paused: true})},
		"a freeze":                          {meanwhile: rail(v1alpha1.GuardrailSpec{Frozen: true})},
		"a rule that refuses":               {meanwhile: rail(v1alpha1.GuardrailSpec{Rules: []v1alpha1.GuardrailRule{refuses}})},
		"a limit that is spent":             {news: func(w *world) { w.weeder().SetLimits(limit.Limits{}) }},
		"the pod stands behind the Service": {news: func(w *world) { w.slice(slice(true, "etcd-0", "api-1")) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, func(spec *v1alpha1.WeederConfigSpec) { spec.WatchDuration = "20s" }, nil)
			s.shelf.answer = func() error {
				s.world.guard.SetGuardrails(c.meanwhile)
				s.world.clock.Step(c.after)
				if c.news != nil {
					c.news(s.world)
				}
				return nil
			}
			if _, err := s.reconcile(t); err != nil {
				t.Error(err)
			}
			if !slices.Equal(s.asked, c.asked) || s.counted(t) != int64(len(c.asked)) {
				t.Errorf("asked for %q, %d are counted; want %q", s.asked, s.counted(t), c.asked)
			}
		})
	}
}
