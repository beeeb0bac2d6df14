package webhooks

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

// scrape is what a metrics endpoint would show of the collectors, without comments and buckets.
func scrape(t *testing.T, collectors ...prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(text.String()), "\n"), func(line string) bool {
		return strings.HasPrefix(line, "#") || strings.Contains(line, "_bucket") || strings.Contains(line, "_sum")
	})
}

func TestReviewsAreCounted(t *testing.T) {
	reviews.Reset()
	violations.Reset()
	duration.Reset()
	h := newWebhook(t, facts{forecast: condition.Forecast{Limit: 1, UnionLimit: 1}})
	for _, body := range []string{
		"{}",
		review("CREATE", badSet, "null"),
		review("CREATE", goodSet, "null"),
		review("UPDATE", goodSet, goodSet),
		strings.Replace(review("CREATE", goodSet, "null"), `"kind":"ConditionSet"}`, `"kind":"Unicorn-42"}`, 1),
	} {
		ask(t, h, "/", body)
	}
	want := []string{
		`autohealer_admission_review_duration_seconds_count{kind="ConditionSet"} 3`,
		`autohealer_admission_reviews_total{kind="ConditionSet",operation="CREATE",result="denied"} 1`,
		`autohealer_admission_reviews_total{kind="ConditionSet",operation="CREATE",result="warned"} 1`,
		`autohealer_admission_reviews_total{kind="ConditionSet",operation="UPDATE",result="allowed"} 1`,
		`autohealer_admission_reviews_total{kind="other",operation="CREATE",result="error"} 1`,
		`autohealer_admission_reviews_total{kind="other",operation="other",result="error"} 1`,
		`autohealer_admission_rule_violations_total{rule="conditionset/matches-healthy-nodes",severity="Deny"} 1`,
		`autohealer_admission_rule_violations_total{rule="conditionset/reserved-taint-key",severity="Deny"} 1`,
		`autohealer_admission_rule_violations_total{rule="conditionset/sticky-evicts",severity="Warn"} 1`,
	}
	if got := scrape(t, reviews, violations, duration); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCountersBeginAtZero(t *testing.T) {
	reviews.Reset()
	refused.Reset()
	if err := registerMetrics(); err != nil {
		t.Fatal(err)
	}
	is := scrape(t, reviews, refused)
	for _, want := range []string{
		`autohealer_admission_reviews_total{kind="WeederConfig",operation="UPDATE",result="denied"} 0`,
		`autohealer_webhook_rejected_requests_total{reason="too_large"} 0`,
	} {
		if !slices.Contains(is, want) {
			t.Errorf("lacks %s in %q", want, is)
		}
	}
	if !slices.Contains(is, `autohealer_webhook_rejected_requests_total{reason="busy"} 0`) || len(is) > 60 {
		t.Errorf("%d: %q", len(is), is)
	}
}

func TestMetricsAreWellNamed(t *testing.T) {
	reviews.WithLabelValues("ConditionSet", "CREATE", "allowed")
	violations.WithLabelValues("conditionset/x", "Deny")
	duration.WithLabelValues("ConditionSet")
	registry := prometheus.NewRegistry()
	registry.MustRegister(reviews, violations, duration)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 || len(families) != 3 {
		t.Errorf("%d families, problems %v, error %v", len(families), problems, err)
	}
}

func TestASecondManagerSharesTheMetrics(t *testing.T) {
	for range 2 {
		if err := registerMetrics(); err != nil {
			t.Fatal(err)
		}
	}
}
