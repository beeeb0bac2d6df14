package snapshot_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
)

const ownNamespace = "autohealer-system"

// prober is a stored ProbeConfig with the namespaces that it probes.
type prober struct {
	config     v1alpha1.ProbeConfig
	namespaces []string
	// held is why the config scales nothing down, "" when the fleet decides.
	held probe.Reason
	// untried are the namespaces whose external kubeconfig never worked: as far as anybody knows, or as it fails after another that did.
	untried map[string]string
}

// probers are a manager's configs, and its fleet.
type probers struct {
	t      *rapid.T
	fleet  *probe.Fleet
	policy guardrail.Policy
	all    []*prober
	down   map[probe.TargetKey]bool
}

func drawProbers(t *rapid.T) *probers {
	p := &probers{t: t, policy: guardrail.Policy{Limits: limit.Builtin()}, down: map[probe.TargetKey]bool{}}
	p.policy.Limits.MaxScaledDownTargets = limit.CapOf(intstr.Parse(rapid.SampledFrom([]string{"20%", "50%", "1", "3"}).Draw(t, "most")))
	if rapid.IntRange(0, 9).Draw(t, "paused") == 0 {
		p.policy.PausedBy = []string{"rail"}
	}
	p.fleet = probe.NewFleet(p.policy.Limits)
	for i := range rapid.IntRange(1, 6).Draw(t, "configs") {
		p.draw(i)
	}
	if rapid.IntRange(0, 5).Draw(t, "breaker") == 0 {
		p.fleet.FollowBreaker(&limit.Opening{ID: "20261121t115500z", OpenedAt: noon.Add(-5 * time.Minute)})
	}
	for _, c := range p.all {
		p.scaleDown(c)
	}
	for _, c := range p.all {
		p.tell(c)
	}
	return p
}

func (p *probers) draw(i int) {
	t := p.t
	c := &prober{untried: map[string]string{}, config: v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i), UID: types.UID(fmt.Sprint("uid", i)), Generation: 2}}}
	spec := &c.config.Spec
	spec.InternalKubeConfigSecretName, spec.ExternalKubeConfigSecretName = "in", "out"
	spec.DependentResourceInfos = []v1alpha1.DependentResourceInfo{{
		Ref: v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "kcm"}, ScaleUp: &v1alpha1.ScaleInfo{}, ScaleDown: &v1alpha1.ScaleInfo{},
	}}
	c.config.Namespace = rapid.SampledFrom([]string{ownNamespace, ownNamespace, "red", "blue"}).Draw(t, "namespace")
	c.namespaces = []string{c.config.Namespace}
	if c.config.Namespace == ownNamespace && rapid.Bool().Draw(t, "selects") {
		spec.NamespaceSelector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"probed": "yes"}}
		c.namespaces = shoots
	}
	accepted := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: 2}
	switch rapid.SampledFrom([]string{"", "", "", "", "refused", "edited"}).Draw(t, "verdict") {
	case "refused":
		accepted.Status, accepted.Reason, c.held = metav1.ConditionFalse, v1alpha1.ReasonInvalid, v1alpha1.ReasonInvalid
	case "edited":
		accepted.ObservedGeneration, c.held = 1, "NotJudged"
	}
	if c.held == "" && len(p.policy.PausedBy) > 0 {
		c.held = v1alpha1.ReasonPaused
	}
	c.config.Status.Conditions = []metav1.Condition{accepted}
	p.all = append(p.all, c)
	for _, namespace := range c.namespaces {
		target := probe.TargetKey{Config: c.config.UID, Namespace: namespace}
		p.fleet.Add(target, c.config.Namespace != ownNamespace)
		if is := rapid.SampledFrom([]string{"", "", "", "new", "fails"}).Draw(t, "untried"); is != "" {
			c.untried[namespace] = is
		}
		p.fleet.SetActive(target, accepted.Status == metav1.ConditionTrue && c.untried[namespace] == "", noon)
		p.fleet.ObserveRun(target, &probe.State{}, noon)
		p.fleet.ObserveDown(target, false)
	}
}

var shoots = []string{"shoot-0", "shoot-1", "shoot-2", "shoot-3", "shoot-4", "shoot-5", "shoot-6", "shoot-7"}

// scaleDown lets some targets fail.
func (p *probers) scaleDown(c *prober) {
	for _, namespace := range c.namespaces {
		if target := (probe.TargetKey{Config: c.config.UID, Namespace: namespace}); rapid.IntRange(0, 2).Draw(p.t, "fails") == 0 && c.held == "" && c.untried[namespace] == "" {
			p.down[target] = p.fleet.AcquireScaleDown(target, noon).Allowed
		}
	}
}

// tell writes the status.
func (p *probers) tell(c *prober) {
	st := &c.config.Status
	st.Targets = &v1alpha1.TargetCounts{Total: int32(len(c.namespaces)), Probed: int32(len(c.namespaces))}
	for _, namespace := range c.namespaces {
		if c.untried[namespace] != "new" {
			st.ProvenKubeconfigs = append(st.ProvenKubeconfigs, v1alpha1.ProvenKubeconfig{Namespace: namespace, Mark: "0123456789abcdef"})
		}
		if c.untried[namespace] == "fails" {
			st.WorstTargets = append(st.WorstTargets, v1alpha1.TargetState{Namespace: namespace, Reason: v1alpha1.ReasonKubeconfigUntried})
		}
		if p.down[probe.TargetKey{Config: c.config.UID, Namespace: namespace}] {
			st.Targets.ScaledDown++
			st.Scaled = append(st.Scaled, v1alpha1.ScaledDependent{Namespace: namespace, Ref: c.config.Spec.DependentResourceInfos[0].Ref, PreviousReplicas: 2, Since: metav1.NewTime(noon)})
		}
	}
	if b, open := p.fleet.Breaker(); open {
		st.BreakerID = b.ID
	}
}

// TestExplainAndFleetNeverDisagree: of every target, explain says whether it would be scaled down, and which rule, pause, breaker,
// limit or share keeps it from that, as the manager that counts them decides.
func TestExplainAndFleetNeverDisagree(t *testing.T) {
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawProbers(t)
		var objects []client.Object
		for _, c := range p.all {
			objects = append(objects, &c.config)
		}
		for _, name := range append([]string{ownNamespace, "red", "blue"}, shoots...) {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if slices.Contains(shoots, name) {
				ns.Labels = map[string]string{"probed": "yes"}
			}
			objects = append(objects, ns)
		}
		s := snapshot.Of(t, noon, noon, objects...)
		f, err := snapshot.NewWatchedFacts(t.Context(), s, g, ownNamespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.all {
			for _, namespace := range c.namespaces {
				views := f.ViewProbers(t.Context(), p.policy, namespace, "Deployment", "kcm")
				i := slices.IndexFunc(views, func(v snapshot.ProberView) bool { return v.Config.UID == c.config.UID })
				if i < 0 {
					t.Fatalf("nothing is said of %s in %s", c.config.Name, namespace)
				}
				want := p.fleet.CanScaleDown(probe.TargetKey{Config: c.config.UID, Namespace: namespace}, noon)
				got := views[i].Permit
				if c.untried[namespace] != "" {
					want = probe.Permit{Reason: probe.HeldUntriedKubeconfig, Message: "the external kubeconfig, in Secret out, has never worked since it was written"}
				}
				if c.held != "" {
					want = probe.Permit{Reason: c.held, Message: got.Message}
				}
				if got != want {
					t.Errorf("%s in %s: explain says %+v, the manager %+v", c.config.Name, namespace, got, want)
				}
			}
		}
	})
}
