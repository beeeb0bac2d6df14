// Package promtool tests the dashboards of config/dashboards with Prometheus' own parser.
package promtool

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard is what matters here of Grafana's JSON.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct{ List []variable }
	Panels        []struct {
		ID          int
		Title, Type string
		Datasource  struct{ UID string }
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ Expr, LegendFormat string }
	}
}

type variable struct{ Name, Type, Definition string }

// row is one of the reference's tables: metrics, their type, their labels. The manager's own tests see that it is right.
var row = regexp.MustCompile("(?m)^\\| (`autohealer_[^|]*`) \\| (counter|gauge|histogram) \\|([^|]*)\\|")

// reference has the labels of each metric, and of a histogram's buckets, as docs/reference/metrics.md tells them.
func reference(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	quoted := func(cell string) []string {
		return strings.FieldsFunc(cell, func(r rune) bool { return strings.ContainsRune("`, ", r) })
	}
	found := map[string][]string{}
	for _, r := range row.FindAllStringSubmatch(string(page), -1) {
		for _, name := range quoted(r[1]) {
			if r[2] == "histogram" {
				found[name+"_bucket"] = append(quoted(r[3]), "le")
			} else {
				found[name] = quoted(r[3])
			}
		}
	}
	if len(found) < 40 {
		t.Fatalf("docs/reference/metrics.md has only %d metrics", len(found))
	}
	return found
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../../config/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	found := map[string]dashboard{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[filepath.Base(file)] = d
	}
	return found
}

// What a scrape by the ServiceMonitor adds, unless a metric has it: namespace is the manager's then.
var scraped = []string{"namespace", "pod", "instance", "job"}

var legend = regexp.MustCompile(`\{\{(\w+)\}\}`)

func TestQueriesAskForMetricsThatThereAre(t *testing.T) {
	known := reference(t)
	promql := parser.NewParser(parser.Options{})
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				// What Grafana puts in.
				expr, err := promql.ParseExpr(strings.NewReplacer("$__rate_interval", "5m", "$namespace", "autohealer-system").Replace(target.Expr))
				if err != nil {
					t.Errorf("%s, %q: %v", file, p.Title, err)
					continue
				}
				for _, problem := range problems(expr, known) {
					t.Errorf("%s, %q: %v in %s", file, p.Title, problem, target.Expr)
				}
				for _, label := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
					if !regexp.MustCompile(`\b` + label[1] + `\b`).MatchString(target.Expr) {
						t.Errorf("%s, %q: its legend has %s, which %s doesn't give", file, p.Title, label[1], target.Expr)
					}
				}
			}
		}
	}
}

// problems are the metrics and labels of a query that nobody has.
func problems(expr parser.Expr, known map[string][]string) (all []error) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			own, ours := known[n.Name]
			if !ours && strings.HasPrefix(n.Name, "autohealer_") {
				all = append(all, errors.New("no metric "+n.Name))
			}
			of := false // whether it asks for those of one installation
			for _, m := range n.LabelMatchers {
				of = of || m.Name == "namespace"
				if ours && m.Name != "__name__" && !slices.Contains(slices.Concat(own, scraped), m.Name) {
					all = append(all, errors.New(n.Name+" has no label "+m.Name))
				}
			}
			if of == slices.Contains(own, "namespace") { // the namespace of a policy isn't the manager's
				all = append(all, errors.New(n.Name+" must be asked for by the manager's namespace, unless it has another"))
			}
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				if !slices.Contains(labels(n.Expr, known), label) {
					all = append(all, errors.New("nothing has the label "+label))
				}
			}
		}
		return nil
	})
	return all
}

// labels that a query's series may have; of others' metrics, those that our dashboards ask for.
func labels(expr parser.Expr, known map[string][]string) []string {
	found := slices.Clone(scraped)
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, is := node.(*parser.VectorSelector); is {
			if own, ours := known[s.Name]; ours {
				found = append(found, own...)
			} else {
				found = append(found, "name", "controller", "code", "le")
			}
		}
		return nil
	})
	return found
}

func TestDashboardsAreWhatGrafanaTakes(t *testing.T) {
	all := dashboards(t)
	uids := map[string]bool{}
	for _, d := range all {
		uids[d.UID] = true
	}
	if len(uids) != len(all) {
		t.Errorf("dashboards share an uid: %v", slices.Collect(maps.Keys(uids)))
	}
	for file, d := range all {
		if d.Title == "" || d.SchemaVersion < 39 {
			t.Errorf("%s: title %q, schemaVersion %d", file, d.Title, d.SchemaVersion)
		}
		want := []variable{{"datasource", "datasource", ""}, {"namespace", "query", "label_values(autohealer_guardrail_frozen, namespace)"}}
		if !slices.Equal(d.Templating.List, want) {
			t.Errorf("%s: variables %v", file, d.Templating.List)
		}
		ids, taken := map[int]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: two panels have id %d", file, p.ID)
			}
			ids[p.ID] = true
			if row := p.Type == "row"; row != (len(p.Targets) == 0) || !row && p.Datasource.UID != "${datasource}" {
				t.Errorf("%s, %q: %d queries of the data source %q", file, p.Title, len(p.Targets), p.Datasource.UID)
			}
			if p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s, %q is wider than the page", file, p.Title)
			}
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if taken[at] != "" {
						t.Fatalf("%s: %q lies over %q", file, p.Title, taken[at])
					}
					taken[at] = p.Title
				}
			}
		}
	}
}
