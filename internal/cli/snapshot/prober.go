package snapshot

import (
	"context"
	"fmt"
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/survey"
)

// Probed is what the planner of ProbeConfigs reads, beside namespaces, Services and pods.
type Probed struct {
	Autoscalers []Autoscaler `json:"autoscalers,omitempty"`
	// Kubeconfigs and Dependents are those that stored ProbeConfigs name.
	Kubeconfigs []Kubeconfig `json:"kubeconfigs,omitempty"`
	Dependents  []Dependent  `json:"dependents,omitempty"`
}

// Autoscaler scales an object.
type Autoscaler struct {
	Namespace string                `json:"namespace"`
	Name      string                `json:"name"`
	Scales    v1alpha1.DependentRef `json:"scales"`
}

// Kubeconfig is what a Secret holds, without anything that is secret.
type Kubeconfig struct {
	Namespace string `json:"namespace"`
	Secret    string `json:"secret"`
	Missing   bool   `json:"missing,omitempty"`
	Unsafe    string `json:"unsafe,omitempty"`
	Server    string `json:"server,omitempty"`
}

// Dependent is the scale of an object.
type Dependent struct {
	Namespace  string                `json:"namespace"`
	Ref        v1alpha1.DependentRef `json:"ref"`
	Missing    bool                  `json:"missing,omitempty"`
	Unscalable bool                  `json:"unscalable,omitempty"`
	Replicas   int32                 `json:"replicas,omitempty"`
	Pods       string                `json:"pods,omitempty"`
	// Annotations are those that ask Autohealer to keep off, and what it recorded.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// asks are the annotations by which people keep Autohealer off a dependent, and its own record.
var asks = []string{v1alpha1.AnnotationHoldUntil, v1alpha1.AnnotationIgnoreScaling, v1alpha1.AnnotationOriginalReplicas}

func (p *Probed) addAutoscaler(hpa *autoscalingv2.HorizontalPodAutoscaler) {
	read := survey.ReadAutoscaler(hpa)
	p.Autoscalers = append(p.Autoscalers, Autoscaler{Namespace: hpa.Namespace, Name: read.Name, Scales: v1alpha1.DependentRef(read.Scales)})
}

// Kubeconfig is what the file tells of a Secret.
func (p *Probed) Kubeconfig(_ context.Context, namespace, secret string) (probe.KubeconfigFacts, error) {
	for _, k := range p.Kubeconfigs {
		if k.Namespace == namespace && k.Secret == secret {
			return probe.KubeconfigFacts{Missing: k.Missing, Unsafe: k.Unsafe, Server: k.Server}, nil
		}
	}
	return probe.KubeconfigFacts{}, fmt.Errorf("%w: Secret %s/%s is not in the facts", guard.ErrNotKnown, namespace, secret)
}

// Dependent is what the file tells of an object.
func (p *Probed) Dependent(_ context.Context, namespace string, ref probe.Ref) (survey.Dependent, error) {
	for _, d := range p.Dependents {
		if d.Namespace == namespace && probe.Ref(d.Ref) == ref {
			return survey.Dependent{Missing: d.Missing, Unscalable: d.Unscalable, Replicas: d.Replicas, Pods: d.Pods}, nil
		}
	}
	return survey.Dependent{}, fmt.Errorf("%w: %s in namespace %s is not in the facts", guard.ErrNotKnown, ref, namespace)
}

// Annotations is what the file tells that people ask for.
func (p *Probed) Annotations(_ context.Context, namespace string, ref probe.Ref) (map[string]string, error) {
	for _, d := range p.Dependents {
		if d.Namespace == namespace && probe.Ref(d.Ref) == ref {
			return d.Annotations, nil
		}
	}
	return nil, nil
}

// cluster is the snapshot as the survey asks it.
type cluster struct{ *Facts }

func (c cluster) Namespaces(_ context.Context, selector labels.Selector) ([]string, error) {
	var names []string
	for _, ns := range c.snapshot.Workloads.Namespaces {
		if !ns.Unprobed && selector.Matches(labels.Set(ns.Labels)) {
			names = append(names, ns.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (c cluster) ServiceAt(_ context.Context, namespace, host string) (string, error) {
	for _, svc := range c.snapshot.Workloads.Services {
		if svc.Namespace == namespace && slices.Contains(svc.Addresses, host) {
			return svc.Name, nil
		}
	}
	return "", nil
}

func (c cluster) Backs(service types.NamespacedName, pods labels.Selector) bool {
	return c.yard.Backs(service, pods)
}

func (c cluster) RunsAutohealer(namespace string, pods labels.Selector) bool {
	return c.yard.RunsAutohealer(namespace, pods)
}

func (c cluster) Autoscalers(_ context.Context, namespace string) ([]survey.Autoscaler, error) {
	var scalers []survey.Autoscaler
	for _, a := range c.snapshot.Probed.Autoscalers {
		if a.Namespace == namespace {
			scalers = append(scalers, survey.Autoscaler{Scales: probe.Ref(a.Scales), Name: a.Name})
		}
	}
	return scalers, nil
}

func (c cluster) Configs(_ context.Context, namespace string) ([]v1alpha1.ProbeConfig, error) {
	var of []v1alpha1.ProbeConfig
	for i := range c.probers {
		if pc := &c.probers[i]; pc.Namespace == namespace {
			of = append(of, *pc)
		}
	}
	return of, nil
}

func (c cluster) Counts(context.Context) (survey.Counts, error) {
	return survey.CountsOf(c.probers), nil
}

func (c cluster) Holds(ctx context.Context, selector labels.Selector, namespace string) (bool, error) {
	namespaces, err := c.Namespaces(ctx, selector)
	return slices.Contains(namespaces, namespace), err
}

// KnowsProbed says whether the snapshot has what ProbeConfigs are about.
func (f *Facts) KnowsProbed() bool { return f.KnowsWorkloads() && f.snapshot.Probed != nil }

// ForecastProbeConfig tells what a config would have done at the snapshot's moment, and step by step what it would scale. What
// it names is read when it is asked where the snapshot was read live, and is that of the file otherwise.
func (f *Facts) ForecastProbeConfig(ctx context.Context, pc *v1alpha1.ProbeConfig, limits limit.Limits, _ time.Time) (probe.Forecast, error) {
	ahead := &probe.Ahead{Now: f.snapshot.TakenAt.Time}
	if stored := f.prober(types.NamespacedName{Namespace: pc.Namespace, Name: pc.Name}); stored != nil {
		ahead.Scaled = stored.Status.Scaled
	}
	forecast, err := f.surveyWith(f.snapshot.objects()).ForecastItems(ctx, pc, limits, ahead)
	return forecast, known(err)
}

// known: what the user may not read, who needn't be allowed to read Secrets, isn't known.
func known(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: %w", guard.ErrNotKnown, err)
	}
	return err
}

// prober is the ProbeConfig of this name that is stored, or was applied since; nil when there is none.
func (f *Facts) prober(key types.NamespacedName) *v1alpha1.ProbeConfig {
	for i := range f.probers {
		if pc := &f.probers[i]; pc.Namespace == key.Namespace && pc.Name == key.Name {
			return pc
		}
	}
	return nil
}

// ProbedNow is how the targets of the stored ProbeConfig of this name are, by its status; nil when that doesn't tell.
func (f *Facts) ProbedNow(key types.NamespacedName) *v1alpha1.TargetCounts {
	if pc := f.prober(key); pc != nil {
		return pc.Status.Targets
	}
	return nil
}

// ProbeBreakerOpen says whether the breaker of ProbeConfigs is open, which is one for all.
func (f *Facts) ProbeBreakerOpen() bool {
	return slices.ContainsFunc(f.probers, func(pc v1alpha1.ProbeConfig) bool { return pc.Status.BreakerID != "" })
}

// ApplyProbeConfig puts an admitted config in place of the stored one of its name. What is asked next is answered with it in
// force.
func (f *Facts) ApplyProbeConfig(pc *v1alpha1.ProbeConfig) {
	f.snapshot.rewrite("ProbeConfig", pc)
	if stored := f.prober(types.NamespacedName{Namespace: pc.Namespace, Name: pc.Name}); stored != nil {
		stored.Spec = *pc.Spec.DeepCopy()
		return
	}
	f.probers = append(f.probers, *pc.DeepCopy())
}

func (f *Facts) surveyWith(objects survey.Objects) *survey.Survey {
	return &survey.Survey{Cluster: cluster{f}, Objects: objects, OwnNamespace: f.ownNamespace, Annotated: true}
}

// objects are read live where that is possible.
func (s *Snapshot) objects() survey.Objects {
	if s.live != nil {
		return s.live
	}
	return s.Probed
}
