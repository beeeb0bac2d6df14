package manager

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// others are metrics of libraries. hack/promtool looks at our own in dashboards.
var others = regexp.MustCompile(`\b(controller_runtime|workqueue|rest_client|leader_election|go|process)_[a-z0-9_]+`)

func testDashboards(t *testing.T, known map[string]family) {
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "dashboards", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range others.FindAllString(string(text), -1) {
			if _, exists := known[strings.TrimSuffix(name, "_bucket")]; !exists {
				t.Errorf("%s: there is no metric %s", filepath.Base(file), name)
			}
		}
	}
}

// row is one of the reference's tables: metrics, their type, their labels.
var row = regexp.MustCompile("(?m)^\\| (`autohealer_[^|]*`) \\| (counter|gauge|histogram) \\|([^|]*)\\|")

func testReference(t *testing.T, known map[string]family) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, r := range row.FindAllStringSubmatch(string(page), -1) {
		for _, name := range quoted(r[1]) {
			told[name] = true
			of, exists := known[name]
			if !exists {
				t.Errorf("docs/reference/metrics.md has %s, which there isn't", name)
				continue
			}
			if kind := strings.ToLower(of.kind.String()); of.kind != dto.MetricType_UNTYPED && kind != r[2] {
				t.Errorf("docs/reference/metrics.md calls %s a %s; it is a %s", name, r[2], kind)
			}
			if labels := quoted(r[3]); !slices.Equal(slices.Sorted(slices.Values(labels)), slices.Sorted(slices.Values(of.labels))) {
				t.Errorf("docs/reference/metrics.md says that %s has the labels %q; it has %q", name, labels, of.labels)
			}
		}
	}
	for name := range known {
		if !told[name] {
			t.Errorf("docs/reference/metrics.md doesn't have %s", name)
		}
	}
}

// quoted are the words of a table's cell, as in "`a`, `b`".
func quoted(cell string) []string {
	return strings.FieldsFunc(cell, func(r rune) bool { return strings.ContainsRune("`, ", r) })
}

func testNames(t *testing.T, known map[string]family) {
	var all []*dto.MetricFamily
	for name, of := range known {
		series := &dto.Metric{}
		for _, label := range of.labels {
			series.Label = append(series.Label, &dto.LabelPair{Name: &label})
		}
		all = append(all, &dto.MetricFamily{Name: &name, Help: &of.help, Type: &of.kind, Metric: []*dto.Metric{series}})
	}
	problems, err := promlint.NewWithMetricFamilies(all).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
