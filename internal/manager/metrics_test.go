package manager

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/config"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lease"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/kube"
)

// family is a metric as its code declares it.
type family struct {
	help   string
	labels []string
	kind   dto.MetricType
}

var declared = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "((?:[^"\\]|\\.)*)", (?:unit: "[^"]*", )?constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}\}$`)

// recorder is a registry that remembers what was registered with it, also what has no series yet.
type recorder struct {
	metrics.RegistererGatherer
	own []prometheus.Collector
}

func (r *recorder) Register(c prometheus.Collector) error {
	r.own = append(r.own, c)
	return r.RegistererGatherer.Register(c)
}

// families are the metrics of these collectors by name.
func families(t *testing.T, of ...prometheus.Collector) map[string]family {
	t.Helper()
	found := map[string]family{}
	for _, c := range of {
		descriptions := make(chan *prometheus.Desc)
		go func() {
			defer close(descriptions)
			c.Describe(descriptions)
		}()
		for d := range descriptions {
			parts := declared.FindStringSubmatch(d.String())
			if parts == nil {
				t.Fatalf("can't read %s", d)
			}
			var labels []string
			if parts[3] != "" {
				labels = strings.Split(parts[3], ",")
			}
			found[parts[1]] = family{parts[2], labels, kindOf(c)}
		}
	}
	return found
}

func kindOf(c prometheus.Collector) dto.MetricType {
	switch c.(type) {
	case prometheus.Gauge, *prometheus.GaugeVec: // a Gauge has a Counter's methods, too
		return dto.MetricType_GAUGE
	case prometheus.Counter, *prometheus.CounterVec:
		return dto.MetricType_COUNTER
	case prometheus.Histogram, *prometheus.HistogramVec:
		return dto.MetricType_HISTOGRAM
	}
	return dto.MetricType_UNTYPED // a collector of our own: each series says by itself
}

func TestMetrics(t *testing.T) {
	registry := metrics.Registry
	recorded := &recorder{RegistererGatherer: registry}
	metrics.Registry = recorded
	defer func() { metrics.Registry = registry }()
	assemble(t)
	own := families(t, recorded.own...)
	t.Run("alerts ask for metrics that there are", func(t *testing.T) {
		testAlertsAskForMetricsThatThereAre(t, families(t, registry.(prometheus.Collector)))
	})
	t.Run("dashboards ask for metrics of libraries that there are", func(t *testing.T) {
		testDashboards(t, families(t, registry.(prometheus.Collector)))
	})
	t.Run("the reference has all metrics, and no others", func(t *testing.T) { testReference(t, own) })
	t.Run("names are as Prometheus asks for", func(t *testing.T) { testNames(t, own) })
}

// assemble makes a manager with all that it runs, and doesn't start it.
func assemble(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an API server")
	}
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join("..", "..", "bin")
	}
	env := &envtest.Environment{BinaryAssetsDirectory: assets, CRDDirectoryPaths: []string{filepath.Join("..", "..", "crds")}, ErrorIfCRDPathMissing: true}
	server, err := env.Start()
	if err != nil {
		t.Fatalf("start an API server from %s (run `make controlplane`): %v", assets, err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	o := options{
		namespace: "autohealer-system", leaderElectNamespace: "autohealer-system", leaderElect: true, certProvider: selfSigned, certSecret: "autohealer-webhook-cert",
		metricsAddress: "0", probeAddress: "0", webhookPort: 9443,
		envoys: envoyOptions{address: "127.0.0.1:0", ejectionsFrom: envoyServices{{port: "ejections"}}},
	}
	facts := &kube.Facts{
		Fleet: condition.NewFleet(limit.Builtin()), Weeder: weeder.NewState(limit.Builtin(), o.namespace), Targets: probe.NewFleet(limit.Builtin()),
		Clock: clock.RealClock{}, Server: &kube.ServerClock{Clock: clock.RealClock{}},
	}
	config := rest.CopyConfig(server)
	marker, err := newMarker(config, o)
	if err != nil {
		t.Fatal(err)
	}
	serving := newCertificate(o, marker.Ours)
	leadership, err := newLeadership(config, o, lease.Name, lease.RenewDeadline, marker)
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := newManager(config, o, serving, leadership, func() {})
	if err != nil {
		t.Fatal(err)
	}
	if err := addAll(t.Context(), mgr, o, facts, serving, leadership.Held, marker); err != nil {
		t.Fatal(err)
	}
	if err := addMarker(t.Context(), mgr, o, marker); err != nil {
		t.Fatal(err)
	}
}

var (
	selector = regexp.MustCompile(`\b([a-z][a-z0-9_]*_[a-z0-9_]+)\b(\{[^}]*\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)(=~|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

// Where a metric or a label of an alert is misspelt it never fires, and nobody notices.
func testAlertsAskForMetricsThatThereAre(t *testing.T, known map[string]family) {
	known = maps.Clone(known)
	// API servers have this one; e2e/operations/runbooks sees that they do.
	known["apiserver_admission_webhook_rejection_count"] = family{
		help: `calling_webhook_error apiserver_internal_error policies.autohealer.resourcestack.com`, labels: []string{"error_type", "name"},
	}
	if len(known) < 30 {
		t.Errorf("there are only %d metrics", len(known))
	}
	asked := 0
	for name, expression := range expressions(t) {
		labels := []string{"instance"} // Prometheus'
		for _, s := range selector.FindAllStringSubmatch(expression, -1) {
			of, exists := known[strings.TrimSuffix(s[1], "_bucket")]
			if !exists {
				if strings.HasPrefix(s[1], "autohealer_") || s[2] != "" {
					t.Errorf("%s: there is no metric %s", name, s[1])
				}
				continue // a function, a label, or a word in a string
			}
			asked++
			labels = append(append(labels, of.labels...), "le")
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				of.has(t, name, m[1], m[3])
			}
		}
		for _, g := range grouping.FindAllStringSubmatch(expression, -1) {
			for by := range strings.SplitSeq(g[1], ", ") {
				if !slices.Contains(labels, by) {
					t.Errorf("%s: no metric of it has the label %s", name, by)
				}
			}
		}
	}
	if asked < 15 {
		t.Errorf("only %d metrics are asked for", asked)
	}
}

// has checks that a family has a label, and these values of it by what its help says.
func (f family) has(t *testing.T, alert, label, values string) {
	t.Helper()
	if !slices.Contains(f.labels, label) {
		t.Errorf("%s: %q has no label %s", alert, f.help, label)
	}
	for value := range strings.SplitSeq(values, "|") {
		if !strings.Contains(f.help, value) && value != lease.Name {
			t.Errorf("%s: %q knows no %s=%q", alert, f.help, label, value)
		}
	}
}

func expressions(t *testing.T) map[string]string {
	t.Helper()
	rules, err := config.Objects(config.FS, "prometheus/*.yaml", "PrometheusRule")
	if err != nil || len(rules) != 1 {
		t.Fatalf("%d rules, error %v", len(rules), err)
	}
	found := map[string]string{}
	spec := rules[0].Object["spec"].(map[string]any)
	for _, group := range spec["groups"].([]any) {
		for _, rule := range group.(map[string]any)["rules"].([]any) {
			r := rule.(map[string]any)
			found[r["alert"].(string)] = r["expr"].(string)
		}
	}
	return found
}
