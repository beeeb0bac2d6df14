package healthcheckregistration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// event is what one tells.
type event struct{ on, related, kind, reason, action, note string }

// recorder keeps Events.
type recorder struct{ all []event }

func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.all = append(r.all, event{named(regarding), named(related), kind, reason, action, fmt.Sprintf(note, args...)})
}

// named says what an Event is on; an ObjectReference has its name in fields of its own.
func named(object runtime.Object) string {
	if object == nil {
		return ""
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err.Error()
	}
	about, ok := content["metadata"].(map[string]any)
	if !ok {
		about = content
	}
	name := fmt.Sprint(content["apiVersion"], " ", content["kind"], " ", about["name"], ", uid ", about["uid"])
	if namespace, ok := about["namespace"]; ok {
		name += fmt.Sprint(", in ", namespace)
	}
	return name
}

// onBoth are the two Events of an act for a registration.
func onBoth(name, reason, action, note string) []event {
	target := "extensions.gardener.cloud/v1alpha1 Worker w, uid w, in n"
	by := "autohealer.resourcestack.com/v1alpha1 HealthCheckRegistration " + name + ", uid " + name
	return []event{{target, by, "Normal", reason, action, note}, {by, target, "Normal", reason, action, note}}
}

func TestWhatIsWrittenIsToldOnBothSidesAndCounted(t *testing.T) {
	const gone = "Condition Old is removed: no HealthCheckRegistration decides it any more, or one asks for that."
	turned := func(conditionType, before string) string {
		return "Condition " + conditionType + " is False, and was " + before + ": (0/1) Health checks successful: 1) c: it is " + strings.ToLower(conditionType)
	}
	bad, good := onBoth("bad", "ConditionChanged", "SetCondition", turned("Bad", "True")), onBoth("good", "ConditionChanged", "SetCondition", turned("Good", "True"))
	byNobody := event{bad[0].on, "", "Normal", "ConditionRemoved", "RemoveCondition", gone}
	done := func(policy, verb string) string { return series(policy, verb, "done") }
	for name, c := range map[string]struct {
		change func(*evaluation, *plan)
		bad    error
		told   []event
		counts []string
	}{
		"all is written": {
			nil, nil, slices.Concat(bad, good, []event{byNobody}),
			[]string{done("bad", "SetCondition"), done("good", "SetCondition"), done("unknown", "RemoveCondition")},
		},
		"one is refused": {
			nil, apierrors.NewForbidden(schema.GroupResource{}, "w", errors.New("no")), slices.Concat(good, []event{byNobody}),
			[]string{series("bad", "SetCondition", "failed"), done("good", "SetCondition"), done("unknown", "RemoveCondition")},
		},
		"another wrote first": {
			nil, apierrors.NewConflict(schema.GroupResource{}, "w", errors.New("no")), nil,
			[]string{series("bad", "SetCondition", "stale")},
		},
		"its words alone are others": {
			func(_ *evaluation, p *plan) { p.Steps = p.Steps[:1]; p.Steps[0].Previous = health.False }, nil, nil,
			[]string{done("bad", "SetCondition")},
		},
		"it is there for the first time": {
			func(_ *evaluation, p *plan) { p.Steps = p.Steps[:1]; p.Steps[0].Previous = "" }, nil,
			onBoth("bad", "ConditionChanged", "SetCondition", turned("Bad", "not there")),
			[]string{done("bad", "SetCondition")},
		},
		"both decide it": {
			func(_ *evaluation, p *plan) { p.Steps = p.Steps[:1]; p.DecidedBy["Bad"] = []int{0, 1} }, nil,
			slices.Concat(bad, onBoth("good", "ConditionChanged", "SetCondition", turned("Bad", "True"))),
			[]string{done("bad", "SetCondition"), done("good", "SetCondition")},
		},
		"one asks for a removal": {
			func(l *evaluation, p *plan) { p.Steps = p.Steps[2:]; l.registrations[1].Remove = []string{"Old"} }, nil,
			onBoth("good", "ConditionRemoved", "RemoveCondition", gone),
			[]string{done("good", "RemoveCondition")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			actsTotal.Reset()
			l, p := turning(t, storing(claimed("Bad", "Good", "Old"), c.bad, nil))
			if c.change != nil {
				c.change(l, &p)
			}
			l.execute(t.Context(), health.Layout{Shape: health.Gardener}, p)
			if told := l.r.Report.Events.(*recorder).all; !slices.Equal(told, c.told) {
				t.Errorf("told:\n%q", told)
			}
			if got := scrape(t, actsTotal); !slices.Equal(got, c.counts) {
				t.Errorf("counted:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

// series is the series of an act.
func series(policy, verb, result string) string {
	return fmt.Sprintf(`autohealer_healthcheckregistration_condition_changes_total{policy=%q,result=%q,verb=%q} 1`, policy, result, verb)
}

func TestEventsThatAreTooManyAreCounted(t *testing.T) {
	dropped := func() (n float64) {
		t.Helper()
		if _, err := fmt.Sscanf(scrape(t, eventsDropped)[0], "autohealer_healthcheckregistration_events_dropped_total %g", &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	l, p := turning(t, storing(claimed("Bad", "Good", "Old"), nil, nil))
	before, r := dropped(), &recorder{}
	report := NewReporter(r)
	for range 25 {
		report.reportChange(l.object, l.registrations[:1], p.Steps[0], noon)
	}
	if n := dropped() - before; n != 0 {
		t.Errorf("of 25 acts, %v Events are dropped", n)
	}
	report.reportChange(l.object, l.registrations[:1], p.Steps[0], noon)
	if n := dropped() - before; n != 2 || len(r.all) != 50 {
		t.Errorf("of 26 acts, %d Events are told, %v are dropped", len(r.all), n)
	}
}
