package config_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/config"
)

// alert is one of config/prometheus/alerts.yaml.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	objects, err := config.Objects(config.FS, "prometheus/*.yaml", "PrometheusRule")
	if err != nil || len(objects) != 1 {
		t.Fatalf("%d objects, error %v", len(objects), err)
	}
	var rule struct {
		Spec struct{ Groups []struct{ Rules []alert } }
	}
	text, err := json.Marshal(objects[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &rule); err != nil {
		t.Fatal(err)
	}
	return rule.Spec.Groups[0].Rules
}

const (
	runbooks = "../docs/runbooks"
	// runbookURL is where readers of an alert find them.
	runbookURL = "https://github.com/resourcestack/autohealer/blob/main/docs/runbooks/"
)

func TestEveryAlertHasARunbookThatNamesIt(t *testing.T) {
	linked, drills := []string{"README.md"}, ""
	for _, file := range must(filepath.Glob("../e2e/operations/runbooks/*_test.go")) {
		drills += string(readFile(t, file))
	}
	list := string(readFile(t, filepath.Join(runbooks, "README.md")))
	for _, a := range alerts(t) {
		for _, key := range []string{"summary", "description"} {
			if a.Annotations[key] == "" {
				t.Errorf("%s has no %s", a.Alert, key)
			}
		}
		if !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) {
			t.Errorf("%s has severity %q", a.Alert, a.Labels["severity"])
		}
		page, ours := strings.CutPrefix(a.Annotations["runbook_url"], runbookURL)
		if !ours {
			t.Errorf("%s has runbook_url %q", a.Alert, a.Annotations["runbook_url"])
			continue
		}
		linked = append(linked, page)
		text := string(readFile(t, filepath.Join(runbooks, page)))
		for _, heading := range []string{"## What it means\n", "## What to look at\n", "## What to do\n"} {
			if !strings.Contains(text, heading) {
				t.Errorf("%s has no %q", page, heading)
			}
		}
		if title, _, _ := strings.Cut(text, "\n"); !strings.Contains(title, a.Alert) {
			t.Errorf("the title of %s doesn't name %s: %s", page, a.Alert, title)
		}
		if !strings.Contains(list, "["+a.Alert+"]("+page+")") {
			t.Errorf("docs/runbooks/README.md doesn't list %s", a.Alert)
		}
		if !strings.Contains(drills, `It("`+page+`"`) {
			t.Errorf("e2e/operations/runbooks has no drill of %s", page)
		}
	}
	for _, file := range must(filepath.Glob(filepath.Join(runbooks, "*"))) {
		if !slices.Contains(linked, filepath.Base(file)) {
			t.Errorf("no alert has %s", file)
		}
	}
}

// promtool runs the cases; whether there are enough of them it doesn't say.
func TestEveryAlertIsSeenToFireAndNotToFire(t *testing.T) {
	type expected struct {
		Alertname string
		Alerts    []any `json:"exp_alerts"`
	}
	var cases struct {
		Tests []struct {
			Expected []expected `json:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(readFile(t, "prometheus/tests/alerts.yaml"), &cases); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, c := range cases.Tests {
		for _, e := range c.Expected {
			if len(e.Alerts) > 0 {
				fires[e.Alertname] = true
			} else {
				silent[e.Alertname] = true
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: a case in which it fires: %t, in which it doesn't: %t", a.Alert, fires[a.Alert], silent[a.Alert])
		}
	}
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func must(names []string, err error) []string {
	if err != nil {
		panic(err)
	}
	return names
}
