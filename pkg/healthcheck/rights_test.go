package healthcheck

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// guardedSeed reads from a cache with one Deployment, with rights that the test turns.
type guardedSeed struct {
	rightsChecked
	// may says what the program may watch and list, by "namespace/name"; "/" is everything.
	may map[string]bool
	// without this verb.
	without string
	trouble error // why it can't be asked
	clock   *testingclock.FakePassiveClock
	asked   int
}

func newGuardedSeed() *guardedSeed {
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(deployment, meta.RESTScopeNamespace)
	s := &guardedSeed{may: map[string]bool{"/": true}, clock: testingclock.NewFakePassiveClock(dawn)}
	d := &appsv1.Deployment{}
	d.Namespace, d.Name = "a", "mcm"
	stored := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(d).Build()
	s.rightsChecked = rightsChecked{stored, &watchRights{kinds: kinds, clock: s.clock, ask: func(_ context.Context, what authorizationv1.ResourceAttributes) (authorizationv1.SubjectAccessReviewStatus, error) {
		s.asked++
		if what.Verb != "watch" && what.Verb != "list" || what.Group != "apps" || what.Resource != "deployments" {
			return authorizationv1.SubjectAccessReviewStatus{}, errors.New("another kind")
		}
		return authorizationv1.SubjectAccessReviewStatus{Allowed: s.may[what.Namespace+"/"+what.Name] && what.Verb != s.without}, s.trouble
	}}}
	return s
}

func (s *guardedSeed) get() error {
	return s.Get(context.Background(), client.ObjectKey{Namespace: "a", Name: "mcm"}, &appsv1.Deployment{})
}

func (s *guardedSeed) list(namespace string) error {
	return s.List(context.Background(), &appsv1.DeploymentList{}, client.InNamespace(namespace))
}

// step lets time pass.
func (s *guardedSeed) step(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func refusedFor(err error, want string) bool {
	return err != nil && strings.Contains(err.Error(), want)
}

func TestWhatCantBeWatchedAnyMoreIsntBelieved(t *testing.T) {
	s := newGuardedSeed()
	if err := errors.Join(s.get(), s.list("a"), s.list("")); err != nil || s.asked != 2 {
		t.Fatalf("with all rights: %v, after %d questions", err, s.asked)
	}
	s.may = map[string]bool{"a/mcm": true, "a/": true} // of less, there may be rights
	s.step(rightsTTL)
	for _, err := range []error{s.get(), s.list("a"), s.list("")} {
		if !refusedFor(err, "there is no right to watch deployments.apps") {
			t.Errorf("without the right: %v", err)
		}
	}
	s.may["/"] = true
	for range 7 {
		s.step(rightsTTL)
		if err := s.get(); !refusedFor(err, "there was no right to watch deployments.apps") {
			t.Errorf("while it may not be read anew: %v", err)
		}
	}
	s.step(rereadTime - 6*rightsTTL)
	if err := s.get(); err != nil {
		t.Errorf("once it is read anew: %v", err)
	}
}

func TestEitherRightIsNeeded(t *testing.T) {
	for _, verb := range []string{"watch", "list"} {
		s := newGuardedSeed()
		if err := s.get(); err != nil {
			t.Errorf("with all rights: %v", err)
		}
		s.without = verb
		s.step(rightsTTL)
		if err := s.get(); !refusedFor(err, "there is no right to "+verb+" deployments.apps") {
			t.Errorf("without %s: %v", verb, err)
		}
	}
}

func TestACacheOfSomeNamespacesNeedsNoRightToOthers(t *testing.T) {
	s := newGuardedSeed()
	s.may = map[string]bool{"a/mcm": true}
	if err := s.get(); err != nil {
		t.Errorf("an object: %v", err)
	}
	if err := s.list("a"); !refusedFor(err, "there is no right to watch") {
		t.Errorf("a list of more than may be watched: %v", err)
	}
	s.may = map[string]bool{}
	s.step(rightsTTL)
	if err := s.get(); !refusedFor(err, "there is no right to watch") {
		t.Errorf("without the right: %v", err)
	}
}

func TestARightThatIsNewIsBelievedAtOnce(t *testing.T) {
	s := newGuardedSeed()
	s.may = map[string]bool{}
	if err := s.get(); !refusedFor(err, "there is no right to watch") {
		t.Errorf("without the right: %v", err)
	}
	s.may["/"] = true
	s.step(rightsTTL)
	if err := s.get(); err != nil {
		t.Errorf("nothing was read before, so nothing is old: %v", err)
	}
}

func TestRightsThatCantBeAskedForAreAsBefore(t *testing.T) {
	s := newGuardedSeed()
	s.trouble = errors.New("no answer")
	if err := s.get(); err != nil {
		t.Errorf("before anything is known: %v", err)
	}
	s.trouble, s.may["/"] = nil, false
	s.step(rightsTTL)
	if err := s.get(); err == nil {
		t.Error("the right is there")
	}
	s.trouble, s.may["/"] = errors.New("no answer"), true
	s.step(2 * forgetRightsAfter)
	if err := s.get(); err == nil {
		t.Error("the right came back, without an answer")
	}
}
