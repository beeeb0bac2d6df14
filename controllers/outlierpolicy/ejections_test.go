package outlierpolicy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/policy"
)

var night = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// hostAt is a host of shop/web/80; snapshotWith has two of each cluster.
func hostAt(address string) ejection.Host {
	return ejection.Host{Cluster: outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: "web"}, Port: 80}, Address: address}
}

// viewOf is the view of one Envoy that has ejected some hosts since a time.
func viewOf(since time.Time, hosts ...ejection.Host) *ejection.View {
	e := (&ejection.Envoy{Name: "edge/envoy-0", FirstPolled: night.Add(-time.Hour)}).WithAnswer(ejection.Scope{All: true}, hosts, since)
	return ejection.NewView([]ejection.Envoy{e}, nil, since)
}

// recorded are the Events of a test.
type recorded []string

func (r *recorded) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	about := fmt.Sprintf("%T", regarding)
	if ref, is := regarding.(*corev1.ObjectReference); is {
		about = strings.TrimSpace(fmt.Sprintf("%s %s/%s %s", ref.Kind, ref.Namespace, ref.Name, ref.UID))
	}
	*r = append(*r, fmt.Sprintf("%s %s %s: %s", about, kind, reason, fmt.Sprintf(note, args...)))
}

// step is one reconciliation of a policy for Service web, by what Envoys say.
func step(t *testing.T, reported *reportedEjections, op *v1alpha1.OutlierPolicy, view *ejection.View) (*v1alpha1.OutlierPolicy, []string) {
	t.Helper()
	return stepOf(t, reported, op, envoysWith(view, nil, true))
}

// envoysWith are observations of Envoys, of which some are connected.
func envoysWith(view *ejection.View, connected map[string]int, known bool) envoyObservations {
	return envoyObservations{view, func(string) (map[string]int, bool) { return connected, known }, func(string, bool) bool { return false }}
}

func stepOf(t *testing.T, reported *reportedEjections, op *v1alpha1.OutlierPolicy, envoys envoyObservations) (*v1alpha1.OutlierPolicy, []string) {
	t.Helper()
	web := service("web", 80)
	snap := snapshotWith(t, []*v1alpha1.OutlierPolicy{op}, []*corev1.Service{web}, "")
	key := client.ObjectKeyFromObject(op)
	after := withStatus(op, statusOf(op, snap, nil, nil))
	holds := snap.clustersOf(snap.policies[key].policy).holds
	now := observeEjections(holds, envoys)
	before := reported.get(key, &op.Status)
	next := keepSince(&now, before)
	now.writeStatus(op, &after.Status, holds)
	var events recorded
	switch {
	case now.pending:
	case now.unknown.Reason != "":
		reported.set(key, nil)
	default:
		diffHosts(&now, before).emit(&events, op, snap.service)
		reported.set(key, next)
	}
	return after, events
}

func TestEjectionsAreReportedOnceAndKeepTheirSince(t *testing.T) {
	one, other := hostAt("10.0.0.1:8080"), hostAt("10.0.0.2:8080")
	op, reported := stored("shop", "web", 1, target("web", "")), &reportedEjections{}
	op, events := step(t, reported, op, viewOf(night))
	if op.Status.Ejected == nil || *op.Status.Ejected != 0 || len(events) > 0 {
		t.Fatalf("at first: %v, %q", op.Status.Ejected, events)
	}
	op, events = step(t, reported, op, viewOf(night.Add(500*time.Millisecond), one))
	want := []v1alpha1.OutlierEjection{{Cluster: "shop/web/80", Address: "10.0.0.1:8080", Pod: "web-1", Envoys: 1, Since: metav1.NewTime(night)}}
	if diff := cmp.Diff(want, op.Status.Ejections); diff != "" || *op.Status.Ancestors[0].Ejected != 1 {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{
		"*v1alpha1.OutlierPolicy Warning HostsEjected: Envoys ejected 1 host: pod web-1 (10.0.0.1:8080) of shop/web/80, by 1 Envoy.",
		"Service shop/web Warning HostsEjected: Envoys ejected 1 host: pod web-1 (10.0.0.1:8080) of shop/web/80, by 1 Envoy.",
		"Pod shop/web-1 uid-1 Warning HostsEjected: Envoys ejected 1 host: pod web-1 (10.0.0.1:8080) of shop/web/80, by 1 Envoy.",
	}, events); diff != "" {
		t.Error(diff)
	}

	// Another manager takes over a minute later, and sees it for the first time.
	reported = &reportedEjections{}
	waiting, events := step(t, reported, op, nil)
	if diff := cmp.Diff(op.Status, waiting.Status); diff != "" || len(events) > 0 {
		t.Error("a manager that hasn't polled yet changes the status:", diff, events)
	}
	view := viewOf(night.Add(time.Minute), one)
	for range 2 {
		if op, events = step(t, reported, op, view); len(events) > 0 || !op.Status.Ejections[0].Since.Time.Equal(night) {
			t.Errorf("since %s, %q", op.Status.Ejections[0].Since, events)
		}
	}

	op, events = step(t, reported, op, viewOf(night.Add(2*time.Minute), other))
	if len(events) != 6 || !slices.Contains(events, "*v1alpha1.OutlierPolicy Normal HostsReturned: Envoys took back 1 host: pod web-1 (10.0.0.1:8080) of shop/web/80.") {
		t.Errorf("%q", events)
	}
	op, _ = step(t, reported, op, viewOf(night.Add(3*time.Minute), one))
	if since := op.Status.Ejections[0].Since.Time; !since.Equal(night.Add(3 * time.Minute)) {
		t.Errorf("a host that returned and was ejected again has since %s", since)
	}
}

// TestAnEjectionIsOfThePodThatHasTheHost: a pod may be behind several ports and Services, and two pods of a node's network have one
// address.
func TestAnEjectionIsOfThePodThatHasTheHost(t *testing.T) {
	host := func(service string, port int32) outlier.Key {
		return outlier.Key{Service: types.NamespacedName{Namespace: "shop", Name: service}, Port: port}
	}
	clusterOf := func(key outlier.Key, hosts ...outlier.Host) cluster {
		return cluster{Assignment: &outlier.Assignment{Key: key}, hosts: hosts}
	}
	web, admin, mail := host("web", 80), host("web", 81), host("mail", 80)
	clusters := []cluster{
		clusterOf(web, outlier.Host{Address: "10.0.0.1", Port: 8080, Pod: "web-1"}, outlier.Host{Address: "10.0.0.2", Port: 8080, Pod: "web-2"}),
		clusterOf(admin, outlier.Host{Address: "10.0.0.1", Port: 9090, Pod: "web-1"}, outlier.Host{Address: "10.0.0.2", Port: 9090, Pod: "web-2"}),
		clusterOf(mail, outlier.Host{Address: "10.0.0.2", Port: 8080, Pod: "mail-1"}),
	}
	for at, pod := range map[ejection.Host]string{
		{Cluster: web, Address: "10.0.0.1:8080"}:   "web-1",
		{Cluster: web, Address: "10.0.0.2:8080"}:   "web-2",
		{Cluster: admin, Address: "10.0.0.2:9090"}: "web-2",
		{Cluster: mail, Address: "10.0.0.2:8080"}:  "mail-1",
		{Cluster: mail, Address: "10.0.0.1:8080"}:  "", // not a host of that cluster any more
	} {
		got := observeEjections(clusters, envoysWith(viewOf(night, at), nil, true))
		want := map[ejection.Host]v1alpha1.OutlierEjection{}
		if pod != "" {
			want[at] = v1alpha1.OutlierEjection{Cluster: at.Cluster.String(), Address: at.Address, Pod: pod, Envoys: 1, Since: metav1.NewTime(night)}
		}
		if diff := cmp.Diff(want, got.ejections); diff != "" {
			t.Errorf("%v: %s", at, diff)
		}
	}
}

func TestWhatIsNotKnownIsNotInTheStatus(t *testing.T) {
	op, reported := stored("shop", "web", 1, target("web", "")), &reportedEjections{}
	op, _ = step(t, reported, op, viewOf(night, hostAt("10.0.0.1:8080")))
	silent := ejection.Envoy{Name: "edge/envoy-0", FirstPolled: night.Add(-time.Minute), Problem: "connection refused"}
	for view, want := range map[*ejection.View]string{
		ejection.NewView([]ejection.Envoy{silent}, nil, night): "EnvoysNotAnswering: 1 of 1 Envoys don't say whom they have ejected, and so it isn't known: edge/envoy-0: connection refused.",
		ejection.NewView(nil, []string{"Service edge/envoys has no ready endpoints"}, night): "NoEnvoys: Not all Envoys are known, and so it isn't known whom they have ejected: " +
			"Service edge/envoys has no ready endpoints.",
		ejection.NewView([]ejection.Envoy{(&ejection.Envoy{}).WithAnswer(ejection.Scope{}, nil, night)}, nil, night): "NoEnvoys: No Envoy that is asked may see namespace shop.",
	} {
		got, events := step(t, &reportedEjections{}, op, view)
		if got.Status.Ejected != nil || got.Status.Ejections != nil || got.Status.Ancestors[0].Ejected != nil || len(events) > 0 {
			t.Errorf("%s: %+v, %q", want, got.Status, events)
		}
		i := slices.IndexFunc(got.Status.Conditions, func(c metav1.Condition) bool { return c.Type == "EjectionsUnknown" })
		c := got.Status.Conditions[max(0, i)]
		if i < 0 || c.Reason+": "+c.Message != want {
			t.Errorf("%+v instead of %s", c, want)
		}
		var transitions recorded
		if policy.EmitTransitions(&transitions, got, op.Status.Conditions, got.Status.Conditions); slices.ContainsFunc(transitions, func(e string) bool { return strings.Contains(e, c.Reason) }) {
			t.Errorf("Events tell of it, for each policy: %q", transitions)
		}
	}
}

func TestEventsNameFiveHosts(t *testing.T) {
	now := ejectionState{ejections: map[ejection.Host]v1alpha1.OutlierEjection{}}
	for i := range 30 {
		h := hostAt(fmt.Sprintf("10.0.0.%d:80", i+10))
		now.ejections[h] = v1alpha1.OutlierEjection{Cluster: h.Cluster.String(), Address: h.Address, Envoys: 2, Since: metav1.NewTime(night.Add(time.Duration(-i) * time.Second))}
	}
	var events recorded
	diffHosts(&now, nil).emit(&events, stored("shop", "web", 1), func(types.NamespacedName) *corev1.Service { return nil })
	if want := "*v1alpha1.OutlierPolicy Warning HostsEjected: Envoys ejected 30 hosts: 10.0.0.10:80 of shop/web/80, by 2 Envoys; 10.0.0.11:80 of shop/web/80, by 2 Envoys; " +
		"10.0.0.12:80 of shop/web/80, by 2 Envoys; 10.0.0.13:80 of shop/web/80, by 2 Envoys; 10.0.0.14:80 of shop/web/80, by 2 Envoys; and 25 more."; len(events) != 1 || events[0] != want {
		t.Errorf("%q", events)
	}
	if named := now.longest(); len(named) != 20 || named[0].Address != "10.0.0.39:80" || named[19].Address != "10.0.0.20:80" {
		t.Errorf("named: %v", named)
	}
}

func TestAnEnvoyThatIsNotAskedLeavesNothingKnown(t *testing.T) {
	op, reported := stored("shop", "web", 1, target("web", "")), &reportedEjections{}
	op, _ = step(t, reported, op, viewOf(night, hostAt("10.0.0.1:8080")))
	unknown := func(op *v1alpha1.OutlierPolicy) string {
		for _, c := range op.Status.Conditions {
			if c.Type == "EjectionsUnknown" {
				return c.Reason + ": " + c.Message
			}
		}
		return ""
	}
	for want, envoys := range map[string]envoyObservations{
		"": envoysWith(viewOf(night, hostAt("10.0.0.1:8080")), map[string]int{"": 1}, true), // which is asked
		"EnvoysNotAsked: 2 Envoys get clusters of namespace shop and aren't asked whom they have ejected, and so it isn't known: the Services in --ejections-from don't lead to them, or they aren't ready, as while they drain.": envoysWith(viewOf(night), map[string]int{"": 1, "other": 2}, true),
		"EnvoysNotAsked: It isn't known yet which Envoys are connected to other replicas, and so it isn't known whom they have ejected.":                                                                                          envoysWith(viewOf(night), nil, false),
	} {
		after, _ := stepOf(t, &reportedEjections{}, op, envoys)
		if unknown(after) != want {
			t.Errorf("%s instead of %s", unknown(after), want)
		}
		if known := want == ""; (after.Status.Ejected != nil) != known || (after.Status.Ejections != nil) != known || (after.Status.Ancestors[0].Ejected != nil) != known {
			t.Errorf("%s: %+v", want, after.Status)
		}
	}
	soon := envoysWith(viewOf(night), map[string]int{"": 2}, true)
	soon.recentlyConnected = func(_ string, are bool) bool { return are }
	if after, _ := stepOf(t, reported, op, soon); *after.Status.Ejected != 1 || unknown(after) != "" {
		t.Errorf("one that came just now may yet be asked: %+v", after.Status)
	}
	var n unpolled
	for _, c := range []struct {
		at   time.Duration
		is   bool
		want time.Duration
	}{{0, true, 0}, {time.Minute, true, time.Minute}, {2 * time.Minute, false, 0}, {3 * time.Minute, true, 0}, {190 * time.Second, false, 0}, {200 * time.Second, true, 20 * time.Second}} {
		if got := n.since("shop", c.is, night.Add(c.at)); got != c.want {
			t.Errorf("at %s: for %s", c.at, got)
		}
	}
}

// Envoy Gateway's proxies aren't asked: who is ejected there isn't known, however many others say.
func TestWhomAPatchedGatewayHasEjectedIsNotKnown(t *testing.T) {
	op := stored("shop", "web", 1, target("web", ""))
	snap := snapshotWith(t, []*v1alpha1.OutlierPolicy{op}, []*corev1.Service{service("web", 80)}, "")
	key := client.ObjectKeyFromObject(op)
	for name, test := range map[string]struct {
		clusters int32
		ejected  *int32
	}{"it holds for a Gateway": {2, nil}, "it holds for none of the Gateway's clusters": {0, new(int32(1))}} {
		t.Run(name, func(t *testing.T) {
			after := statusOf(op, snap, nil, []v1alpha1.OutlierAncestorStatus{{
				AncestorRef: v1alpha1.OutlierAncestorReference{Group: "gateway.networking.k8s.io", Kind: "Gateway", Namespace: "edge", Name: "web"}, Clusters: test.clusters,
			}})
			holds := snap.clustersOf(snap.policies[key].policy).holds
			e := observeEjections(holds, envoysWith(viewOf(night, hostAt("10.0.0.1:8080")), nil, true))
			e.writeStatus(op, &after, holds)
			if diff := cmp.Diff(test.ejected, after.Ejected); diff != "" || after.Ancestors[1].Ejected != nil {
				t.Error(diff, after.Ancestors[1].Ejected)
			}
			c := meta.FindStatusCondition(after.Conditions, "EjectionsUnknown")
			if reported := c != nil && c.Reason == "EnvoysNotAsked"; reported != (test.ejected == nil) {
				t.Error(c)
			}
		})
	}
}
