package healthcheck

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

type checkFunc func(ctx context.Context) (*SingleCheckResult, error)

func (f checkFunc) Check(ctx context.Context, _ types.NamespacedName) (*SingleCheckResult, error) {
	return f(ctx)
}

func runOf(name string, f checkFunc) check {
	return check{"X", name, func() HealthCheck { return f }}
}

func outcomes(r *runner, checks ...check) map[string]health.Result {
	byName := map[string]health.Result{}
	for _, result := range r.runAll(context.Background(), r.seed, types.NamespacedName{Name: "t"}, checks) {
		byName[result.Check] = result
	}
	return byName
}

func TestWhatChecksReturn(t *testing.T) {
	threshold := time.Minute
	for name, tt := range map[string]struct {
		check  checkFunc
		want   health.Status
		detail string
	}{
		"true": {func(context.Context) (*SingleCheckResult, error) { return &SingleCheckResult{Status: "True"}, nil }, "True", ""},
		"false": {func(context.Context) (*SingleCheckResult, error) {
			return &SingleCheckResult{Status: "False", Detail: "broken"}, nil
		}, "False", "broken"},
		"progressing": {func(context.Context) (*SingleCheckResult, error) {
			return &SingleCheckResult{Status: "Progressing", ProgressingThreshold: &threshold}, nil
		}, "Progressing", ""},
		"an error": {func(context.Context) (*SingleCheckResult, error) { return nil, errors.New("no answer") }, "Unknown", "no answer"},
		"nothing":  {func(context.Context) (*SingleCheckResult, error) { return nil, nil }, "Unknown", "the check gave no result"},
		"a panic":  {func(context.Context) (*SingleCheckResult, error) { panic("secret") }, "Unknown", "the check panicked; the log has the stack"},
		"a nil pointer": {func(context.Context) (*SingleCheckResult, error) {
			var none *SingleCheckResult
			return &SingleCheckResult{Detail: none.Detail}, nil
		}, "Unknown", "the check panicked; the log has the stack"},
		"the end of its goroutine": {func(context.Context) (*SingleCheckResult, error) { runtime.Goexit(); return nil, nil }, "Unknown", "the check ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			got := outcomes(&runner{timeout: time.Minute}, runOf("a", tt.check))["a"]
			if got.Status != tt.want || got.Detail != tt.detail || tt.want == "Progressing" && got.Timeout != threshold {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestAConstructorThatPanics(t *testing.T) {
	got := outcomes(&runner{timeout: time.Minute}, check{"X", "a", func() HealthCheck { panic("no") }}, check{"X", "b", func() HealthCheck { return nil }})
	if got["a"].Status != "Unknown" || got["b"].Detail != "no check was made" {
		t.Errorf("%+v", got)
	}
}

func TestLateChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &runner{timeout: 10 * time.Second}
		release := make(chan struct{})
		var runs atomic.Int32
		hangs := runOf("hangs", func(context.Context) (*SingleCheckResult, error) {
			runs.Add(1)
			<-release
			return &SingleCheckResult{Status: "False"}, nil
		})
		obeys := runOf("obeys", func(ctx context.Context) (*SingleCheckResult, error) { <-ctx.Done(); return nil, ctx.Err() })
		fine := runOf("fine", func(context.Context) (*SingleCheckResult, error) { return &SingleCheckResult{Status: "True"}, nil })
		began := time.Now()
		for range 3 {
			got := outcomes(r, hangs, obeys, fine)
			for _, name := range []string{"hangs", "obeys"} {
				if got[name].Status != "Unknown" || got[name].Detail != "the check gave no result within 10s" {
					t.Errorf("%s: %+v", name, got[name])
				}
			}
			if got["fine"].Status != "True" {
				t.Errorf("fine: %+v", got["fine"])
			}
			synctest.Wait() // the one that obeys comes back at its deadline, but maybe after the round
		}
		if took := time.Since(began); took != 30*time.Second || runs.Load() != 1 {
			t.Errorf("three rounds took %s, and the check that hangs was begun %d times", took, runs.Load())
		}
		close(release)
		synctest.Wait()
		if got := outcomes(r, hangs)["hangs"]; got.Status != "False" {
			t.Errorf("after it returned: %+v", got)
		}
	})
}

func TestRegistrationsThatAreRefused(t *testing.T) {
	fine := func() HealthCheck { return checkFunc(nil) }
	for name, tt := range map[string]struct {
		registration *Registration
		want         string
	}{
		"no check":                   {For(deployment), "there is no check"},
		"twice":                      {For(deployment).Check("X", "a", fine).Check("X", "a", fine), `check "a" of X is there twice`},
		"a reserved type":            {For(deployment).Check("Ready", "a", fine), "condition type Ready is its controller's own"},
		"a malformed type":           {For(deployment).Check("No spaces", "a", fine), `"No spaces" is no condition type`},
		"no name":                    {For(deployment).Check("X", "", fine), "a check of X has no name"},
		"nil":                        {For(deployment).Check("X", "a", nil), `check "a" of X is nil`},
		"a short sync period":        {For(deployment, WithSyncPeriod(time.Second)).Check("X", "a", fine), "a sync period of 1s is less than 5s"},
		"a long timeout":             {For(deployment, WithCheckTimeout(time.Hour)).Check("X", "a", fine), "a check timeout of 1h0m0s isn't between zero and the sync period, 30s"},
		"removed and checked":        {For(deployment, WithoutConditions("X")).Check("X", "a", fine), "condition type X has checks and is to be removed"},
		"the same name in two types": {For(deployment).Check("X", "a", fine).Check("Y", "a", fine), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := tt.registration.validate()
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestTheTimeoutIsHalfAShortSyncPeriod(t *testing.T) {
	if got := For(deployment).checkTimeout; got != 10*time.Second {
		t.Errorf("%s", got)
	}
	if got := For(deployment, WithSyncPeriod(8*time.Second)).checkTimeout; got != 4*time.Second {
		t.Errorf("%s", got)
	}
}
