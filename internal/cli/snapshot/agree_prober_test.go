package snapshot_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/explain"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
)

// probing is a manager that scales what a ProbeConfig names.
type probing struct {
	t       *rapid.T
	config  *v1alpha1.ProbeConfig
	read    *probe.Config
	objects []probe.Object
	stored  []client.Object
	missing []string
	now     time.Time
}

// unscalable is a kind of which the API server has no scale.
const unscalable = "DaemonSet"

func drawProbing(t *rapid.T) *probing {
	p := &probing{t: t, now: noon, config: &v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "main", UID: "main", Generation: 1}}}
	p.config.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, ObservedGeneration: 1}}
	p.config.Status.ProvenKubeconfigs = []v1alpha1.ProvenKubeconfig{{Namespace: "shoot", Mark: "0123456789abcdef"}}
	spec := &p.config.Spec
	spec.InternalKubeConfigSecretName, spec.ExternalKubeConfigSecretName = "in", "out"
	for i := range rapid.IntRange(1, 4).Draw(t, "dependents") {
		scale := func(what string) *v1alpha1.ScaleInfo {
			return &v1alpha1.ScaleInfo{Level: rapid.Int32Range(0, 2).Draw(t, what), InitialDelay: v1alpha1.Duration(rapid.SampledFrom([]string{"0s", "20s"}).Draw(t, "delay"))}
		}
		spec.DependentResourceInfos = append(spec.DependentResourceInfos, v1alpha1.DependentResourceInfo{
			Ref:      v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: rapid.SampledFrom([]string{"Deployment", "Deployment", "Deployment", unscalable}).Draw(t, "kind"), Name: fmt.Sprint("d", i)},
			Optional: new(rapid.Bool().Draw(t, "optional")), ScaleUp: scale("up"), ScaleDown: scale("down"),
		})
	}
	var err error
	if p.read, err = probe.NewConfig(p.config, "autohealer-system"); err != nil {
		t.Fatal(err)
	}
	for i := range p.read.Dependents {
		p.drawObject(i)
	}
	return p
}

// drawObject makes an object, as the manager reads it and as a file of facts has it.
func (p *probing) drawObject(i int) {
	t := p.t
	o := probe.Object{Generation: 7, Replicas: rapid.Int32Range(0, 3).Draw(t, "replicas")}
	asks := map[string]string{}
	since := metav1.NewTime(noon.Add(-time.Minute))
	recorded := func(owner, policy string) {
		o.Record = &probe.Record{Replicas: 2, Owner: "other", Policy: policy, Generation: 1, ObjectGeneration: 3, Since: since}
		if owner != "" {
			o.Record.Owner = p.config.UID
		}
		asks[v1alpha1.AnnotationOriginalReplicas] = o.Record.String()
	}
	name, kind := p.read.Dependents[i].Ref.Name, p.read.Dependents[i].Ref.Kind
	what := rapid.SampledFrom([]string{"", "", "", "missing", "ignored", "held", "held long ago", "taken", "taken", "another's", "broken"}).Draw(t, "object")
	if kind == unscalable {
		what = "no scale"
	}
	switch what {
	case "missing":
		o.Missing = true
	case "no scale":
		o.Unscalable = true
	case "ignored":
		o.Ignore, asks[rapid.SampledFrom([]string{v1alpha1.AnnotationIgnoreScaling, "dependency-watchdog.gardener.cloud/ignore-scaling"}).Draw(t, "whose")] = true, "true"
	case "held":
		asks[v1alpha1.AnnotationHoldUntil] = "2026-11-21T15:00:00Z"
	case "held long ago":
		asks[v1alpha1.AnnotationHoldUntil] = "2026-11-21T11:00:00Z"
	case "taken":
		recorded("main", "shoot/main")
		if o.Ignore = rapid.Bool().Draw(t, "ignored since"); o.Ignore {
			asks[v1alpha1.AnnotationIgnoreScaling] = "true"
		}
	case "another's":
		recorded("", "shoot/other")
	case "broken":
		asks[v1alpha1.AnnotationOriginalReplicas] = "two"
		_, err := probe.ParseRecord("two")
		o.RecordError = err.Error()
	}
	o.Current, o.Hold = o.Replicas, hold.Of(asks)
	p.objects = append(p.objects, o)
	switch {
	case o.Unscalable:
		p.missing = append(p.missing, unscalable+".v1.apps --subresource=scale (not served)")
	case o.Missing:
		p.missing = append(p.missing, "Deployment.v1.apps/"+name+" -n shoot --subresource=scale")
	default:
		p.stored = append(p.stored, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: name, Annotations: asks}, Spec: appsv1.DeploymentSpec{Replicas: &o.Replicas}})
	}
}

// scale lets the manager scale in a direction until it is done, and gives of each object what it did or found in the way.
func (p *probing) scale(want probe.Direction) []string {
	in := probe.Scaling{Config: p.read, Objects: slices.Clone(p.objects), Want: want, DecidedAt: p.now, Now: p.now, ServerTime: p.now}
	in.ProtectionSince = probe.ProtectionStart(p.read, in.Objects, probe.Protection{}, in.Now)
	did := make([]string, len(in.Objects))
	at := func(ref probe.Ref) int {
		return slices.IndexFunc(p.read.Dependents, func(d probe.Dependent) bool { return d.Ref == ref })
	}
	for range 100 {
		plan := probe.PlanScaling(in)
		for _, f := range plan.Findings {
			did[at(f.Ref)] = fmt.Sprintf("%s (%s)", f.Message, f.Reason)
		}
		for _, act := range plan.Acts {
			o := &in.Objects[at(act.Ref)]
			if did[at(act.Ref)] = "scaled"; act.Step == probe.StepScaleDown || act.Step == probe.StepScaleDownAgain {
				o.Record, o.Replicas, o.Generation = act.Record, 0, o.Generation+2
			} else if o.Record = nil; act.Step == probe.StepScaleUp {
				o.Replicas = act.Record.Replicas
			}
			o.Current = o.Replicas
		}
		if in.Flow = plan.Flow; plan.Done && len(plan.Acts) == 0 {
			return did
		}
		in.Now = in.Now.Add(time.Second)
	}
	p.t.Fatalf("the manager never gets done: %v", did)
	return nil
}

// says is what one reads of an object.
func (p *probing) says(f *snapshot.Facts, kind, name string) string {
	d := explain.Dependent{Namespace: "shoot", Kind: kind, Name: name, Configs: f.ViewProbers(p.t.Context(), guardrail.Policy{Limits: limit.Builtin()}, "shoot", kind, name)}
	for line := range strings.Lines(explain.Workload(strings.ToLower(kind)+"/"+name, d, nil, snapshot.Weeders{}, p.now, nil)) {
		if says, ok := strings.CutPrefix(line, "  ProbeConfig main: "); ok {
			return strings.TrimSpace(says)
		}
	}
	p.t.Fatalf("nothing is said of %s", name)
	return ""
}

// toSay is what is to be said of an object, by what the manager does with it in an outage, and after one.
func (p *probing) toSay(i int, down, up string) string {
	const probes = "while the probe from inside succeeds and the one from outside fails"
	o := p.objects[i]
	ours := o.Record != nil && o.Record.Owner == p.config.UID
	switch {
	case ours && o.Replicas == 0 && up == "scaled":
		return "scaled down from 2 replicas since 2026-11-21T11:59:00Z (60s); it gets them back a minute after the probe from outside succeeds again"
	case ours && o.Replicas == 0:
		return "scaled down from 2 replicas since 2026-11-21T11:59:00Z (60s); it doesn't get them back: " + up
	case down == "scaled":
		return "did nothing to it; it is scaled down " + probes
	case down != "":
		return "did nothing to it; it is left alone also " + probes + ": " + down
	}
	return "did nothing to it; it has no replicas that could be taken " + probes
}

// TestExplainAndScalingNeverDisagree: of every object that a ProbeConfig names, one reads what the manager does to it in an outage
// and after one, or why it doesn't, whatever its level and whatever stands beside it.
func TestExplainAndScalingNeverDisagree(t *testing.T) {
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		p := drawProbing(t)
		s := snapshot.Of(t, noon.Add(time.Hour), noon, append(p.stored, p.config)...)
		s.Answers(p.missing...)
		f, err := snapshot.NewWatchedFacts(t.Context(), s, g, "autohealer-system")
		if err != nil {
			t.Fatal(err)
		}
		down, up := p.scale(probe.Down), p.scale(probe.Up)
		for i, d := range p.read.Dependents {
			if got, want := p.says(f, d.Ref.Kind, d.Ref.Name), p.toSay(i, down[i], up[i]); got != want {
				t.Errorf("%s: one reads\n%s\nthe manager: %q, %q, of which one should read\n%s", d.Ref.Name, got, down[i], up[i], want)
			}
		}
	})
}
