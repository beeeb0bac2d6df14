package snapshot

import (
	"context"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

// targetsRead and targetsLooked bound what is told of one registration.
const (
	targetsRead   = 20000
	targetsLooked = 1000
)

// ForecastRegistration tells what a registration would have done at the snapshot's moment. What it names is read when it is
// asked where the snapshot was read live, and is that of the file otherwise.
func (f *Facts) ForecastRegistration(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration, limits limit.Limits, _ time.Time) (registration.Forecast, error) {
	if err := f.reads(hcr); err != nil {
		return registration.Forecast{}, err
	}
	return f.checksOf(checkedIn(f.snapshot)).Forecast(ctx, hcr, limits, f.snapshot.ServerTime.Time)
}

// reads says what a registration reads of objects that a file doesn't have of them.
func (f *Facts) reads(hcr *v1alpha1.HealthCheckRegistration) error {
	wants := registration.Fields{}
	if reg, problems := registration.Read(hcr); len(problems) == 0 {
		wants.Add(reg)
	}
	lacking := f.fields.Lacks(wants)
	if f.snapshot.live != nil || !f.snapshot.Trimmed || len(lacking) == 0 {
		return nil
	}
	return notInFacts("%s, which no stored registration reads, is", strings.Join(lacking[:min(3, len(lacking))], ", "))
}

// storedFields are what stored registrations read.
func storedFields(s *Snapshot) registration.Fields {
	fields := registration.Fields{}
	for _, hcr := range allOf[v1alpha1.HealthCheckRegistration](s.Objects) {
		if reg, problems := registration.Read(hcr); len(problems) == 0 {
			fields.Add(reg)
		}
	}
	return fields
}

func (f *Facts) checksOf(objects dependents.Objects) *dependents.Survey {
	return &dependents.Survey{
		Objects: objects, Read: targetsRead, Look: targetsLooked, Known: &f.known,
		Stored: func(context.Context) ([]*v1alpha1.HealthCheckRegistration, error) { return f.registrations(), nil },
	}
}

// registrations are those that are stored, or were applied since.
func (f *Facts) registrations() []*v1alpha1.HealthCheckRegistration {
	return allOf[v1alpha1.HealthCheckRegistration](f.snapshot.Objects)
}
