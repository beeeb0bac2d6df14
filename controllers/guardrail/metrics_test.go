package guardrail

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"github.com/resourcestack/autohealer/internal/domain/guardrail"
)

// scrape is what a metrics endpoint would show of the collectors, without comments.
func scrape(t *testing.T, collectors ...prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return slices.DeleteFunc(strings.Split(text.String(), "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "#") })
}

func TestASecondManagerInOneProcessSharesTheMetrics(t *testing.T) {
	for range 2 {
		if err := registerMetrics(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheGaugesTellWhatIsInForceAndGoWithTheirGuardrail(t *testing.T) {
	rulesGauge.Set(3)
	gaugePolicy(guardrail.Policy{PausedBy: []string{"a", "b"}, FrozenBy: []string{"b"}})
	rejectsGauge.WithLabelValues("platform").Set(2)
	want := []string{
		"autohealer_guardrail_frozen 1",
		"autohealer_guardrail_paused 1",
		`autohealer_guardrail_rejected_policies{guardrail="platform"} 2`,
		"autohealer_guardrail_rules 3",
	}
	if got := scrape(t, rulesGauge, pausedGauge, frozenGauge, rejectsGauge); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	gaugePolicy(guardrail.Policy{})
	rejectsGauge.DeleteLabelValues("platform")
	if got := scrape(t, pausedGauge, frozenGauge, rejectsGauge); !slices.Equal(got, []string{"autohealer_guardrail_frozen 0", "autohealer_guardrail_paused 0"}) {
		t.Errorf("after it is gone\n%s", strings.Join(got, "\n"))
	}
}
