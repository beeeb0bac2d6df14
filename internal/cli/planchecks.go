package cli

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/report"
	"github.com/resourcestack/autohealer/internal/guard"
)

func (a *App) planChecks(ctx context.Context, w *world, p *report.Plan) error {
	hcr := &v1alpha1.HealthCheckRegistration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Report.Stored, hcr); err != nil {
		return fmt.Errorf("read HealthCheckRegistration: %w", err)
	}
	if !w.facts.KnowsChecked() {
		return fmt.Errorf("HealthCheckRegistration %s: the facts have nothing of what registrations are about; write them anew with facts export", hcr.Name)
	}
	p.Checks = &report.ChecksPlan{Registration: hcr}
	var err error
	p.Checks.Preview, p.Checks.Outlook, err = w.facts.OutlookOfRegistration(ctx, hcr)
	if errors.Is(err, guard.ErrNotKnown) {
		p.Checks.Unknown, err = err.Error(), nil
	}
	if p.Report.Allowed {
		w.facts.ApplyRegistration(hcr)
	}
	return err
}
