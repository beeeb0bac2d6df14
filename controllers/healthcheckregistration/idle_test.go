package healthcheckregistration

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/policy"
)

// unreadable is an API server that lets nobody read definitions, and counts who asks.
type unreadable struct {
	client.Reader

	asked int
}

func (u *unreadable) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	u.asked++
	return apierrors.NewForbidden(schema.GroupResource{Resource: "customresourcedefinitions"}, key.Name, errors.New("no"))
}

// looks gives the waits after looks at an object of a kind whose definition can't be read, and how often that was asked for.
func looks(t *testing.T, o *Observer, object *unstructured.Unstructured, times int) (waits map[time.Duration]bool, asked int) {
	t.Helper()
	mapper, api := meta.NewDefaultRESTMapper(nil), &unreadable{}
	mapper.Add(worker, meta.RESTScopeNamespace)
	waits = map[time.Duration]bool{}
	for range times {
		l := lookedAt(t, o, object)
		l.r.Layouts = checking.NewLayouts(api, mapper, testingclock.NewFakePassiveClock(noon))
		l.r.Errors = &policy.ErrorTracker{}
		result, err := l.reconcile(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waits[result.RequeueAfter] = true
	}
	return waits, api.asked
}

func TestWhatNobodySelectsAsksForNothing(t *testing.T) {
	bare := claimed()
	bare.SetAnnotations(nil)
	waits, asked := looks(t, knowing(t), bare, 2)
	if asked != 0 || len(waits) != 1 || !waits[0] {
		t.Errorf("definitions were asked for %d times, and it waits %v", asked, waits)
	}
	if _, asked := looks(t, knowing(t), claimed("Mine"), 2); asked != 2 {
		t.Errorf("for what is to be taken off, definitions were asked for %d times", asked)
	}
}

func TestLooksAtAKindThatCantBeReadAreSpread(t *testing.T) {
	waits, asked := looks(t, twoDecide(t), claimed("Bad", "Good"), 20)
	if asked != 20 || len(waits) < 10 {
		t.Errorf("definitions were asked for %d times, and it waits %v", asked, waits)
	}
	for wait := range waits {
		if wait < 10*time.Second || wait > 15*time.Second {
			t.Errorf("it waits %s", wait)
		}
	}
}
