package healthcheckregistration

import (
	"context"
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// live is an API server's answer to a list of targets, and how often it was asked for.
type live struct {
	client.Reader

	record string
	going  bool
	gone   error
	lists  int
}

func (l *live) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if l.lists++; l.gone != nil {
		return l.gone
	}
	about := metav1.PartialObjectMetadata{}
	about.Namespace, about.Name, about.Annotations = "n", "a", recorded(l.record)
	if l.going {
		about.DeletionTimestamp = &metav1.Time{Time: noon}
	}
	list.(*metav1.PartialObjectMetadataList).Items = []metav1.PartialObjectMetadata{about}
	return nil
}

func recorded(types string) map[string]string {
	return map[string]string{v1alpha1.AnnotationOwnedConditions: types}
}

func TestWhatIsLeftOfADeletedRegistration(t *testing.T) {
	for name, c := range map[string]struct {
		seen, stored string
		decided      bool
		going        bool
		want, lists  int
	}{
		"nothing was seen, and nothing is stored":       {lists: 1},
		"what was seen needs no list":                   {seen: "Mine", stored: "Mine", want: 2},
		"what is stored counts though it wasn't seen":   {stored: "Mine", want: 1, lists: 1},
		"what another registration decides isn't left":  {seen: "Mine", stored: "Mine", decided: true, lists: 1},
		"what is being deleted itself isn't left":       {seen: "Mine", stored: "Mine", going: true, lists: 1},
		"what another doesn't decide is left beside it": {seen: "Mine,Other", stored: "Mine,Other", decided: true, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			l, api := leads(t), &live{record: c.stored, going: c.going}
			l.cache.record, l.cache.going = c.seen, c.going
			l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.DeletionTimestamp = &metav1.Time{Time: noon} })
			gone, _ := l.policies.Get(client.ObjectKeyFromObject(l.hcr))
			if c.decided {
				l.see(func(hcr *v1alpha1.HealthCheckRegistration) { *hcr = *suspended("other", "v1alpha1", "Mine") })
			}
			k := &statusKeeper{Live: api, Observer: l.Observer}
			if n, first, err := k.findUnreleased(t.Context(), gone); n != c.want || err != nil || api.lists != c.lists || (n > 0) != (first == "n/a") {
				t.Errorf("%d are left, such as %s, after %d lists, %v; want %d after %d", n, first, api.lists, err, c.want, c.lists)
			}
		})
	}
}

func TestADeletedRegistrationTellsThatItsTargetsMayNotBeRead(t *testing.T) {
	l := leads(t)
	l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.DeletionTimestamp = &metav1.Time{Time: noon} })
	api := &live{gone: apierrors.NewForbidden(schema.GroupResource{Resource: "workers"}, "", errors.New("no"))}
	k := &statusKeeper{Live: api, Observer: l.Observer}
	says := func() string {
		left, _ := k.unreleased(t.Context(), l.hcr)
		after := statusOf(l.hcr, statusInput{writeErrors: k.policies.Errors.Get(l.hcr.UID), unreleased: left})
		stalled := meta.FindStatusCondition(after.Conditions, v1alpha1.ConditionStalled)
		if stalled == nil {
			return ""
		}
		return stalled.Reason + ": " + stalled.Message
	}
	if got, want := says(), "Forbidden: list each Worker to see whose conditions are left: workers is forbidden: no"; got != want {
		t.Errorf("it is stalled: %s; want %s", got, want)
	}
	api.gone = nil
	if got := says(); got != "" {
		t.Errorf("they may be read again, and it is stalled: %s", got)
	}
}

func TestARegistrationKeepsItsFinalizerOnceItsTargetsCanBeRead(t *testing.T) {
	l := leads(t)
	k := &statusKeeper{Observer: l.Observer}
	if !k.readsTargets(t.Context(), l.hcr) {
		t.Error("its targets are read, and it has no finalizer")
	}
	other := l.hcr.DeepCopy()
	other.Spec.Target.Kind, l.cache.Error = "Other", errors.New("forbidden")
	if k.readsTargets(t.Context(), other) {
		t.Error("its targets can't be read, and it has a finalizer")
	}
}

func TestOfAKindThatIsGoneNothingIsLeft(t *testing.T) {
	no := errors.New("no")
	for name, c := range map[string]struct{ is, want error }{
		"its definition was deleted":        {apierrors.NewGenericServerResponse(http.StatusNotFound, "list", schema.GroupResource{Resource: "workers"}, "", "404 page not found", 0, true), nil},
		"it never had one":                  {&meta.NoKindMatchError{}, nil},
		"it may not be listed":              {apierrors.NewForbidden(schema.GroupResource{Resource: "workers"}, "", no), no},
		"the API server doesn't answer now": {apierrors.NewServiceUnavailable("no"), no},
	} {
		t.Run(name, func(t *testing.T) {
			l := leads(t)
			l.see(func(hcr *v1alpha1.HealthCheckRegistration) { hcr.DeletionTimestamp = &metav1.Time{Time: noon} })
			gone, _ := l.policies.Get(client.ObjectKeyFromObject(l.hcr))
			k := &statusKeeper{Live: &live{gone: c.is}, Observer: l.Observer}
			if n, _, err := k.findUnreleased(t.Context(), gone); n != 0 || (err == nil) != (c.want == nil) {
				t.Errorf("%d are left, %v", n, err)
			}
		})
	}
}
