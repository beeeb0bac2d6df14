package cli

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/resourcestack/autohealer/internal/cli/soundness"
)

// TestALookEnds at an API server that takes requests and doesn't answer, with --wait and without.
func TestALookEnds(t *testing.T) {
	for within, want := range map[time.Duration]time.Duration{0: time.Minute, 90 * time.Second: 90 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			app := &App{IOStreams: genericiooptions.NewTestIOStreamsDiscard(), Clock: clock.RealClock{}}
			began := time.Now()
			_, err := app.awaitSound(t.Context(), within, func(ctx context.Context) (*soundness.Report, error) {
				select {
				case <-ctx.Done():
				case <-time.After(time.Hour):
				}
				return nil, ctx.Err()
			})
			if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != want {
				t.Errorf("--timeout=%s: after %s: %v", within, took, err)
			}
		})
	}
}

// TestALookThatIsCutOffSaysLessThanTheOneBefore is not an error of the whole.
func TestALookThatIsCutOffSaysLessThanTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := &App{IOStreams: genericiooptions.NewTestIOStreamsDiscard(), Clock: clock.RealClock{}}
		first := &soundness.Report{}
		looks := 0
		got, err := app.awaitSound(t.Context(), 2*time.Second, func(ctx context.Context) (*soundness.Report, error) {
			if looks++; looks == 1 {
				return first, nil
			}
			<-ctx.Done()
			return nil, fmt.Errorf("get deployments: %w", ctx.Err())
		})
		if got != first || err != nil {
			t.Errorf("after %d looks: %v, %v", looks, got, err)
		}
	})
}
