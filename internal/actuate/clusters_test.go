package actuate

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/xds"
)

func admittedOutlier(t *testing.T, mode v1alpha1.Mode) (*outlier.Policy, AdmittedOutlier) {
	t.Helper()
	op := &v1alpha1.OutlierPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", Generation: 3, CreationTimestamp: metav1.NewTime(time.Unix(1, 0))},
		Spec: v1alpha1.OutlierPolicySpec{
			Mode: mode, OutlierDetection: &v1alpha1.OutlierDetection{ConsecutiveServerErrors: new(int32(5))},
			TargetRefs: []v1alpha1.OutlierTargetReference{{Kind: "Service", Name: "web"}},
		},
	}
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, verdict := guard.Admit(t.Context(), g, op)
	if !v.Valid() {
		t.Fatalf("the policy isn't admitted: %s", verdict.Message())
	}
	p, err := outlier.NewPolicy(op)
	if err != nil {
		t.Fatal(err)
	}
	return p, v
}

func TestEnvoysAreToldOfAdmittedPoliciesAlone(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	watching, observing := admittedOutlier(t, v1alpha1.Observe)
	edited, enforced := *policy, *watching
	edited.Generation++
	enforced.Settings.Observe = false
	gone := errors.New("it was replaced")
	for name, c := range map[string]struct {
		policy  *outlier.Policy
		by      AdmittedOutlier
		current error
		want    error
	}{
		"admitted":                         {policy, admitted, nil, nil},
		"admitted to observe":              {watching, observing, nil, nil},
		"nobody admitted it":               {policy, AdmittedOutlier{}, nil, ErrNotValidated},
		"another generation":               {&edited, admitted, nil, ErrNotValidated},
		"admitted only because it watches": {&enforced, observing, nil, ErrNotValidated},
		"no longer what is stored":         {policy, admitted, gone, gone},
		"it can't be confirmed":            {policy, admitted, kube.ErrSuperseded, kube.ErrSuperseded},
		"no policy needs no admission":     {nil, AdmittedOutlier{}, gone, nil},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			clusters := &Clusters{Server: server, Current: current{c.current}, Acts: logr.Discard()}
			of := Cluster{Admitted: c.by}
			of.Key, of.Policy = outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: "web"}, Port: 80}, c.policy
			if _, _, err := clusters.Apply(t.Context(), []Cluster{of}, Absent{}); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if told := clusters.last != nil; told != (c.want == nil) {
				t.Errorf("told: %v", told)
			}
		})
	}
}

// A world of which one cluster changes must cost one new cluster.
func TestWhatStaysAsItIsMakesNoNewMessages(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	clusters := &Clusters{Server: server, Current: current{}, Acts: logr.Discard()}
	apply := func(hosts ...outlier.Host) sentCluster {
		t.Helper()
		of := Cluster{Admitted: admitted, Hosts: hosts}
		of.Key, of.Policy = outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: "web"}, Port: 80}, policy
		if _, _, err := clusters.Apply(t.Context(), []Cluster{of}, Absent{}); err != nil {
			t.Fatal(err)
		}
		return clusters.last["shop/web/80"]
	}
	first := apply(outlier.Host{Address: "10.0.0.1", Port: 80})
	if same := apply(outlier.Host{Address: "10.0.0.1", Port: 80}); same.cluster != first.cluster || same.endpoints != first.endpoints {
		t.Error("nothing changed, and the messages are new")
	}
	if moved := apply(outlier.Host{Address: "10.0.0.2", Port: 80}); moved.cluster != first.cluster || moved.endpoints == first.endpoints {
		t.Error("a host changed: its endpoints are new, and the cluster isn't")
	}
}

// Of clusters that aren't named Envoys keep what they have; what they removed is forgotten.
func TestWhatIsNotNamedStaysUntilItIsRemoved(t *testing.T) {
	server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	clusters := &Clusters{Server: server, Current: current{}, Acts: logr.Discard()}
	of := func(namespace, service string) (c Cluster) {
		c.Key = outlier.Key{Service: types.NamespacedName{Namespace: namespace, Name: service}, Port: 80}
		return c
	}
	for _, step := range []struct {
		clusters []Cluster
		gone     []outlier.Key
		want     []string
	}{
		{[]Cluster{of("shop", "web"), of("shop", "mail"), of("bank", "web")}, nil, []string{"bank/web/80", "shop/mail/80", "shop/web/80"}},
		{nil, nil, []string{"bank/web/80", "shop/mail/80", "shop/web/80"}},
		{[]Cluster{of("shop", "web")}, nil, []string{"bank/web/80", "shop/mail/80", "shop/web/80"}},
		{[]Cluster{of("shop", "web")}, []outlier.Key{of("shop", "mail").Key}, []string{"bank/web/80", "shop/web/80"}},
		{nil, []outlier.Key{of("bank", "web").Key, of("shop", "web").Key}, []string{"bank/web/80", "shop/web/80"}},
	} {
		before := clusters.last["shop/web/80"].cluster
		if _, _, err := clusters.Apply(t.Context(), step.clusters, Absent{Gone: step.gone}); err != nil {
			t.Fatal(err)
		}
		if got := slices.Sorted(maps.Keys(clusters.last)); !slices.Equal(got, step.want) {
			t.Errorf("without %v: told are %v, want %v", step.gone, got, step.want)
		}
		if after := clusters.last["shop/web/80"]; before != nil && after.cluster != before {
			t.Errorf("without %v: the same cluster has a new message", step.gone)
		}
	}
}

// One policy that can't be confirmed keeps its own clusters as they are, and no endpoints from anybody.
func TestDoubtAboutOnePolicyHoldsNoEndpointsBack(t *testing.T) {
	policy, admitted := admittedOutlier(t, v1alpha1.Enforce)
	server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	clusters := &Clusters{Server: server, Current: current{}, Acts: logr.Discard()}
	of := func(service string, p *outlier.Policy, host string) Cluster {
		c := Cluster{Admitted: admitted, Hosts: []outlier.Host{{Address: host, Port: 80}}}
		c.Key, c.Policy = outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: service}, Port: 80}, p
		return c
	}
	if held, _, err := clusters.Apply(t.Context(), []Cluster{of("web", policy, "10.0.0.1"), of("mail", nil, "10.0.0.1")}, Absent{}); err != nil || len(held) > 0 {
		t.Fatal(held, err)
	}
	before := clusters.last
	edited, superseded := *policy, errors.New("it was edited since")
	edited.Generation++
	for name, c := range map[string]struct {
		edited  *outlier.Policy
		current error
		want    error
	}{
		"not admitted":           {&edited, nil, ErrNotValidated},
		"it can't be confirmed":  {policy, superseded, superseded},
		"a new one, unconfirmed": {&edited, superseded, ErrNotValidated},
	} {
		t.Run(name, func(t *testing.T) {
			clusters.last, clusters.Current = maps.Clone(before), current{c.current}
			if c.edited == policy { // as if it had been told as an older generation
				older, olderPolicy := before["shop/web/80"], *policy
				olderPolicy.Generation--
				older.Policy = &olderPolicy
				clusters.last["shop/web/80"] = older
			}
			held, _, err := clusters.Apply(t.Context(), []Cluster{of("web", c.edited, "10.0.0.2"), of("mail", nil, "10.0.0.2"), of("new", c.edited, "10.0.0.2")}, Absent{})
			web := outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: "web"}, Port: 80}
			if err != nil || len(held) != 2 || !errors.Is(held[web], c.want) {
				t.Errorf("held %v, error %v", held, err)
			}
			after := clusters.last
			if after["shop/web/80"].cluster != before["shop/web/80"].cluster {
				t.Error("the cluster in doubt has changed")
			}
			for _, name := range []string{"shop/web/80", "shop/mail/80"} {
				if got := after[name].endpoints.GetEndpoints()[0].GetLbEndpoints()[0].GetEndpoint().GetAddress().GetSocketAddress().GetAddress(); got != "10.0.0.2" {
					t.Errorf("the host of %s is still %s", name, got)
				}
			}
			if _, told := after["shop/new/80"]; told {
				t.Error("a cluster that nobody confirmed was told")
			}
		})
	}
}
