package survey

import (
	"context"
	"fmt"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// Outlook tells step by step what a config would scale if it were in force at that time, in place of stored, which may be
// nil. A config that can't be read would do nothing. The error is that of the first object that couldn't be read.
func (s *Survey) Outlook(ctx context.Context, pc, stored *v1alpha1.ProbeConfig, now time.Time) (probe.Outlook, error) {
	c, err := probe.NewConfig(pc, s.OwnNamespace)
	if err != nil {
		return probe.Outlook{}, nil //nolint:nilerr // a rule says so
	}
	seen, err := s.look(ctx, c)
	if err != nil {
		return probe.Outlook{}, fmt.Errorf("look at what the ProbeConfig names: %w", err)
	}
	var scaled []v1alpha1.ScaledDependent
	if stored != nil {
		scaled = stored.Status.Scaled
	}
	return probe.OutlookOf(c, seen, scaled, now), nil
}
