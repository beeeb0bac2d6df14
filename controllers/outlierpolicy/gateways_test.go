package outlierpolicy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
	"github.com/resourcestack/autohealer/internal/policy"
)

func TestGatewayAncestors(t *testing.T) {
	gateway := types.NamespacedName{Namespace: "edge", Name: "web"}
	mine, others := []*outlier.Policy{{UID: "mine"}}, []*outlier.Policy{{UID: "other"}}
	op := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{UID: "mine", Generation: 1}}
	statuses := func(status metav1.ConditionStatus, reason string) map[types.NamespacedName]metav1.Condition {
		return map[types.NamespacedName]metav1.Condition{gateway: {Status: status, Reason: reason, Message: "so it is"}}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "envoypatchpolicies"}, "autohealer.web", errors.New("no"))
	holds := outlier.Patched{Cluster: "a", Policies: mine}
	decided := outlier.Patched{Cluster: "b", Policies: mine, Obstacle: outlier.DecidedByTrafficPolicy, TrafficPolicy: types.NamespacedName{Namespace: "edge", Name: "btp"}}
	disagreed := outlier.Patched{Cluster: "c", Policies: append(mine, others...), Obstacle: outlier.BackendsDiffer}
	for name, test := range map[string]struct {
		clusters             []outlier.Patched
		trouble              error
		verdicts             map[types.NamespacedName]metav1.Condition
		accepted, programmed string // status, reason, and parts of the message
	}{
		"Envoy has it":              {[]outlier.Patched{holds}, nil, statuses("True", "Programmed"), "True Accepted for 1 clusters", "True Programmed so it is"},
		"Envoy Gateway is silent":   {[]outlier.Patched{holds}, nil, nil, "True Accepted", "Unknown Pending said nothing yet"},
		"a cluster is gone":         {[]outlier.Patched{holds}, nil, statuses("False", "ResourceNotFound"), "True Accepted", "False ResourceNotFound so it is"},
		"switched off":              {[]outlier.Patched{holds}, nil, statuses("False", "Disabled"), "True Accepted", "False Disabled extensionApis.enableEnvoyPatchPolicy: true"},
		"nobody let it":             {[]outlier.Patched{holds}, forbidden, nil, "True Accepted", "False MayNotPatch create rolebinding autohealer-envoy-patches -n edge"},
		"what is written is old":    {[]outlier.Patched{holds}, errors.New("not sure"), statuses("True", "Programmed"), "True Accepted", "False Pending not sure"},
		"another policy decides":    {[]outlier.Patched{holds, decided}, nil, statuses("True", "Programmed"), "True Accepted 1 of 2 clusters of the Gateway: BackendTrafficPolicy edge/btp says how b", "True Programmed"},
		"another one decides all":   {[]outlier.Patched{decided}, nil, nil, "False Conflicted 0 of 1 clusters", "Unknown NoClusters"},
		"the backends' ones differ": {[]outlier.Patched{disagreed}, nil, nil, "False Conflicted c is one cluster", "Unknown NoClusters"},
	} {
		t.Run(name, func(t *testing.T) {
			view := &gatewayStatuses{
				clusters:      map[types.NamespacedName][]outlier.Patched{gateway: test.clusters, {Name: "other"}: {{Cluster: "d", Policies: others}}},
				patchStatuses: test.verdicts, writeErrors: map[types.NamespacedName]error{},
			}
			if test.trouble != nil {
				view.writeErrors[gateway] = test.trouble
			}
			all := view.ancestorsOf(op)
			if len(all) != 1 || all[0].AncestorRef.Kind != "Gateway" || all[0].AncestorRef.Name != "web" {
				t.Fatalf("%v", all)
			}
			for condition, want := range map[string]string{"Accepted": test.accepted, "Programmed": test.programmed} {
				c := meta.FindStatusCondition(all[0].Conditions, condition)
				words := strings.SplitN(want, " ", 3)
				if string(c.Status) != words[0] || c.Reason != words[1] || len(words) > 2 && !strings.Contains(c.Message, words[2]) {
					t.Errorf("%s is %s %s %q", condition, c.Status, c.Reason, c.Message)
				}
			}
		})
	}
	var nobody *gatewayStatuses
	if got := nobody.ancestorsOf(op); got != nil {
		t.Error(got)
	}
}

// edge is a Gateway with a route to Service shop/web, and what is asked for it.
type edge struct {
	gateways outliers.Gateways
	unknown  error
	asked    []actuate.GatewayPatches
	answer   error
}

func (e *edge) Gateways(context.Context) (outliers.Gateways, error) { return e.gateways, e.unknown }

func (e *edge) Apply(_ context.Context, g actuate.GatewayPatches) (map[string]error, error) {
	e.asked = append(e.asked, g)
	return nil, e.answer
}

const ofRoute = "httproute/shop/web/rule/0"

func newEdge() *edge {
	name, service := types.NamespacedName{Namespace: "edge", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "web"}
	return &edge{gateways: outliers.Gateways{
		UIDs: map[types.NamespacedName]types.UID{name: "g"}, Unread: map[string]bool{},
		Objects: outlier.PatchObjects{Gateways: []outlier.Gateway{{NamespacedName: name}}, Routes: []outlier.GatewayRoute{{
			Namespace: "shop", RouteKey: outlier.RouteKey{Kind: "HTTPRoute", Name: "web"}, Gateways: []types.NamespacedName{name},
			Clusters: []outlier.RouteCluster{{Name: ofRoute, Backends: []outlier.RouteBackend{{Service: service, Port: 80}}}},
		}}},
	}}
}

// patcherOf has a snapshot with one policy for shop/web.
func patcherOf(e *edge, change func(*policySnapshot, *outlier.Policy)) *patcher {
	p := &outlier.Policy{Namespace: "shop", Name: "web", UID: "p", Generation: 2, Targets: []v1alpha1.OutlierTargetReference{{Kind: "Service", Name: "web"}}}
	snap := &policySnapshot{
		policies: map[types.NamespacedName]*policyState{p.Key(): {parsedPolicy: parsedPolicy{policy: p}}},
		services: map[string][]*corev1.Service{"shop": {{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}}},
	}
	if change != nil {
		change(snap, p)
	}
	snap.index = outlier.NewIndex([]*outlier.Policy{p}, nil, "autohealer-system")
	return &patcher{Publisher: &Publisher{latest: snap}, Gateways: e, Patches: e}
}

func TestWhatIsAskedForAGateway(t *testing.T) {
	g := NewWithT(t)
	e := newEdge()
	g.Expect(patcherOf(e, nil).patch(t.Context())).To(Succeed())
	g.Expect(e.asked).To(HaveLen(1))
	asked := e.asked[0]
	g.Expect(asked.Gateway.String()).To(Equal("edge/web"))
	g.Expect(asked.GatewayUID).To(BeEquivalentTo("g"))
	g.Expect(slices.Collect(maps.Keys(asked.Wanted))).To(ConsistOf(ofRoute))
	g.Expect(asked.Admitted).To(HaveKey(types.UID("p")))
	g.Expect(asked.State).To(Equal(lifecycle.Active))
	g.Expect(asked.Doubtful(ofRoute)).To(BeFalse())
}

// One that is patched, and may no longer be, has nothing that is wanted.
func TestAGatewayWithoutTheLabelIsUndone(t *testing.T) {
	g := NewWithT(t)
	e := newEdge()
	e.gateways.Objects.Gateways = nil
	g.Expect(patcherOf(e, nil).patch(t.Context())).To(Succeed())
	g.Expect(e.asked).To(HaveLen(1))
	g.Expect(e.asked[0].Wanted).To(BeEmpty())
}

func TestDoubtIsPassedOn(t *testing.T) {
	g := NewWithT(t)
	e := newEdge()
	g.Expect(patcherOf(e, func(_ *policySnapshot, p *outlier.Policy) { p.Doubtful = true }).patch(t.Context())).To(Succeed())
	g.Expect(e.asked[0].Doubtful(ofRoute)).To(BeTrue(), "its policy isn't judged")
	g.Expect(e.asked[0].Doubtful("httproute/shop/other/rule/0")).To(BeFalse())

	e = newEdge()
	e.gateways.Unread["HTTPRoute"] = true
	g.Expect(patcherOf(e, nil).patch(t.Context())).To(Succeed())
	g.Expect(e.asked[0].Doubtful("httproute/shop/other/rule/0")).To(BeTrue(), "its kind of routes isn't read")
	g.Expect(e.asked[0].Doubtful("grpcroute/shop/other/rule/0")).To(BeFalse())

	e = newEdge()
	g.Expect(patcherOf(e, func(snap *policySnapshot, _ *outlier.Policy) { snap.paused.Frozen = true }).patch(t.Context())).To(Succeed())
	g.Expect(e.asked[0].State).To(Equal(lifecycle.Frozen))

	e = newEdge()
	e.unknown = errors.New("Gateways aren't read yet")
	g.Expect(patcherOf(e, nil).patch(t.Context())).To(MatchError(e.unknown))
	g.Expect(e.asked).To(BeEmpty())
}

func TestAFailedPatchIsReportedAndRetried(t *testing.T) {
	g := NewWithT(t)
	e := newEdge()
	e.answer = errors.New("no answer")
	p := patcherOf(e, nil)
	g.Expect(p.patch(t.Context())).To(MatchError(e.answer))
	g.Expect(p.gateways.writeErrors).To(HaveLen(1))
}

// patchedFor are the EnvoyPatchPolicies that patch something for a policy.
type patchedFor struct {
	names []types.NamespacedName
	err   error
}

func (p patchedFor) PatchedFor(context.Context, types.UID) ([]types.NamespacedName, error) {
	return p.names, p.err
}

func TestAPolicyGoesOnceNothingIsPatchedForIt(t *testing.T) {
	g := NewWithT(t)
	e := newEdge()
	p := patcherOf(e, nil)
	op := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "p"}}
	patched := func(by patchedFor) policy.Remaining {
		patched, err := (&keeper{Publisher: p.Publisher, Patches: by}).patched(t.Context(), op)
		if by.err == nil {
			g.Expect(err).NotTo(HaveOccurred())
		} else {
			g.Expect(err).To(MatchError(by.err))
		}
		return patched
	}
	none := patchedFor{}
	g.Expect(patched(none).Unknown).To(BeTrue(), "no Gateway is looked at yet")
	g.Expect(p.patch(t.Context())).To(Succeed())
	g.Expect(patched(none).Unknown).To(BeTrue(), "they are patched from a snapshot that has it")

	p.latest = &policySnapshot{index: outlier.NewIndex(nil, nil, "autohealer-system")}
	g.Expect(p.patch(t.Context())).To(Succeed())
	g.Expect(patched(none)).To(Equal(policy.Remaining{}))
	some := patchedFor{names: []types.NamespacedName{{Namespace: "edge", Name: "autohealer.web"}}}
	g.Expect(patched(some)).To(Equal(policy.Remaining{Targets: 1, Sample: []string{"edge/autohealer.web"}}))
	g.Expect(patched(patchedFor{err: errors.New("no answer")}).Unknown).To(BeTrue())

	e.answer = apierrors.NewForbidden(schema.GroupResource{Resource: "envoypatchpolicies"}, "autohealer.web", errors.New("no"))
	g.Expect(p.patch(t.Context())).NotTo(Succeed())
	g.Expect(p.writeErrorOf("edge/autohealer.web")).To(ContainSubstring("create rolebinding autohealer-envoy-patches -n edge"))
	g.Expect(p.writeErrorOf("edge/autohealer.other")).To(BeEmpty())
}

func TestADeletedPolicyIsTranslatedWhileItsFinalizerWaits(t *testing.T) {
	g := NewWithT(t)
	p := &Publisher{translation: newTrigger()}
	is := storedPolicy{UID: "p", Object: &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "p"}}}
	goes := is
	goes.Object = is.Object.DeepCopy()
	goes.Object.DeletionTimestamp = &metav1.Time{}
	p.onVerdict(t.Context(), is, is)
	g.Expect(p.translation).To(BeEmpty(), "its status was written")
	p.onVerdict(t.Context(), is, goes)
	g.Expect(p.translation).To(HaveLen(1))
	g.Expect(p.stale.take().UnsortedList()).To(ConsistOf("shop"))
}
