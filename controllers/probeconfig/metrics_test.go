package probeconfig

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// scrape is what a metrics endpoint would show, without comments.
func scrape(t *testing.T) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(scalingsTotal, scaleDownDelay, targetsGauge, limitGauge, breakerGauge, eventsDropped)
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

func TestWhatTheMetricsShowAndThatTheyGoWithTheConfig(t *testing.T) {
	for _, v := range []interface{ Reset() }{scalingsTotal, targetsGauge, limitGauge, breakerGauge} {
		v.Reset()
	}
	w := newEnv(t, 2, nil)
	w.probe("shoot-1", probe.OK, probe.OK)
	w.keep()
	acts := func() []string {
		return slices.DeleteFunc(scrape(t), func(line string) bool { return !strings.HasPrefix(line, "autohealer_probeconfig_scalings_total") })
	}
	if begin := acts(); len(begin) != 9 || slices.ContainsFunc(begin, func(line string) bool { return !strings.HasSuffix(line, "} 0") }) {
		t.Errorf("counters begin as %q", begin)
	}
	w.fail("shoot-0")
	w.keep()
	if now := acts(); len(now) != 9 {
		t.Errorf("once it acted %q", now)
	}
	got := scrape(t)
	labels := `namespace="autohealer-system",policy="protect"`
	for _, want := range []string{
		`autohealer_probeconfig_scalings_total{` + labels + `,result="done",verb="ScaleDown"} 2`,
		`autohealer_probeconfig_targets{` + labels + `,state="total"} 2`,
		`autohealer_probeconfig_targets{` + labels + `,state="scaled_down"} 1`,
		`autohealer_probeconfig_targets{` + labels + `,state="external_unhealthy"} 1`,
		`autohealer_probeconfig_limit_reached{` + labels + `} 0`,
		`autohealer_probeconfig_breaker_open{` + labels + `} 0`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("lacks %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	forgetStates(types.NamespacedName{Namespace: ownNamespace, Name: "protect"})
	if left := scrape(t); slices.ContainsFunc(left, func(line string) bool { return strings.Contains(line, "protect") }) {
		t.Errorf("left behind: %q", left)
	}
}

func TestASecondManagerInAProcessSharesTheMetrics(t *testing.T) {
	for range 2 {
		if err := registerMetrics(); err != nil {
			t.Fatal(err)
		}
	}
}
