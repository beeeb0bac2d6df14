package healthcheckregistration

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/policy"
)

// scrape is what a metrics endpoint would show of the collectors, without comments.
func scrape(t *testing.T, collectors ...prometheus.Collector) []string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors...)
	return gathered(t, registry)
}

// gathered are Autohealer's series of a registry.
func gathered(t *testing.T, registry prometheus.Gatherer) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "autohealer_") {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	if problems, err := promlint.New(strings.NewReader(text.String())).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, error %v", problems, err)
	}
	return slices.DeleteFunc(strings.Split(text.String(), "\n"), func(line string) bool { return line == "" || strings.HasPrefix(line, "#") })
}

func TestTheBreakersMetricFollowsItAndGoesWithItsRegistration(t *testing.T) {
	for _, v := range []interface{ Reset() }{actsTotal, targetsGauge, breakerGauge} {
		v.Reset()
	}
	l, scheme, clock := leads(t), runtime.NewScheme(), testingclock.NewFakeClock(noon)
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	l.Facts.Clock = clock
	stored := fake.NewClientBuilder().WithScheme(scheme).WithObjects(l.hcr).WithStatusSubresource(l.hcr).Build()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(worker, meta.RESTScopeNamespace)
	heard := &recorder{}
	k := &statusKeeper{Observer: l.Observer, Layouts: checking.NewLayouts(&unreadable{}, mapper, clock)}
	r := &policy.Keeper[*v1alpha1.HealthCheckRegistration]{Steps: k.steps(), Client: stored, Events: heard, Clock: clock, Urgent: l.policies.VerdictUnreported}
	gaugeStates("other", v1alpha1.HealthCheckRegistrationStatus{})
	count([]activeRegistration{{ActiveRegistration: registration.ActiveRegistration{Registration: &registration.Registration{Name: "r"}}}}, health.Step{}, "failed")
	shows := func() (is []string) {
		t.Helper()
		clock.Step(time.Minute)
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(l.hcr)}); err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(scrape(t, actsTotal, targetsGauge, breakerGauge), func(line string) bool { return !strings.Contains(line, `policy="r"`) })
	}
	with := func(open string) []string {
		is := []string{`autohealer_healthcheckregistration_breaker_open{policy="r"} ` + open}
		for _, result := range []string{"done", "failed", "stale"} {
			for verb, n := range map[string]string{"RemoveCondition": "0", "SetCondition": map[bool]string{true: "1", false: "0"}[result == "failed"]} {
				is = append(is, `autohealer_healthcheckregistration_condition_changes_total{policy="r",result="`+result+`",verb="`+verb+`"} `+n)
			}
		}
		for _, state := range []string{"healthy", "progressing", "unhealthy", "unknown"} {
			is = append(is, `autohealer_healthcheckregistration_targets{policy="r",state="`+state+`"} 0`)
		}
		slices.Sort(is)
		return is
	}
	if got := shows(); !slices.Equal(got, with("0")) {
		t.Errorf("while it is closed\n%s", strings.Join(got, "\n"))
	}
	for _, name := range []string{"a", "b", "c"} {
		l.results.mayFail("r", targetNamed(name), "X", false, 10, noon)
	}
	if got := shows(); !slices.Equal(got, with("1")) {
		t.Errorf("while it is open\n%s", strings.Join(got, "\n"))
	}
	l.see(func(hcr *v1alpha1.HealthCheckRegistration) {
		hcr.Annotations = map[string]string{"autohealer.resourcestack.com/reset-breaker": "20261122t120000000000z"}
	})
	if got := shows(); !slices.Equal(got, with("0")) {
		t.Errorf("after its reset\n%s", strings.Join(got, "\n"))
	}
	var told []string
	for _, e := range heard.all {
		if e.action == "BreakerOpen" && strings.HasSuffix(e.on, " r, uid r") && e.related == "" {
			told = append(told, e.kind+" "+e.reason)
		}
	}
	if !slices.Equal(told, []string{"Warning TooManyTurnFalse", "Normal BreakerClosed"}) {
		t.Errorf("told %q of %q", told, heard.all)
	}
	if err := stored.Delete(t.Context(), l.hcr.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	hcr := &v1alpha1.HealthCheckRegistration{}
	if err := stored.Get(t.Context(), client.ObjectKeyFromObject(l.hcr), hcr); err != nil {
		t.Fatal(err)
	}
	hcr.Finalizers = nil
	if err := stored.Update(t.Context(), hcr); err != nil {
		t.Fatal(err)
	}
	if left := shows(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if !slices.Contains(scrape(t, breakerGauge), `autohealer_healthcheckregistration_breaker_open{policy="other"} 0`) {
		t.Error("another's went with it")
	}
}

// alertAsks finds a metric that an alert asks for, and with which labels.
var alertAsks = regexp.MustCompile(`(autohealer_healthcheck\w*)(?:\{([^}]*)\})?`)

func TestAlertsAskForSeriesThatThereAre(t *testing.T) {
	for range 2 { // a second manager in a process shares them
		if err := registerMetrics(); err != nil {
			t.Fatal(err)
		}
	}
	gaugeStates("r", v1alpha1.HealthCheckRegistrationStatus{})
	count(nil, health.Step{}, "failed")
	there := gathered(t, metrics.Registry)
	alerts, err := os.ReadFile("../../config/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := alertAsks.FindAllStringSubmatch(string(alerts), -1)
	if len(all) < 3 {
		t.Errorf("alerts ask for %q", all)
	}
	for _, a := range all {
		if !slices.ContainsFunc(there, func(line string) bool {
			return strings.HasPrefix(line, a[1]+"{") && strings.Contains(line, a[2])
		}) {
			t.Errorf("an alert asks for %s, and there are\n%s", a[0], strings.Join(there, "\n"))
		}
	}
}
