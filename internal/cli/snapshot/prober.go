package snapshot

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/survey"
)

// ForecastProbeConfig tells what a config would have done at the snapshot's moment, and step by step what it would scale. What
// it names is read when it is asked where the snapshot was read live, and is that of the file otherwise.
func (f *Facts) ForecastProbeConfig(ctx context.Context, pc *v1alpha1.ProbeConfig, limits limit.Limits, _ time.Time) (probe.Forecast, error) {
	ahead := &probe.Simulation{Now: f.snapshot.TakenAt.Time}
	if stored := one[v1alpha1.ProbeConfig](f.snapshot.Objects, client.ObjectKeyFromObject(pc)); stored != nil {
		ahead.Scaled = stored.Status.Scaled
	}
	forecast, err := f.survey().ForecastItems(ctx, pc, limits, ahead.Now, ahead)
	return forecast, unreadable(err)
}

// unreadable: what the user may not read, who needn't be allowed to read Secrets, isn't known.
func unreadable(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %w", guard.ErrNotKnown, err)
	}
	return err
}

// probers are the ProbeConfigs that are stored, or were applied since.
func (f *Facts) probers() []*v1alpha1.ProbeConfig {
	return allOf[v1alpha1.ProbeConfig](f.snapshot.Objects)
}

// ProbedNow is how the targets of the stored ProbeConfig of this name are, by its status; nil when that doesn't tell.
func (f *Facts) ProbedNow(key types.NamespacedName) *v1alpha1.TargetCounts {
	if pc := one[v1alpha1.ProbeConfig](f.snapshot.Objects, key); pc != nil {
		return pc.Status.Targets
	}
	return nil
}

// ProbeBreakerOpen says whether the breaker of ProbeConfigs is open, which is one for all.
func (f *Facts) ProbeBreakerOpen() bool {
	return slices.ContainsFunc(f.probers(), func(pc *v1alpha1.ProbeConfig) bool { return pc.Status.BreakerID != "" })
}

func (f *Facts) survey() *survey.Survey {
	cluster := &survey.Informers{Cache: f.snapshot.Objects, Weeder: f.weeder}
	return &survey.Survey{Cluster: cluster, Objects: f.snapshot, OwnNamespace: f.ownNamespace, Annotated: true}
}

// ProberView is how a stored ProbeConfig stands to an object that it names.
type ProberView struct {
	Config v1alpha1.ProbeConfig
	// Object as it is; nil when it can't be read.
	Object *probe.Object
	// Down is what the planner says of it when it is to be scaled down, Up when it is to be given back what was taken.
	Down, Up probe.Verdict
	// Permit says whether the object's target may be scaled down now, for all that the configs' statuses tell.
	Permit probe.Permit
}

// Ours is the record on the object of what the config took from it; nil when there is none.
func (v *ProberView) Ours() *probe.Record {
	if v.Object == nil || v.Object.Record == nil || v.Object.Record.Owner != v.Config.UID && v.Object.Record.Policy != v.Config.Namespace+"/"+v.Config.Name {
		return nil
	}
	return v.Object.Record
}

// DependentKind is the kind of this name, in lower case and perhaps in the plural, of which stored ProbeConfigs name an object; ""
// when none does.
func (f *Facts) DependentKind(name string) string {
	for _, pc := range f.probers() {
		for _, d := range pc.Spec.DependentResourceInfos {
			if kind := strings.ToLower(d.Ref.Kind); kind == name || kind+"s" == name {
				return d.Ref.Kind
			}
		}
	}
	return ""
}

// ViewProbers gives the stored ProbeConfigs that name an object, by namespace and name, and what the planner that the
// controller asks says of it.
func (f *Facts) ViewProbers(ctx context.Context, policy guardrail.Policy, namespace, kind, name string) []ProberView {
	fleet := f.probedFleet(policy)
	var views []ProberView
	for _, pc := range f.probers() {
		c, err := probe.NewConfig(pc, f.ownNamespace)
		if err != nil || !f.targets(c, namespace) {
			continue
		}
		d := slices.IndexFunc(c.Dependents, func(d probe.Dependent) bool { return d.Ref.Kind == kind && d.Ref.Name == name })
		if d >= 0 {
			v := f.viewProber(ctx, *pc, c, c.Dependents[d], namespace)
			v.Permit = f.permit(fleet, policy, pc, c, namespace)
			views = append(views, v)
		}
	}
	return views
}

// OrphanOn is the record on a workload that no stored ProbeConfig names; nil when there is none, or it can't be read.
func (f *Facts) OrphanOn(ctx context.Context, namespace, kind, name string) *probe.Record {
	o, err := f.scaled(ctx, namespace, probe.Ref{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: kind, Name: name})
	if err != nil || o.Missing || o.Replicas > 0 {
		return nil
	}
	return o.Record
}

func (f *Facts) viewProber(ctx context.Context, pc v1alpha1.ProbeConfig, c *probe.Config, d probe.Dependent, namespace string) ProberView {
	v := ProberView{Config: pc}
	o, err := f.scaled(ctx, namespace, d.Ref)
	if err != nil {
		return v // not known, as to a user who may not read it
	}
	of, now := *c, f.snapshot.ServerTime.Time
	of.Dependents = []probe.Dependent{d}
	in := probe.Scaling{Config: &of, Objects: []probe.Object{o}, Want: probe.Down, Now: now, ServerTime: now}
	in.ProtectionSince = probe.ProtectionStart(&of, in.Objects, probe.Protection{}, now)
	v.Object, v.Down = &o, in.Verdict(0)
	in.Want = probe.Up
	v.Up = in.Verdict(0)
	return v
}

// scaled is an object as the planner reads it. One that has a record and replicas was scaled by somebody since: that the
// manager died between two writes, no look from outside tells.
func (f *Facts) scaled(ctx context.Context, namespace string, ref probe.Ref) (probe.Object, error) {
	d, err := f.snapshot.Dependent(ctx, namespace, ref)
	if err != nil {
		return probe.Object{}, err
	}
	o := probe.Object{Missing: d.Missing, Unscalable: d.Unscalable, Replicas: d.Replicas, Current: d.Replicas, Generation: math.MaxInt64}
	annotations, err := f.snapshot.Annotations(ctx, namespace, ref)
	if err != nil {
		return probe.Object{}, err
	}
	o.Ignore, o.Hold = probe.Ignored(annotations), hold.Of(annotations)
	if o.Record, err = probe.ParseRecord(annotations[v1alpha1.AnnotationOriginalReplicas]); err != nil {
		o.RecordError = err.Error()
	}
	return o, nil
}

// targets says whether a namespace is one of a config's.
func (f *Facts) targets(c *probe.Config, namespace string) bool {
	if c.Namespaces == nil {
		return c.Namespace == namespace
	}
	stored := one[corev1.Namespace](f.snapshot.Objects, types.NamespacedName{Name: namespace})
	return stored != nil && c.Namespaces.Matches(labels.Set(stored.Labels))
}

// probedFleet is the controller's, as far as the stored configs' statuses tell.
func (f *Facts) probedFleet(policy guardrail.Policy) *probe.Fleet {
	fleet, breaker := probe.NewFleet(policy.Limits), ""
	for _, pc := range f.probers() {
		if pc.Status.Targets != nil {
			f.addTargets(fleet, pc)
		}
		breaker = max(breaker, pc.Status.BreakerID) // they are in the order of time
	}
	if breaker != "" {
		fleet.FollowBreaker(&limit.Opening{ID: breaker, OpenedAt: probe.BreakerOpenedAt(breaker)})
	}
	return fleet
}

// addTargets takes in a config's targets. A status names only some; those that it doesn't name get names that no namespace has.
func (f *Facts) addTargets(fleet *probe.Fleet, pc *v1alpha1.ProbeConfig) {
	counts, now := pc.Status.Targets, f.snapshot.ServerTime.Time
	down := downIn(pc)
	inForce := pc.Spec.Mode != v1alpha1.Observe && pc.DeletionTimestamp == nil && meta.IsStatusConditionTrue(pc.Status.Conditions, v1alpha1.ConditionAccepted)
	for i := range max(counts.Probed, counts.ScaledDown) {
		t := probe.TargetKey{Config: pc.UID, Namespace: fmt.Sprint("#", i)}
		switch {
		case pc.Spec.NamespaceSelector == nil:
			t.Namespace = pc.Namespace
		case int(i) < len(down):
			t.Namespace = down[i]
		}
		fleet.Add(t, pc.Namespace != f.ownNamespace)
		fleet.SetActive(t, inForce && int(i) < workingTargets(pc), now)
		if i < counts.Probed {
			fleet.ObserveRun(t, &probe.State{}, now)
		}
		fleet.ObserveDown(t, i < counts.ScaledDown)
	}
}

// targetWorks says whether a target's external kubeconfig works, by a config's status. A status that tells of one may mean the one before it: that
// the one that is there never worked is reported once it fails.
func targetWorks(pc *v1alpha1.ProbeConfig, namespace string) bool {
	proven := func(p v1alpha1.ProvenKubeconfig) bool { return p.Namespace == namespace }
	fails := func(t v1alpha1.TargetState) bool {
		return t.Namespace == namespace && t.Reason == v1alpha1.ReasonKubeconfigUntried
	}
	all := pc.Status.ProvenKubeconfigs
	return (len(all) >= probe.MaxProvenKubeconfigs || slices.ContainsFunc(all, proven)) && !slices.ContainsFunc(pc.Status.WorstTargets, fails)
}

// workingTargets is how many targets of a config count for others, as far as its status tells.
func workingTargets(pc *v1alpha1.ProbeConfig) int {
	all := pc.Status.ProvenKubeconfigs
	if len(all) >= probe.MaxProvenKubeconfigs {
		return math.MaxInt
	}
	n := 0
	for _, p := range all {
		if targetWorks(pc, p.Namespace) {
			n++
		}
	}
	return n
}

// downIn are the namespaces in which a status names objects that are scaled down.
func downIn(pc *v1alpha1.ProbeConfig) []string {
	var namespaces []string
	for _, s := range pc.Status.Scaled {
		namespaces = append(namespaces, s.Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// permit says whether a config may scale down a target now.
func (f *Facts) permit(fleet *probe.Fleet, policy guardrail.Policy, pc *v1alpha1.ProbeConfig, c *probe.Config, namespace string) probe.Permit {
	accepted := verdictOf(pc)
	switch {
	case accepted == nil:
		return probe.Permit{Reason: "NotJudged", Message: "the manager hasn't judged the config as it is now"}
	case accepted.Status != metav1.ConditionTrue:
		return probe.Permit{Reason: probe.Reason(accepted.Reason), Message: "the rules refuse the config"}
	case len(policy.PausedBy) > 0:
		return probe.Permit{Reason: v1alpha1.ReasonPaused, Message: "Guardrail " + strings.Join(policy.PausedBy, ", ") + " pauses all new acts"}
	}
	of := probe.Target{Namespace: namespace, Config: c, Credentials: probe.Credentials{Config: c}}
	if targetWorks(pc, namespace) {
		of.ProvenMark = of.Credentials.External.Mark()
	}
	if held := of.CanScaleDown(); !held.Allowed { // of the target itself
		return held
	}
	t, now := probe.TargetKey{Config: pc.UID, Namespace: namespace}, f.snapshot.ServerTime.Time
	probed := pc.Status.Targets != nil && pc.Status.Targets.Probed > 0
	if pc.Spec.NamespaceSelector != nil || !probed {
		fleet.Add(t, pc.Namespace != f.ownNamespace)
		fleet.ObserveDown(t, slices.Contains(downIn(pc), namespace))
	}
	if !probed { // before it is scaled down it is
		fleet.SetActive(t, true, now)
		fleet.ObserveRun(t, &probe.State{}, now)
	}
	return fleet.CanScaleDown(t, now)
}
