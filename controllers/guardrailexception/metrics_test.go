package guardrailexception

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
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

func TestTheGaugeTellsWhetherAnExceptionHoldsAndGoesWithIt(t *testing.T) {
	activeGauge.WithLabelValues("a").Set(1)
	activeGauge.WithLabelValues("b").Set(1)
	activeGauge.WithLabelValues("b").Set(0)
	want := []string{`autohealer_guardrailexception_active{exception="a"} 1`, `autohealer_guardrailexception_active{exception="b"} 0`}
	if got := scrape(t, activeGauge); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	activeGauge.DeleteLabelValues("a")
	activeGauge.DeleteLabelValues("b")
	if got := scrape(t, activeGauge); len(got) > 0 {
		t.Errorf("after they are gone\n%s", strings.Join(got, "\n"))
	}
}
