package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// kept is a Keeper of set a, whose kind describes it as accepted, over an API server in memory.
type kept struct {
	*Keeper[*v1alpha1.ConditionSet]
	t      *testing.T
	clock  *testingclock.FakeClock
	leads  bool
	skip   bool
	left   Remaining
	doubt  error
	gone   []string
	stored []bool
	events []string
}

func (k *kept) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	k.events = append(k.events, reason)
}

func keeping(t *testing.T, undoes bool) *kept {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	k := &kept{t: t, clock: testingclock.NewFakeClock(noon), leads: true}
	k.Keeper = &Keeper[*v1alpha1.ConditionSet]{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ConditionSet{}).WithObjects(stored("a")).Build(),
		Events: k, Clock: k.clock, Leads: func() bool { return k.leads },
		Steps: Steps[*v1alpha1.ConditionSet]{
			New:      func() *v1alpha1.ConditionSet { return &v1alpha1.ConditionSet{} },
			Describe: k.describe,
			Gone:     func(name types.NamespacedName) { k.gone = append(k.gone, name.Name) },
		},
	}
	if undoes {
		k.Remaining = func(context.Context, *v1alpha1.ConditionSet) (Remaining, error) { return k.left, k.doubt }
	}
	return k
}

func (k *kept) describe(_ context.Context, set *v1alpha1.ConditionSet, left Remaining) (is Description[*v1alpha1.ConditionSet], err error) {
	if k.skip {
		is.Skip = true
		return is, k.doubt
	}
	is.After = set.DeepCopy()
	is.After.Status.ObservedGeneration = set.Generation
	meta.SetStatusCondition(&is.After.Status.Conditions, metav1.Condition{Type: "Accepted", Status: "True", Reason: "Admitted", Message: fmt.Sprintf("%d left.", left.Targets)})
	is.RequeueAfter, is.Stored = time.Minute, func(written bool) { k.stored = append(k.stored, written) }
	return is, k.doubt
}

// looks are what came of so many looks, a minute apart.
func (k *kept) looks(times int) (last reconcile.Result, err error) {
	for range times {
		last, err = k.Reconcile(k.t.Context(), reconcile.Request{NamespacedName: key("a")})
		k.clock.Step(time.Minute)
	}
	return last, err
}

// is what is stored now: "" when it is gone.
func (k *kept) is() string {
	k.t.Helper()
	set := &v1alpha1.ConditionSet{}
	if err := k.Client.Get(k.t.Context(), key("a"), set); err != nil {
		return ""
	}
	says := []string{"stored"}
	if len(set.Finalizers) > 0 {
		says = append(says, "with a finalizer")
	}
	for _, c := range set.Status.Conditions {
		says = append(says, c.Message)
	}
	return strings.Join(says, ", ")
}

func (k *kept) remove() {
	k.t.Helper()
	if err := k.Client.Delete(k.t.Context(), &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		k.t.Fatal(err)
	}
}

func TestWhatIsKeptOfAPolicy(t *testing.T) {
	unread := errors.New("unread")
	for name, c := range map[string]struct {
		leavesNothing bool
		happens       func(*kept)
		is            string
		again         time.Duration
		err           error
	}{
		"its status and its finalizer":            {is: "stored, with a finalizer, 0 left.", again: time.Minute},
		"its status, where nothing outlives it":   {leavesNothing: true, is: "stored, 0 left.", again: time.Minute},
		"its status, while it did nothing":        {happens: func(k *kept) { k.KeepsFinalizer = func(context.Context, *v1alpha1.ConditionSet) bool { return false } }, is: "stored, 0 left.", again: time.Minute},
		"nothing, while another may lead":         {happens: func(k *kept) { k.leads = false }, is: "stored", again: time.Second},
		"no status, while nothing can be told":    {happens: func(k *kept) { k.skip = true }, is: "stored, with a finalizer", again: time.Second},
		"its status, though something isn't read": {happens: func(k *kept) { k.doubt = unread }, is: "stored, with a finalizer, 0 left.", again: time.Minute, err: unread},
		"nothing, when it is gone":                {happens: func(k *kept) { k.remove() }},
	} {
		t.Run(name, func(t *testing.T) {
			k := keeping(t, !c.leavesNothing)
			if c.happens != nil {
				c.happens(k)
			}
			last, err := k.looks(2)
			if got := k.is(); got != c.is || !errors.Is(err, c.err) || last.RequeueAfter != c.again {
				t.Errorf("it is %q, again after %s, %v", got, last.RequeueAfter, err)
			}
		})
	}
}

func TestAPolicyThatIsDeletedStaysUntilWhatItDidIsUndone(t *testing.T) {
	unread := errors.New("unread")
	for name, c := range map[string]struct {
		left  Remaining
		doubt error
		leads bool
		is    string
	}{
		"nothing is left":               {leads: true},
		"something is left":             {left: Remaining{Targets: 3, Sample: []string{"n"}}, leads: true, is: "stored, with a finalizer, 3 left."},
		"nobody can tell":               {left: Remaining{Unknown: true}, leads: true, is: "stored, with a finalizer, 0 left."},
		"what is left can't be read":    {doubt: unread, leads: true, is: "stored, with a finalizer, 0 left."},
		"another may lead, who may act": {is: "stored, with a finalizer, 0 left."},
	} {
		t.Run(name, func(t *testing.T) {
			k := keeping(t, true)
			if _, err := k.looks(1); err != nil {
				t.Fatal(err)
			}
			k.remove()
			k.left, k.doubt, k.leads = c.left, c.doubt, c.leads
			last, err := k.looks(2)
			if k.is() != c.is || !errors.Is(err, c.doubt) {
				t.Errorf("it is %q, %v", k.is(), err)
			}
			if due := last.RequeueAfter > 0; due != (c.is != "" && c.doubt == nil) {
				t.Errorf("that it is due again is %t; what isn't known is paced by its error alone", due)
			}
			if gone := len(k.gone) > 0; gone != (c.is == "") {
				t.Errorf("it is forgotten: %t", gone)
			}
		})
	}
}

func TestAStatusIsWrittenWhenItChanged(t *testing.T) {
	k := keeping(t, true)
	if _, err := k.looks(3); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(k.stored, k.events); got != "[true false false] [Admitted]" {
		t.Errorf("writes and Events: %s", got)
	}
}

func TestAPolicyThatIsGoneLosesItsTurn(t *testing.T) {
	k := keeping(t, true)
	k.throttle.Wait(key("a"), noon, false)
	k.remove()
	if _, err := k.looks(1); err != nil {
		t.Fatal(err)
	}
	if wait := k.throttle.Wait(key("a"), noon, false); wait != 0 {
		t.Errorf("one that is made anew waits for %s", wait)
	}
}

func TestAReplicaThatMayNotLeadWritesNothing(t *testing.T) {
	k := keeping(t, true)
	k.leads = false
	written := &v1alpha1.ConditionSet{}
	if _, err := k.looks(2); err != nil {
		t.Fatal(err)
	}
	if err := k.Client.Get(t.Context(), client.ObjectKey{Name: "a"}, written); err != nil || written.ResourceVersion != "999" {
		t.Errorf("it is at %s, %v", written.ResourceVersion, err)
	}
}
