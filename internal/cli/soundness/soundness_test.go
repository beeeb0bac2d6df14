package soundness

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

var now = time.Date(2026, 11, 25, 3, 0, 0, 0, time.UTC)

func TestALeaseShowsALeaderOnlyAsAManagerWritesIt(t *testing.T) {
	for name, c := range map[string]struct {
		holder   string
		lasts    *int32
		renewed  time.Duration
		doubtful string
	}{
		"just renewed":                      {holder: "a", lasts: ptr.To[int32](15), renewed: -time.Second},
		"by a clock that is a little ahead": {holder: "a", lasts: ptr.To[int32](15), renewed: 5 * time.Second},
		"no longer renewed":                 {holder: "a", lasts: ptr.To[int32](15), renewed: -15 * time.Second, doubtful: "no manager leads"},
		"given up":                          {lasts: ptr.To[int32](15), renewed: -time.Second, doubtful: "no manager leads"},
		"of an hour, just renewed":          {holder: "a", lasts: ptr.To[int32](3600), renewed: -time.Second, doubtful: "lasts 3600 seconds, and a manager writes 15"},
		"of an hour, renewed some time ago": {holder: "a", lasts: ptr.To[int32](3600), renewed: -time.Minute, doubtful: "lasts 3600 seconds, and a manager writes 15"},
		"of no duration":                    {holder: "a", renewed: -time.Second, doubtful: "lasts 0 seconds, and a manager writes 15"},
		"renewed in an hour":                {holder: "a", lasts: ptr.To[int32](15), renewed: time.Hour, doubtful: "was renewed in the future, at 2026-11-25T04:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			checker := Checker{Clock: clocktesting.NewFakePassiveClock(now), Namespace: "autohealer-system", Manager: "autohealer-manager"}
			got := checker.doubt(coordinationv1.LeaseSpec{HolderIdentity: &c.holder, LeaseDurationSeconds: c.lasts, RenewTime: &metav1.MicroTime{Time: now.Add(c.renewed)}})
			if (got != nil) != (c.doubtful != "") || got != nil && !strings.Contains(got.Message, c.doubtful) {
				t.Errorf("got %v, want %q", got, c.doubtful)
			}
		})
	}
}

func TestAnAPIServerThatIsTooOldIsToldSo(t *testing.T) {
	for running, want := range map[string]string{
		"v1.32.13": "Kubernetes v1.32.13 is older than 1.33", "v1.29.6-gke.1254000": "Kubernetes v1.29.6-gke.1254000 is older than 1.33",
		"v1.33.0": "", "v1.33.4+k3s1": "", "v1.40.0-alpha.1": "",
	} {
		server := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{}, FakedServerVersion: &apiversion.Info{GitVersion: running}}
		got, err := (&Checker{Server: server}).kubernetes(t.Context())
		if err != nil || (len(got) > 0) != (want != "") || len(got) > 0 && !strings.HasPrefix(got[0].Message, want) {
			t.Errorf("%s: %v, %v", running, got, err)
		}
	}
}

func TestADeploymentIsFinishedWhenAllReplicasAreNewAndReady(t *testing.T) {
	done := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2}
	for name, c := range map[string]struct {
		change func(*appsv1.Deployment)
		want   string
	}{
		"finished":                      {func(*appsv1.Deployment) {}, ""},
		"changed a moment ago":          {func(d *appsv1.Deployment) { d.Generation = 3 }, "the manager's Deployment was changed, and the deployment controller hasn't seen that"},
		"only the old replicas ready":   {func(d *appsv1.Deployment) { d.Status.Replicas, d.Status.UpdatedReplicas = 3, 1 }, "1 of 2 replicas of the manager are of the Deployment's present version"},
		"an old replica beside the new": {func(d *appsv1.Deployment) { d.Status.Replicas = 3 }, "1 replicas of the manager are there still that are to go"},
		"one ready":                     {func(d *appsv1.Deployment) { d.Status.ReadyReplicas = 1 }, "1 of 2 replicas of the manager are ready"},
		"none asked for": {func(d *appsv1.Deployment) {
			d.Spec.Replicas, d.Status = ptr.To[int32](0), appsv1.DeploymentStatus{ObservedGeneration: 2}
		}, "the manager's Deployment asks for no replicas"},
		"going": {func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{Time: now} }, "the manager's Deployment is being deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2)}, Status: done}
			c.change(d)
			if got := unfinished(d); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestACABundleMustHoldNow(t *testing.T) {
	const day = 24 * time.Hour
	year, tomorrow, ended := authority(t, now.Add(-day), now.Add(365*day)), authority(t, now.Add(day), now.Add(365*day)), authority(t, now.Add(-2*day), now.Add(-day))
	ending := authority(t, now.Add(-day), now.Add(day))
	for name, c := range map[string]struct{ bundle, want string }{
		"holds":                            {year, ""},
		"holds beside one that has ended":  {ended + year, ""},
		"holds beside one that will":       {year + tomorrow, ""},
		"begins tomorrow":                  {tomorrow, "isn't valid before 2026-11-26T03:00:00Z"},
		"has ended, and the next is early": {ended + tomorrow, "expired 2026-11-24T03:00:00Z"},
		"ends tomorrow":                    {ending, "expires 2026-11-26T03:00:00Z, and no other CA follows"},
		"ends tomorrow, and one follows":   {ending + year, ""},
		"empty":                            {"", "is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := badBundle([]byte(c.bundle), now); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func authority(t *testing.T, from, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// Of a kind that is missing nothing was seen and nothing judged.
func TestAMissingKindIsNeverFine(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := coordinationv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "autohealer-system", Name: "autohealer-manager"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("a"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: now},
	}}
	missing := func(o runtime.Object) error {
		if kind := strings.TrimSuffix(o.GetObjectKind().GroupVersionKind().Kind, "List"); kind == "OutlierPolicy" {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: kind}}
		}
		return nil
	}
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(lease).Build(), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := missing(list); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
			return missing(o)
		},
	})
	checker := Checker{Client: c, Clock: clocktesting.NewFakePassiveClock(now), Namespace: "autohealer-system", Manager: "autohealer-manager"}
	for says, check := range map[string]func(context.Context) ([]Finding, error){
		"no OutlierPolicy can be seen: its kind is missing\n":                                                               checker.caches,
		"no OutlierPolicy can be judged: no matches for kind \"OutlierPolicy\" in group \"autohealer.resourcestack.com\"\n": checker.verdicts,
	} {
		found, err := check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(messages(found), says) {
			t.Errorf("got %q, want %q", messages(found), says)
		}
	}
}

func TestATaintThatNobodyTakesOffIsFound(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	node := func(name, key, record string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"autohealer.resourcestack.com/owned-taints": record}}}
		n.Spec.Taints = []corev1.Taint{{Key: key, Effect: "NoSchedule"}}
		return n
	}
	claim := func(set, name, key string) string {
		return `{"taints":[{"key":"` + key + `","effect":"NoSchedule","set":"` + set + `","name":"` + name + `","generation":1,"since":"2026-11-25T02:00:00Z"}]}`
	}
	set := &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: "disk", UID: "u2"}, Spec: v1alpha1.ConditionSetSpec{
		Type: "Disk", Effect: "NoSchedule", TaintKey: "example.com/disk", Conditions: map[string]v1alpha1.MemberCondition{"DiskPressure": {Status: v1alpha1.RequiredStatus{JSON: "true"}}},
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(set,
		node("of-the-set", "example.com/disk", claim("u2", "disk", "example.com/disk")),
		node("to-be-taken-over", "example.com/disk", claim("u1", "disk", "example.com/disk")),
		node("to-be-undone", "example.com/disk", claim("u0", "former", "example.com/disk")),
		node("orphaned", "example.com/kernel", claim("u0", "kernel", "example.com/kernel")),
		node("broken", "example.com/disk", "{"),
	).Build()
	found, err := (&Checker{Client: c, Clock: clocktesting.NewFakePassiveClock(now)}).records(t.Context())
	want := []Finding{
		{"taint example.com/kernel:NoSchedule on node/orphaned is of ConditionSet kernel, which doesn't exist, and no other declares its key, so that the manager leaves it",
			"Take it off: kubectl autohealer undo node/orphaned; or store the ConditionSet again, and it takes the taint over."},
		{"the annotation autohealer.resourcestack.com/owned-taints of node/broken can't be read, so that nothing is done and nothing undone there",
			"Look at it, then repair the annotation; or remove the taints, those of them that ConditionSets set, and then the annotation: " +
				"kubectl taint node broken example.com/disk:NoSchedule-; kubectl annotate node broken autohealer.resourcestack.com/owned-taints-"},
	}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("error %v, found\n%q, want\n%q", err, found, want)
	}
}

func messages(found []Finding) string {
	var text strings.Builder
	for _, f := range found {
		text.WriteString(f.Message + "\n")
	}
	return text.String()
}

// A change that isn't seen may be forged to be of tomorrow, too.
func TestAPolicyThatWasChangedInTheFutureIsUnseen(t *testing.T) {
	checker := Checker{Clock: clocktesting.NewFakePassiveClock(now)}
	for at, unseen := range map[time.Duration]bool{-time.Hour: true, -5 * time.Second: false, time.Second: false, time.Hour: true} {
		policy := &object{Object: map[string]any{}}
		policy.SetGeneration(2)
		policy.SetCreationTimestamp(metav1.NewTime(now.Add(at)))
		if got := checker.unseen(policy); (got != "") != unseen {
			t.Errorf("changed at %s: got %q", at, got)
		}
	}
}

func TestWhatFollowsNamesTheFirstCause(t *testing.T) {
	r := Report{Components: []Component{
		{Name: "kinds", State: Unknown}, {Name: "rights", State: Unsound}, {Name: "webhook", State: Sound}, {Name: "manager", State: Unsound, First: "rights"},
	}}
	for want, needs := range map[string][]string{"rights": {"manager"}, "": {"kinds", "webhook"}} {
		if got := r.cause(needs); got != want {
			t.Errorf("of %v: got %q, want %q", needs, got, want)
		}
	}
}

// All that are installed for somebody to bind, or that are part of Kubernetes' own.
func TestAllRolesButTheManagersAreComparedByName(t *testing.T) {
	known := runtime.NewScheme()
	if err := rbacv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	found, err := (&Checker{Client: fake.NewClientBuilder().WithScheme(known).Build()}).roles(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	installed, err := rolesIn("rbac/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range installed {
		compared := slices.ContainsFunc(found, func(f Finding) bool { return f.Message == "clusterrole/"+role.Name+" is missing" })
		if managers := role.Kind != "ClusterRole" || strings.HasPrefix(role.Name, "autohealer-manager") || role.AggregationRule != nil; compared == managers {
			t.Errorf("%s %s: compared %v", role.Kind, role.Name, compared)
		}
	}
}

// Helm has numbers stored as floats.
func TestANumberIsTheSameWhateverItsType(t *testing.T) {
	wanted := map[string]any{"maximum": int64(2147483647)}
	for stored, want := range map[any]string{float64(2147483647): "", int64(2147483647): "", int64(2147483646): ".maximum", "2147483647": ".maximum", nil: ".maximum"} {
		if at, _ := differs("", wanted, map[string]any{"maximum": stored}); at != want {
			t.Errorf("%v (%[1]T): %q differs, want %q", stored, at, want)
		}
	}
}
