package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// incident is a fleet of 40 nodes and 3 of the control plane in which something goes wrong.
type incident struct {
	fleet *condition.Fleet
	// spec of the set that was stored before; broken is the rule that it would break now.
	spec   map[string]any
	broken string
}

func (i incident) planner() Planner {
	return PlannerOf(func(cs *v1alpha1.ConditionSet, limits limit.Limits, now time.Time) condition.Forecast {
		return i.fleet.Forecast(cs, limits, timing.Moment{Now: now, Server: now})
	})
}

// incidents: in each, rules over the cluster refuse a set that they admitted before.
func incidents(t *testing.T) map[string]incident {
	t.Helper()
	at := timing.Moment{Now: noon, Server: noon}
	fleet := func(sick, planesReady int, heard time.Time, others ...string) *condition.Fleet {
		f := condition.NewFleet(limit.Builtin())
		for i := range 43 {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%02d", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: "1", Labels: map[string]string{"pool": "a", "arch": "b"}}}
			status := func(holds bool) corev1.ConditionStatus {
				if holds {
					return corev1.ConditionTrue
				}
				return corev1.ConditionFalse
			}
			conditions := map[string]corev1.ConditionStatus{"A": status(i < sick), "B": status(i < sick), "Other": status(i >= 20 && i < 24), "Ready": corev1.ConditionTrue}
			if i >= 40 {
				n.Labels["node-role.kubernetes.io/control-plane"] = ""
				conditions["Ready"] = status(i-40 < planesReady)
				conditions["A"], conditions["B"] = status(i == 40 && planesReady == 1), status(i == 40 && planesReady == 1)
			}
			for of, is := range conditions {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
					Type: corev1.NodeConditionType(of), Status: is, LastTransitionTime: metav1.NewTime(heard), LastHeartbeatTime: metav1.NewTime(heard),
				})
			}
			f.ObserveNode(n, at)
		}
		for _, other := range others {
			cs := &v1alpha1.ConditionSet{ObjectMeta: metav1.ObjectMeta{Name: other, UID: types.UID(other)}}
			cs.Spec = v1alpha1.ConditionSetSpec{Type: "Other", Effect: corev1.TaintEffectNoSchedule, TaintKey: "example.com/other",
				Conditions: map[string]v1alpha1.MemberCondition{"Other": {Status: v1alpha1.RequiredStatus{JSON: "true"}}}}
			set, err := condition.NewSet(cs)
			if err != nil {
				t.Fatal(err)
			}
			f.ObserveSet(set, lifecycle.Active, nil, "", at)
		}
		f.MarkSynced(at)
		return f
	}
	spec := func(more map[string]any) map[string]any {
		s := map[string]any{
			"type": "T", "effect": "NoExecute", "taintKey": "example.com/k", "conditions": map[string]any{"A": map[string]any{"status": "True"}},
			"nodeSelector": map[string]any{"matchLabels": map[string]any{"pool": "a"}}, "for": "10m", "staleAfter": "15m", "evictAfter": "10m", "maxNodes": int64(4),
		}
		maps.Copy(s, more)
		return s
	}
	return map[string]incident{
		"more nodes match than the limit allows": {fleet(5, 3, noon), spec(nil), "conditionset/would-exceed-limit"},
		"other sets have used the limit up":      {fleet(1, 3, noon, "other"), spec(nil), "conditionset/union-exceeds-limit"},
		"the reporter is gone":                   {fleet(0, 3, noon.Add(-24*time.Hour)), spec(nil), "conditionset/fleet-wide-stale"},
		"one control-plane node is left":         {fleet(0, 1, noon), spec(map[string]any{"includeControlPlane": true}), "conditionset/control-plane-evicts-last"},
	}
}

// TestDuringAnIncidentASetCanBeMadeSofter asks the planner itself of each field of a set: what makes it softer, or has nothing
// to do with its reach, is never refused; what makes it wider or harder is judged like a creation.
func TestDuringAnIncidentASetCanBeMadeSofter(t *testing.T) {
	member := func(types ...string) map[string]any {
		all := map[string]any{}
		for _, of := range types {
			all[of] = map[string]any{"status": "True"}
		}
		return all
	}
	edits := map[string]struct{ softer, harder []any }{
		"type":                {softer: []any{"Another"}},
		"effect":              {softer: []any{"NoSchedule", "PreferNoSchedule"}},
		"taintKey":            {harder: []any{"example.com/another"}},
		"conditions":          {softer: []any{member("A", "B")}, harder: []any{member("B")}},
		"nodeSelector":        {softer: []any{map[string]any{"matchLabels": map[string]any{"pool": "a", "arch": "b"}}}, harder: []any{nil}},
		"includeControlPlane": {softer: []any{false}},
		"for":                 {softer: []any{"20m"}, harder: []any{"1s", nil}},
		"recoverAfter":        {softer: []any{"2m", "1s"}},
		"staleAfter":          {softer: []any{"10m"}, harder: []any{"20m"}},
		"evictAfter":          {softer: []any{"20m"}, harder: []any{"1s", nil}},
		"maxNodes":            {softer: []any{int64(3), int64(1)}, harder: []any{int64(5), nil, "50%"}},
		"mode":                {softer: []any{"Observe"}},
	}
	for f := range reflect.TypeFor[v1alpha1.ConditionSetSpec]().Fields() {
		if field, _, _ := strings.Cut(f.Tag.Get("json"), ","); len(edits[field].softer)+len(edits[field].harder) == 0 {
			t.Errorf("no edit of spec.%s is asked about", field)
		}
	}
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	for name, incident := range incidents(t) {
		t.Run(name, func(t *testing.T) {
			g := under(t, compiled, Options{Facts: &fakeFacts{}, Planners: map[string]Planner{"ConditionSet": incident.planner()}})
			review := func(old, spec map[string]any) Verdict {
				whole := func(spec map[string]any) map[string]any {
					content := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: ConditionSet, metadata: {name: x, uid: u1, generation: 1}}")
					content["spec"] = spec
					return content
				}
				if old == nil {
					return g.Review(context.Background(), creating(t, whole(spec)))
				}
				return g.Review(context.Background(), updating(t, whole(old), whole(spec)))
			}
			if v := review(nil, incident.spec); !slices.Equal(v.RuleIDs(), []string{incident.broken}) {
				t.Fatalf("a creation is refused by %v", v.RuleIDs())
			}
			observing := maps.Clone(incident.spec)
			observing["mode"] = "Observe"
			if v := review(observing, incident.spec); !slices.Equal(v.RuleIDs(), []string{incident.broken}) {
				t.Errorf("beginning to enforce is refused by %v", v.RuleIDs())
			}
			for field, edit := range edits {
				for _, value := range edit.softer {
					v := review(incident.spec, with(incident.spec, field, value))
					// a further condition could be one whose reporter is gone
					want := incident.broken == "conditionset/fleet-wide-stale" && field == "conditions"
					if v.Allowed == want {
						t.Errorf("%s: %s: allowed %v: %s", field, text(t, value), v.Allowed, v.Message())
					}
					for _, violation := range v.Violations {
						if violation.Unchanged && !strings.HasSuffix(violation.String(), "; it was so before, and this update makes it no worse") {
							t.Errorf("%s: %s: %s", field, text(t, value), violation)
						}
					}
				}
				for _, value := range edit.harder {
					if v := review(incident.spec, with(incident.spec, field, value)); !slices.Contains(v.RuleIDs(), incident.broken) {
						t.Errorf("%s: %s: allowed %v: %s", field, text(t, value), v.Allowed, v.Message())
					}
				}
			}
			soft := with(with(incident.spec, "effect", "PreferNoSchedule"), "evictAfter", nil)
			if v := review(soft, incident.spec); !slices.Contains(v.RuleIDs(), incident.broken) {
				t.Errorf("a harder effect: allowed %v: %s", v.Allowed, v.Message())
			}
			if v := review(with(incident.spec, "includeControlPlane", false), with(incident.spec, "includeControlPlane", true)); v.Allowed {
				t.Error("the control plane comes in, and nothing refuses it")
			}
		})
	}
}

func with(spec map[string]any, field string, value any) map[string]any {
	spec = maps.Clone(spec)
	if spec[field] = value; value == nil {
		delete(spec, field)
	}
	return spec
}

func text(t *testing.T, value any) string {
	t.Helper()
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
