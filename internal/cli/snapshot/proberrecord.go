package snapshot

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kube/survey"
)

// Record reads what the stored ProbeConfigs and HealthCheckRegistrations name, for the file. Warn is told what couldn't be read.
func (f *Facts) Record(ctx context.Context, warn func(text string)) error {
	if err := f.recordChecked(ctx, warn); err != nil {
		return err
	}
	return f.recordProbed(ctx, warn)
}

func (f *Facts) recordProbed(ctx context.Context, warn func(text string)) error {
	if !f.KnowsProbed() || f.snapshot.live == nil {
		return nil
	}
	r := &recorder{Objects: f.snapshot.live, into: f.snapshot.Probed, warn: warn}
	reading := f.surveyWith(r)
	for i := range f.snapshot.ProbeConfigs {
		if _, err := reading.Forecast(ctx, &f.snapshot.ProbeConfigs[i], limit.Builtin(), time.Time{}); err != nil {
			return err
		}
	}
	r.sort()
	return ctx.Err()
}

// recorder writes down what is read. What can't be read isn't known, also later from the file.
type recorder struct {
	survey.Objects
	warn func(text string)

	mu   sync.Mutex
	into *Probed // needs mu
}

func (r *recorder) Kubeconfig(ctx context.Context, namespace, secret string) (probe.KubeconfigFacts, error) {
	facts, err := r.Objects.Kubeconfig(ctx, namespace, secret)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.warn("nothing is known of where a ProbeConfig leads: " + err.Error())
		return facts, nil
	}
	if _, err := r.into.Kubeconfig(ctx, namespace, secret); err != nil {
		r.into.Kubeconfigs = append(r.into.Kubeconfigs, Kubeconfig{
			Namespace: namespace, Secret: secret, Missing: facts.Missing, Unsafe: facts.Unsafe, Server: facts.Server,
		})
	}
	return facts, nil
}

func (r *recorder) Dependent(ctx context.Context, namespace string, ref probe.Ref) (survey.Dependent, error) {
	d, err := r.Objects.Dependent(ctx, namespace, ref)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.warn("nothing is known of what a ProbeConfig scales: " + err.Error())
		return d, nil
	}
	if _, err := r.into.Dependent(ctx, namespace, ref); err != nil {
		r.into.Dependents = append(r.into.Dependents, Dependent{
			Namespace: namespace, Ref: v1alpha1.DependentRef(ref), Missing: d.Missing, Unscalable: d.Unscalable, Replicas: d.Replicas, Pods: d.Pods,
		})
	}
	return d, nil
}

// Annotations are asked for after the dependent.
func (r *recorder) Annotations(ctx context.Context, namespace string, ref probe.Ref) (map[string]string, error) {
	annotations, err := r.Objects.Annotations(ctx, namespace, ref)
	if err != nil {
		r.warn("nothing is known of what people ask for on what a ProbeConfig scales: " + err.Error())
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.into.Dependents {
		d := &r.into.Dependents[i]
		if d.Namespace != namespace || probe.Ref(d.Ref) != ref {
			continue
		}
		for _, ask := range asks {
			if text, there := annotations[ask]; there {
				if d.Annotations == nil {
					d.Annotations = map[string]string{}
				}
				d.Annotations[ask] = text
			}
		}
	}
	return annotations, nil
}

// sort makes the same cluster give the same file.
func (r *recorder) sort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.into.Kubeconfigs, func(a, b Kubeconfig) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Secret, b.Secret))
	})
	slices.SortFunc(r.into.Dependents, func(a, b Dependent) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(probe.Ref(a.Ref).String(), probe.Ref(b.Ref).String()), cmp.Compare(a.Ref.APIVersion, b.Ref.APIVersion))
	})
}
