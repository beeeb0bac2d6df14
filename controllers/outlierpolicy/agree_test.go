package outlierpolicy

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/cli/explain"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/policy"
)

var (
	shopRoutes = []outlier.Route{
		{Namespace: "shop", RouteKey: outlier.RouteKey{Kind: "HTTPRoute", Name: "front"}, Backends: []outlier.Backend{{Service: "web", Port: 80}, {Service: "mail", Port: 25}}},
		{Namespace: "shop", RouteKey: outlier.RouteKey{Kind: "HTTPProxy", Name: "safe"}, Backends: []outlier.Backend{{Service: "web", Port: 80, TLS: true}}},
	}
	shopRoutesStored = []string{
		`{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"namespace": "shop", "name": "front"}, "spec": {"rules": [{"backendRefs": [{"name": "web", "port": 80}, {"name": "mail", "port": 25}]}]}}`,
		`{"apiVersion": "projectcontour.io/v1", "kind": "HTTPProxy", "metadata": {"namespace": "shop", "name": "safe"}, "spec": {"routes": [{"services": [{"name": "web", "port": 80, "protocol": "tls"}]}]}}`,
	}
	shopServices = []*corev1.Service{service("web", 80, 81), service("mail", 25)}
	shopTargets  = []v1alpha1.OutlierTargetReference{
		target("web", ""), target("web", "81"), target("mail", ""), {Kind: "HTTPRoute", Name: "front"}, {Kind: "HTTPProxy", Name: "safe"}, {Kind: "HTTPRoute", Name: "gone"},
		{Kind: "HTTPRoute", Name: "front", Backend: &v1alpha1.OutlierBackend{Name: "web", Port: 80}},
	}
)

// drawOutliers draws policies, and the states of some (refused, doubtful), which their statuses don't have yet.
func drawOutliers(t *rapid.T) (policies []*v1alpha1.OutlierPolicy, states map[types.NamespacedName]string) {
	states = map[types.NamespacedName]string{}
	for i := range rapid.IntRange(0, 4).Draw(t, "policies") {
		op := stored("shop", fmt.Sprint("p", i), rapid.IntRange(0, 2).Draw(t, "age"))
		switch rapid.SampledFrom([]string{"", "", "", "default", "global"}).Draw(t, "for") {
		case "":
			op.Spec.TargetRefs = rapid.SliceOfNDistinct(rapid.SampledFrom(shopTargets), 1, 2, outlier.TargetText).Draw(t, "targets")
		case "default":
			op.Name = outlier.DefaultName
		case "global":
			op.Namespace, op.Name = systemNamespace, outlier.DefaultName
		}
		key := client.ObjectKeyFromObject(op)
		if _, twice := states[key]; twice {
			continue
		}
		op.UID = types.UID(key.String())
		shape(t, op)
		states[key] = rapid.SampledFrom([]string{"", "", "", "refused", "doubtful"}).Draw(t, "stands")
		policies = append(policies, op)
	}
	return policies, states
}

func shape(t *rapid.T, op *v1alpha1.OutlierPolicy) {
	op.Spec.Mode = rapid.SampledFrom([]v1alpha1.Mode{v1alpha1.Enforce, v1alpha1.Enforce, v1alpha1.Observe}).Draw(t, "mode")
	op.Spec.Disabled = rapid.IntRange(0, 4).Draw(t, "disabled") == 0
}

// snapshotInStates is the snapshot of these policies in these states.
func snapshotInStates(t *rapid.T, policies []*v1alpha1.OutlierPolicy, states map[types.NamespacedName]string, paused policy.Pause) *policySnapshot {
	snap := &policySnapshot{policies: map[types.NamespacedName]*policyState{}, clusters: map[string]map[types.NamespacedName]*policyClusters{}, services: map[string][]*corev1.Service{"shop": shopServices}, presentServices: map[types.NamespacedName]bool{}, paused: paused}
	var read []*outlier.Policy
	for _, op := range policies {
		p, err := outlier.NewPolicy(op)
		if err != nil {
			t.Fatal(err)
		}
		key := client.ObjectKeyFromObject(op)
		p.Refused, p.Doubtful = states[key] == "refused", states[key] == "doubtful"
		snap.policies[key] = &policyState{generation: op.Generation, parsedPolicy: parsedPolicy{policy: p}}
		read = append(read, p)
	}
	snap.index = outlier.NewIndex(read, shopRoutes, systemNamespace)
	return snap
}

// previousOf are clusters that were sent.
func previousOf(sent map[outlier.Key]actuate.Cluster) previousState {
	return previousState{last: func(key outlier.Key) (actuate.Cluster, bool) { last, was := sent[key]; return last, was }}
}

// byKey are the clusters by their keys.
func byKey(clusters []actuate.Cluster) map[outlier.Key]actuate.Cluster {
	all := map[outlier.Key]actuate.Cluster{}
	for _, c := range clusters {
		all[c.Key] = c
	}
	return all
}

// everythingRouted is what was asked for to know of OutlierPolicies.
const everythingRouted = `DaemonSet.apps -A
Deployment.apps -A
EndpointSlice.discovery.k8s.io -A
GRPCRoute.gateway.networking.k8s.io -A
HTTPProxy.projectcontour.io -A
HTTPRoute.gateway.networking.k8s.io -A
Namespace -A
OutlierPolicy.autohealer.resourcestack.com -A
Pod -A
Service -A
StatefulSet.apps -A
TCPRoute.gateway.networking.k8s.io -A
TLSRoute.gateway.networking.k8s.io -A`

// readOf is what one reads of the hosts of all Services, by cluster.
func readOf(t *rapid.T, g *guard.Guard, policies []*v1alpha1.OutlierPolicy) map[string][]string {
	items := []any{json.RawMessage(shopRoutesStored[0]), json.RawMessage(shopRoutesStored[1])}
	add := func(object client.Object, kind schema.GroupVersionKind) {
		object.GetObjectKind().SetGroupVersionKind(kind)
		items = append(items, object)
	}
	for _, op := range policies {
		add(op.DeepCopy(), v1alpha1.GroupVersion.WithKind("OutlierPolicy"))
	}
	for _, svc := range shopServices {
		add(svc.DeepCopy(), corev1.SchemeGroupVersion.WithKind("Service"))
		slice := hosts("10.0.0.1", svc).Slices[client.ObjectKeyFromObject(svc)][0]
		slice.Namespace, slice.Name, slice.Labels = svc.Namespace, svc.Name, map[string]string{discoveryv1.LabelServiceName: svc.Name}
		add(slice, discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"))
	}
	file, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items, "metadata": map[string]any{"annotations": map[string]string{
		"facts.autohealer.resourcestack.com/taken-at": time.Now().UTC().Format(time.RFC3339),
		"facts.autohealer.resourcestack.com/answers":  everythingRouted,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := snapshot.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	f, err := snapshot.NewWatchedFacts(t.Context(), s, g, systemNamespace)
	if err != nil {
		t.Fatal(err)
	}
	assignments, unknown := f.HostAssignments("shop", func(outlier.Key, outlier.Host) bool { return true })
	text := explain.Ejections(assignments, unknown, s.ServerTime.Time)
	says := map[string][]string{}
	for _, m := range assignmentLine.FindAllStringSubmatch(text, -1) {
		says[m[2]] = m[1:]
	}
	return says
}

var assignmentLine = regexp.MustCompile(`(?m)^  OutlierPolicy (\S+), Envoy cluster (\S+): (.*)\n(    Not what Envoys have everywhere: .*)?`)

// does is what a policy has Envoys do, as people read it.
func does(p *outlier.Policy) string {
	switch {
	case p == nil:
		return "nothing"
	case p.Refused:
		return "a rule refuses the policy, so nothing is detected"
	case p.Disabled:
		return "the policy switches detection off"
	case p.Settings.Observe:
		return "Envoy counts errors, and ejects nobody"
	}
	return "Envoy ejects hosts that keep failing"
}

// TestExplainAndEnvoysNeverDisagree: of every cluster, explain names the policy that holds for it and what Envoys do for it, and says so
// where the manager serves Envoys something else.
func TestExplainAndEnvoysNeverDisagree(t *testing.T) {
	p, _ := newTestPublisher(t, nil)
	rapid.Check(t, func(rt *rapid.T) {
		policies, states := drawOutliers(rt)
		listed := hosts("10.0.0.1", shopServices...)
		before := policies[:rapid.IntRange(0, len(policies)).Draw(rt, "before")]
		first := snapshotInStates(rt, before, nil, policy.Pause{})
		sent := byKey(translate(first, listed, previousState{isFirst: true, last: previousOf(nil).last}))
		for _, op := range before {
			if rapid.Bool().Draw(rt, "edited") {
				op.Generation++
				shape(rt, op)
			}
		}
		paused := rapid.SampledFrom([]policy.Pause{{}, {}, {By: "rail"}, {By: "rail", Frozen: true}}).Draw(rt, "paused")
		snap := snapshotInStates(rt, policies, states, paused)
		clusters := translate(snap, listed, previousOf(sent))
		for _, op := range policies {
			if s := states[client.ObjectKeyFromObject(op)]; s != "doubtful" {
				op.Status = statusOf(op, snap, p.Clusters, nil)
				accepted := map[string]metav1.ConditionStatus{"": metav1.ConditionTrue, "refused": metav1.ConditionFalse}[s]
				op.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: accepted, ObservedGeneration: op.Generation}}
			}
		}
		says := readOf(rt, p.Guard, policies)
		for _, c := range clusters {
			held := snap.index.Assign(shopServices[slices.IndexFunc(shopServices, func(s *corev1.Service) bool { return s.Name == c.Key.Service.Name })], []outlier.Key{c.Key})
			wanted := held[slices.IndexFunc(held, func(a *outlier.Assignment) bool { return a.Key == c.Key })].Policy
			line := says[c.Key.String()]
			switch {
			case wanted == nil && line != nil:
				rt.Errorf("%s has no policy, and one reads %q", c.Key, line)
			case wanted == nil:
			case line == nil:
				rt.Errorf("of %s one reads nothing; %s holds for it", c.Key, wanted.Key())
			case line[3] == "" && (line[2] != does(c.Policy) || wanted.Doubtful):
				rt.Errorf("of %s one reads %q; Envoys are told to do %s", c.Key, line, does(c.Policy))
			case line[3] != "" && !wanted.Doubtful && paused.By == "":
				rt.Errorf("of %s one reads %q, and nothing is withheld", c.Key, line)
			}
		}
	})
}
