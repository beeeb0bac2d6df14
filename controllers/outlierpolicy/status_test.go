package outlierpolicy

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

const systemNamespace = "autohealer-system"

// stored is a policy for targets, as old as its name says.
func stored(namespace, name string, minutesOld int, targets ...v1alpha1.OutlierTargetReference) *v1alpha1.OutlierPolicy {
	return &v1alpha1.OutlierPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + name), Generation: 3,
			CreationTimestamp: metav1.NewTime(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC).Add(-time.Duration(minutesOld) * time.Minute)),
		},
		Spec: v1alpha1.OutlierPolicySpec{TargetRefs: targets, OutlierDetection: &v1alpha1.OutlierDetection{}},
	}
}

func service(name string, ports ...int32) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	for _, port := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: port})
	}
	return svc
}

func target(service, port string) v1alpha1.OutlierTargetReference {
	return v1alpha1.OutlierTargetReference{Kind: "Service", Name: service, SectionName: port}
}

// snapshotWith is the snapshot of policies over Services in shop; the rules refuse the one that is named.
func snapshotWith(t *testing.T, policies []*v1alpha1.OutlierPolicy, services []*corev1.Service, refused string) *policySnapshot {
	t.Helper()
	snap := &policySnapshot{policies: map[types.NamespacedName]*policyState{}, clusters: map[string]map[types.NamespacedName]*policyClusters{}, services: map[string][]*corev1.Service{"shop": services}}
	read := make([]*outlier.Policy, 0, len(policies))
	for _, op := range policies {
		p, err := outlier.NewPolicy(op)
		if err != nil {
			t.Fatal(err)
		}
		p.Refused = op.Name == refused
		snap.policies[client.ObjectKeyFromObject(op)] = &policyState{generation: op.Generation, parsedPolicy: parsedPolicy{policy: p}}
		read = append(read, p)
	}
	snap.index = outlier.NewIndex(read, nil, systemNamespace)
	for _, svc := range services {
		for _, a := range snap.index.Assign(svc, nil) {
			snap.addCluster(a, []outlier.Host{{Address: "10.0.0.1", Port: 8080, Pod: "web-1", PodUID: "uid-1"}, {Address: "10.0.0.2", Port: 8080, Pod: "web-2"}}, false)
		}
	}
	return snap
}

func TestWhatATargetsStatusSays(t *testing.T) {
	web, mail, empty, sticky := service("web", 80, 81), service("mail", 25), service("empty"), service("sticky", 80, 81)
	sticky.Spec.SessionAffinity, sticky.Spec.Ports[1].AppProtocol = corev1.ServiceAffinityClientIP, new("amqp")
	for name, c := range map[string]struct {
		of, refused string
		policies    []*v1alpha1.OutlierPolicy
		reason      string
		status      metav1.ConditionStatus
		message     string
		clusters    int32
		effective   bool
	}{
		"it holds": {
			of: "a", policies: []*v1alpha1.OutlierPolicy{stored("shop", "a", 1, target("web", ""))},
			reason: "Accepted", status: "True", message: "It holds for 2 clusters.", clusters: 2, effective: true,
		},
		"a newer one for the same target": {
			of: "b", policies: []*v1alpha1.OutlierPolicy{stored("shop", "a", 5, target("web", "")), stored("shop", "b", 1, target("web", ""))},
			reason: "Conflicted", status: "False", message: "OutlierPolicy shop/a is older and has the same target.",
		},
		"the older one of two": {
			of: "a", policies: []*v1alpha1.OutlierPolicy{stored("shop", "a", 5, target("web", "")), stored("shop", "b", 1, target("web", ""))},
			reason: "Accepted", status: "True", message: "It holds for 2 clusters.", clusters: 2, effective: true,
		},
		"overridden in a part": {
			of: "a", policies: []*v1alpha1.OutlierPolicy{stored("shop", "a", 5, target("web", "")), stored("shop", "b", 1, target("web", "81"))},
			reason: "Accepted", status: "True", message: "It holds for 1 clusters.", clusters: 1, effective: true,
		},
		"overridden in all": {
			of: "default", policies: []*v1alpha1.OutlierPolicy{stored("shop", "default", 5), stored("shop", "b", 1, target("web", "")), stored("shop", "c", 1, target("mail", "")), stored("shop", "d", 1, target("sticky", ""))},
			reason: "Overridden", status: "False", message: "More specific policies hold for all of it.",
		},
		"refused by a rule": {
			of: "a", refused: "a", policies: []*v1alpha1.OutlierPolicy{stored("shop", "a", 1, target("web", ""))},
			reason: "Invalid", status: "False", message: "The rules refuse the policy; see its condition Accepted.", clusters: 2,
		},
		"no such Service": {
			of: "a", policies: []*v1alpha1.OutlierPolicy{stored("shop", "a", 1, target("wbe", ""))},
			reason: "TargetNotFound", status: "False", message: "There is no Service wbe with a TCP port.",
		},
		"a Service that has none": {
			of: "a", policies: []*v1alpha1.OutlierPolicy{stored("shop", "a", 1, target("empty", ""))},
			reason: "TargetNotFound", status: "False", message: "There is no TCP port of Service empty.",
		},
		"a Service that says what Envoys aren't told": {
			of: "a", policies: []*v1alpha1.OutlierPolicy{stored("shop", "a", 1, target("sticky", ""))},
			reason: "Accepted", status: "True", clusters: 2, effective: true,
			message: "It holds for 2 clusters. Not followed: Service sticky has sessionAffinity: ClientIP, and Envoys send each client to all hosts in turn. " +
				"Not followed: appProtocol amqp of Service sticky port 81 isn't known, and Envoys speak HTTP/1.1 there, or pass bytes on: write kubernetes.io/h2c where it speaks only HTTP/2, tcp where it speaks no HTTP.",
		},
		"no such port": {
			of: "a", policies: []*v1alpha1.OutlierPolicy{stored("shop", "a", 1, target("web", "82"))},
			reason: "TargetNotFound", status: "False", message: "There is no Service web, port 82 with a TCP port.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			snap := snapshotWith(t, c.policies, []*corev1.Service{web, mail, empty, sticky}, c.refused)
			for _, op := range c.policies {
				if op.Name != c.of {
					continue
				}
				status := statusOf(op, snap, nil, nil)
				a := status.Ancestors[0]
				got := meta.FindStatusCondition(a.Conditions, "Accepted")
				if got.Status != c.status || got.Reason != c.reason || got.Message != c.message || got.ObservedGeneration != 3 {
					t.Errorf("got %+v", got)
				}
				if a.Clusters != c.clusters || a.Hosts != 2*c.clusters || (a.Effective != nil) != c.effective {
					t.Errorf("clusters %d, hosts %d, effective %v", a.Clusters, a.Hosts, a.Effective)
				}
				if after := statusOf(withStatus(op, status), snap, nil, nil); !equality.Semantic.DeepEqual(after, status) {
					t.Error("the same snapshot gives another status")
				}
			}
		})
	}
}

func withStatus(op *v1alpha1.OutlierPolicy, status v1alpha1.OutlierPolicyStatus) *v1alpha1.OutlierPolicy {
	op = op.DeepCopy()
	op.Status = status
	return op
}

func TestWhatATargetsStatusSaysOfTLS(t *testing.T) {
	op := stored("shop", "a", 1, v1alpha1.OutlierTargetReference{Kind: "HTTPProxy", Name: "web"})
	p, err := outlier.NewPolicy(op)
	if err != nil {
		t.Fatal(err)
	}
	web := service("web", 80, 443)
	for name, c := range map[string]struct {
		backends       []outlier.Backend
		status, reason string
		message        string
	}{
		"all of it": {
			[]outlier.Backend{{Service: "web", Port: 443, TLS: true}}, "False", "OverTLS",
			"Its traffic to web:443 goes over TLS, whose names, certificates and authorities Autohealer doesn't know: Envoys get no cluster for it.",
		},
		"a part": {
			[]outlier.Backend{{Service: "web", Port: 443, TLS: true}, {Service: "web", Port: 80}}, "True", "Accepted",
			"It holds for 1 clusters. Traffic to web:443 goes over TLS: there is no cluster for it.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			snap := &policySnapshot{
				policies: map[types.NamespacedName]*policyState{p.Key(): {generation: op.Generation, parsedPolicy: parsedPolicy{policy: p}}},
				clusters: map[string]map[types.NamespacedName]*policyClusters{}, services: map[string][]*corev1.Service{"shop": {web}},
				index: outlier.NewIndex([]*outlier.Policy{p}, []outlier.Route{
					{Namespace: "shop", RouteKey: outlier.RouteKey{Kind: "HTTPProxy", Name: "web"}, Backends: c.backends},
				}, systemNamespace),
			}
			for _, a := range snap.index.Assign(web, nil) {
				snap.addCluster(a, nil, false)
			}
			got := meta.FindStatusCondition(statusOf(op, snap, nil, nil).Ancestors[0].Conditions, "Accepted")
			if string(got.Status) != c.status || got.Reason != c.reason || got.Message != c.message {
				t.Errorf("got %+v", got)
			}
		})
	}
}
