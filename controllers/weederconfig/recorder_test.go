package weederconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// shelf is an API server that keeps the statuses it is sent, and answers when it is let.
type shelf struct {
	client.Client
	answer func() error

	mu      sync.Mutex
	written []v1alpha1.WeederConfigStatus
	uids    []types.UID
	// versions are the states of the config that the writes were to replace, refused ones among them.
	versions []string
}

func newShelf(answer func() error) *shelf {
	s := &shelf{answer: answer}
	s.Client = interceptor.NewClient(nothing{}, interceptor.Funcs{
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, object client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			s.mu.Lock()
			s.versions = append(s.versions, object.GetResourceVersion())
			s.mu.Unlock()
			if err := s.answer(); err != nil {
				return err
			}
			data, err := patch.Data(object)
			if err != nil {
				return err
			}
			var sent struct {
				Metadata struct {
					UID types.UID `json:"uid"`
				} `json:"metadata"`
				Status v1alpha1.WeederConfigStatus `json:"status"`
			}
			if err := json.Unmarshal(data, &sent); err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.written, s.uids = append(s.written, sent.Status), append(s.uids, sent.Metadata.UID)
			return nil
		},
	})
	return s
}

// has says whether the status that was written last tells of a pod's deletion.
func (s *shelf) has(pod string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.written[len(s.written)-1].RecentDeletions {
		if d.Pod == pod {
			return true
		}
	}
	return false
}

// awaitWaiting waits until so many deletions of a config wait for its next write.
func awaitWaiting(t *testing.T, recorder *DeletionRecorder, n int) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		shared, _ := recorder.batchers.Load(types.NamespacedName{Namespace: ownNamespace, Name: "wc"})
		b := shared.(*batcher)
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.next != nil && b.next.size == n, nil
	})
	if err != nil {
		t.Fatalf("%d deletions don't wait: %v", n, err)
	}
}

func TestDeletionsThatWaitForAWriteGoIntoTheNextTogether(t *testing.T) {
	w := newWorld(t)
	w.observe(t.Context(), stored("wc", nil))
	w.recover()
	asked, release := make(chan struct{}, 20), make(chan struct{})
	s := newShelf(func() error { asked <- struct{}{}; <-release; return nil })
	recorder := &DeletionRecorder{Client: s, Observer: w.Observer}
	var entering sync.WaitGroup
	enter := func(pod string) {
		d := w.decided(t, crashing(pod)).Delete
		entering.Go(func() {
			leave, err := recorder.Enter(t.Context(), d)
			if err != nil {
				t.Error(err)
				return
			}
			defer leave()
			if !s.has(pod) {
				t.Errorf("%s may be deleted before it is written down", pod)
			}
		})
	}
	enter("api-first")
	<-asked
	for i := range 10 {
		enter(fmt.Sprintf("api-%d", i))
	}
	awaitWaiting(t, recorder, 10)
	close(release)
	entering.Wait()
	if len(s.written) != 2 {
		t.Errorf("%d writes; the first, and one for all that came meanwhile wanted", len(s.written))
	}
	if last := s.written[len(s.written)-1]; last.Deleted != 11 || len(last.Windows) != 1 || last.Windows[0].Deleted != 11 {
		t.Errorf("the last one tells of %d deletions, windows %+v", last.Deleted, last.Windows)
	}
	if s.uids[0] != "wc-uid" {
		t.Errorf("it was written to whoever has the name now, not to %s", s.uids[0])
	}
}

func TestWhatCouldNotBeWrittenDownMayNotBeDone(t *testing.T) {
	w := newWorld(t)
	w.observe(t.Context(), stored("wc", nil))
	w.recover()
	fails := errors.New("timeout")
	answer := fails
	s := newShelf(func() error { return answer })
	recorder := &DeletionRecorder{Client: s, Observer: w.Observer}
	d := w.decided(t, crashing("api-1")).Delete
	if _, err := recorder.Enter(t.Context(), d); !errors.Is(err, fails) {
		t.Fatalf("error %v", err)
	}
	answer = nil
	if _, err := recorder.Enter(t.Context(), d); err != nil || !s.has("api-1") {
		t.Errorf("the next try: %v", err)
	}
}

func TestNothingIsDoneForAConfigThatIsGone(t *testing.T) {
	w := newWorld(t)
	wc := stored("wc", nil)
	w.observe(t.Context(), wc)
	w.recover()
	d := w.decided(t, crashing("api-1")).Delete
	w.policies.Gone(wc)
	s := newShelf(func() error { return nil })
	recorder := &DeletionRecorder{Client: s, Observer: w.Observer}
	recorder.forget(d.Key)
	if _, err := recorder.Enter(t.Context(), d); err == nil || len(s.written) != 0 {
		t.Errorf("error %v, %d writes", err, len(s.written))
	}
	noBatcherIsKept(t, recorder)
}

func TestConfigsDoNotWaitForEachOther(t *testing.T) {
	w := newWorld(t)
	asked, release := make(chan struct{}, 2), make(chan struct{})
	var writes atomic.Int32
	s := newShelf(func() error {
		if writes.Add(1) == 1 {
			asked <- struct{}{}
			<-release
		}
		return nil
	})
	recorder := &DeletionRecorder{Client: s, Observer: w.Observer}
	names := []string{"a", "b"}
	for _, name := range names {
		w.observe(t.Context(), stored(name, func(spec *v1alpha1.WeederConfigSpec) {
			spec.ServicesAndDependantSelectors["etcd"].PodSelectors[0].MatchLabels["app"] = name
		}))
	}
	w.recover()
	deletions := map[string]*weeder.Deletion{}
	for _, name := range names {
		pod := crashing(name)
		pod.Labels["app"] = name
		deletions[name] = w.decided(t, pod).Delete
	}
	done := make(chan error, 1)
	go func() { _, err := recorder.Enter(t.Context(), deletions["a"]); done <- err }()
	<-asked
	if _, err := recorder.Enter(t.Context(), deletions["b"]); err != nil { // would never return
		t.Error(err)
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWhatEarlierLeadersDidIsReadBeforeTheFirstDeletion(t *testing.T) {
	wc := stored("wc", func(spec *v1alpha1.WeederConfigSpec) { spec.MaxDeletionsPerWatch = ptr.To[int32](3) })
	opened := metav1.NewTime(noon)
	spent := func(wc *v1alpha1.WeederConfig) {
		wc.ResourceVersion = ""
		wc.Status.Windows = []v1alpha1.RecoveryWindow{{
			Recovery: v1alpha1.Recovery{Namespace: ownNamespace, Service: "etcd", Time: opened}, Until: metav1.NewTime(noon.Add(5 * time.Minute)), Deleted: 3,
		}}
	}
	other := func(wc *v1alpha1.WeederConfig) { // which nobody has judged
		wc.Name, wc.UID = "other", "other-uid"
		spent(wc)
	}
	fresh := func(wc *v1alpha1.WeederConfig) { wc.ResourceVersion = "" }
	for name, c := range map[string]struct {
		stored func(*v1alpha1.WeederConfig)
		other  func(*v1alpha1.WeederConfig)
		leads  bool
		asked  int
		held   weeder.Reason
	}{
		"nobody did anything":                                   {fresh, nil, true, 1, ""},
		"they spent the budget":                                 {spent, nil, true, 0, "MaxDeletionsPerWatch"},
		"another may lead meanwhile":                            {fresh, nil, false, 0, "FactsInDoubt"},
		"they did something for a config that isn't judged yet": {fresh, other, true, 0, "FactsInDoubt"},
		"they did nothing for that":                             {fresh, func(wc *v1alpha1.WeederConfig) { wc.Name, wc.UID, wc.ResourceVersion = "other", "other-uid", "" }, true, 1, ""},
		"that can't be read": {fresh, func(wc *v1alpha1.WeederConfig) {
			other(wc)
			wc.Spec.WatchDuration = "soon"
		}, true, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := entrant(t, wc.DeepCopy(), nil)
			s.Recorder.Leads = func() bool { return c.leads }
			for _, change := range []func(*v1alpha1.WeederConfig){c.stored, c.other} {
				if change == nil {
					continue
				}
				there := wc.DeepCopy()
				change(there)
				if err := s.live.Create(t.Context(), there); err != nil {
					t.Fatal(err)
				}
				if there.Spec.WatchDuration == "soon" {
					s.world.policies.Seen(t.Context(), there)
					s.world.policies.Judge(t.Context(), client.ObjectKeyFromObject(there))
				}
			}
			if _, err := s.reconcile(t); err != nil {
				t.Fatal(err)
			}
			sum, _ := s.world.weeder().Summary("wc-uid", s.world.Facts.Moment())
			if _, held := sum.Held[c.held]; len(s.asked) != c.asked || c.held != "" && !held {
				t.Errorf("%d deletions, held %v", len(s.asked), sum.Held)
			}
		})
	}
}

func TestAWriteReplacesOnlyWhatWasKnownWhileThisReplicaLed(t *testing.T) {
	changed := apierrors.NewConflict(schema.GroupResource{Resource: "weederconfigs"}, "wc", errors.New("changed"))
	for name, c := range map[string]struct {
		conflicts int
		led       int // so many times it is asked
		versions  string
		fails     error
	}{
		"nobody else wrote":       {0, 9, "1", nil},
		"somebody did":            {1, 9, "1 7", nil},
		"they write all the time": {9, 9, "1 7 7 7", nil},
		"another leads by now":    {1, 1, "1", errNotLeading},
		"another led before":      {0, 0, "", errNotLeading},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.observe(t.Context(), stored("wc", nil))
			w.recover()
			d := w.decided(t, crashing("api-1")).Delete
			newer := stored("wc", nil)
			newer.ResourceVersion = "7"
			conflicts, led := c.conflicts, c.led
			s := newShelf(func() error {
				if conflicts--; conflicts >= 0 {
					return changed
				}
				return nil
			})
			recorder := &DeletionRecorder{Client: s, Observer: w.Observer, Live: newLive(newer), Leads: func() bool { led--; return led >= 0 }}
			_, err := recorder.Enter(t.Context(), d)
			if got := strings.Join(s.versions, " "); got != c.versions || (err != nil) != (len(s.written) == 0) || c.fails != nil && !errors.Is(err, c.fails) {
				t.Errorf("replaced %q, %v after %d writes", got, err, len(s.written))
			}
		})
	}
}

func TestAWriteBeginsWithTheNewestStateThatIsKnown(t *testing.T) {
	w := newWorld(t)
	w.observe(t.Context(), stored("wc", nil))
	w.recover()
	s := newShelf(func() error { return nil })
	recorder := &DeletionRecorder{Client: s, Observer: w.Observer}
	for i, version := range []string{"1", "12", "9"} { // the cache may be behind our own writes
		wc := stored("wc", nil)
		wc.ResourceVersion = version
		w.policies.Seen(t.Context(), wc)
		leave, err := recorder.Enter(t.Context(), w.decided(t, crashing(fmt.Sprintf("api-%d", i))).Delete)
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	if got := strings.Join(s.versions, " "); got != "1 12 12" {
		t.Errorf("replaced %q", got)
	}
	recorder.forget(client.ObjectKeyFromObject(stored("wc", nil)))
	noBatcherIsKept(t, recorder)
}

func noBatcherIsKept(t *testing.T, recorder *DeletionRecorder) {
	t.Helper()
	recorder.batchers.Range(func(config, _ any) bool {
		t.Errorf("a batcher of %s is kept", config)
		return true
	})
}
