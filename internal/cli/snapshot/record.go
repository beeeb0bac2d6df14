package snapshot

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

// Record asks what the stored ProbeConfigs and HealthCheckRegistrations would do, so that the answers to what is asked on the way are
// there for the file. Warn is told what couldn't be read.
func (f *Facts) Record(ctx context.Context, warn func(text string)) error {
	for _, hcr := range f.registrations() {
		if _, err := f.checksOf(widely{checkedIn(f.snapshot)}).Forecast(ctx, hcr, limit.Builtin(), f.snapshot.ServerTime.Time); err != nil {
			warn("not all is known of what HealthCheckRegistration " + hcr.Name + " would do: " + err.Error())
		}
	}
	if f.snapshot.Knows("ProbeConfig") {
		objects := f.surveyed()
		objects.warn = warn
		reading := f.surveyWith(objects)
		for _, pc := range f.probers() {
			if _, err := reading.Forecast(ctx, pc, limit.Builtin(), time.Time{}); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// widely reads all targets of a kind, so that the file serves another registration for it, too.
type widely struct{ dependents.Objects }

// Targets gives those that a selector takes.
func (w widely) Targets(ctx context.Context, kind schema.GroupVersionKind, selector labels.Selector, most int) ([]*unstructured.Unstructured, bool, error) {
	objects, more, err := w.Objects.Targets(ctx, kind, labels.Everything(), most)
	return slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return !selector.Matches(labels.Set(o.GetLabels())) }), more, err
}
