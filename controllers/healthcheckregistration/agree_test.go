package healthcheckregistration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/cli/explain"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// configMaps are what checks look at, by name; one of any other name doesn't exist.
type configMaps map[string]*unstructured.Unstructured

func (m configMaps) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	found := m[key.Name]
	if found == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	into.(*unstructured.Unstructured).Object = found.DeepCopy().Object
	return nil
}

func (configMaps) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

var lookedAtMaps = func() configMaps {
	m := configMaps{}
	for _, name := range []string{"well", "slow", "ill"} {
		m[name] = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "n", "name": name}, "data": map[string]any{"is": name},
		}}
	}
	return m
}()

// checkedWorld is a manager, and one Worker with the registrations about it.
type checkedWorld struct {
	t      *rapid.T
	o      *Observer
	policy guardrail.Policy
	worker *unstructured.Unstructured
	stored []v1alpha1.HealthCheckRegistration
}

func drawChecked(tt *testing.T, t *rapid.T) *checkedWorld {
	w := &checkedWorld{t: t, o: knowing(tt), policy: guardrail.Policy{Limits: limit.Builtin()}}
	w.o.Watches = checking.WatchesOf(&informertest.FakeInformers{}, func(checking.Target) {}, testingclock.NewFakePassiveClock(noon))
	switch rapid.SampledFrom([]string{"", "", "", "", "", "", "paused", "frozen"}).Draw(t, "policy") {
	case "paused":
		w.policy.PausedBy = []string{"rail"}
	case "frozen":
		w.policy.PausedBy, w.policy.FrozenBy = []string{"rail"}, []string{"rail"}
	}
	w.o.policies.Pause(w.policy)
	w.drawWorker()
	for i := range rapid.IntRange(0, 3).Draw(t, "registrations") {
		w.drawRegistration(i)
	}
	return w
}

// drawWorker has conditions of ours and of others, and a record that is right or not.
func (w *checkedWorld) drawWorker() {
	t := w.t
	var claims []string
	var list []any
	has := func(conditionType, status, reason, message string) {
		list = append(list, map[string]any{"type": conditionType, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-22T05:00:00Z"})
	}
	for _, c := range []string{"X", "Y", "Z"} {
		is := rapid.SampledFrom([]string{"", "", "well", "well", "ill", "ill", "foreign", "foreign and claimed", "unclaimed", "gone"}).Draw(t, "condition")
		switch is {
		case "well", "unclaimed":
			has(c, "True", health.ReasonSuccessful, "(1/1) Health checks successful")
		case "ill":
			has(c, "False", health.ReasonUnsuccessful, "(0/1) Health checks successful: 1) c: it was")
		case "foreign", "foreign and claimed":
			has(c, "True", "TheirOwn", "somebody else's")
		}
		if slices.Contains([]string{"well", "ill", "foreign and claimed", "gone"}, is) {
			claims = append(claims, c)
		}
	}
	annotations := map[string]string{}
	if len(claims) > 0 {
		annotations[v1alpha1.AnnotationOwnedConditions] = strings.Join(claims, ",")
	}
	if until := rapid.SampledFrom([]string{"", "", "", "", "2026-11-22T13:00:00Z", "2026-11-22T11:00:00Z", "soon"}).Draw(t, "hold"); until != "" {
		annotations[v1alpha1.AnnotationHoldUntil] = until
	}
	w.worker = &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "w", "namespace": "n", "uid": "w", "labels": map[string]any{"team": "a"}},
		"spec":     map[string]any{"asleep": rapid.Bool().Draw(t, "asleep")}, "status": map[string]any{"conditions": list},
	}}
	w.worker.SetGroupVersionKind(worker)
	w.worker.SetAnnotations(annotations)
}

func (w *checkedWorld) drawRegistration(i int) {
	t := w.t
	hcr := &v1alpha1.HealthCheckRegistration{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("r", i), UID: types.UID(fmt.Sprint("r", i)), Generation: 1}}
	spec := &hcr.Spec
	spec.Target = v1alpha1.HealthCheckTarget{APIVersion: worker.GroupVersion().String(), Kind: worker.Kind}
	spec.Target.Selector = &v1alpha1.LabelSelector{MatchLabels: map[string]string{"team": rapid.SampledFrom([]string{"a", "a", "a", "a", "b"}).Draw(t, "selects")}}
	spec.Mode = rapid.SampledFrom([]v1alpha1.Mode{v1alpha1.Enforce, v1alpha1.Enforce, v1alpha1.Enforce, v1alpha1.Observe}).Draw(t, "mode")
	spec.Output = rapid.SampledFrom([]v1alpha1.HealthCheckOutput{"", "", "", v1alpha1.OutputRegistrationOnly}).Draw(t, "output")
	spec.SuspendWhen = rapid.SampledFrom([]string{"", "", "", "target.spec.asleep", "target.spec.asleep", "target.spec.nowhere"}).Draw(t, "suspendWhen")
	spec.RemoveConditionTypes = rapid.SampledFrom([][]string{nil, nil, {"Z"}}).Draw(t, "removes")
	for j := range rapid.IntRange(1, 2).Draw(t, "checks") {
		spec.Checks = append(spec.Checks, v1alpha1.HealthCheck{
			Name: fmt.Sprint("c", j), ConditionType: rapid.SampledFrom([]string{"X", "X", "Y"}).Draw(t, "type"),
			Object:   &v1alpha1.HealthCheckObject{APIVersion: "v1", Kind: "ConfigMap", Name: "'" + rapid.SampledFrom([]string{"well", "well", "slow", "ill", "ill", "missing"}).Draw(t, "looks at") + "'"},
			Evaluate: v1alpha1.HealthCheckEvaluator{CEL: &v1alpha1.CELCheck{Healthy: "object.data.is == 'well'", Progressing: "object.data.is == 'slow'"}},
		})
	}
	if rapid.IntRange(0, 9).Draw(t, "finalizer") > 0 {
		hcr.Finalizers = []string{v1alpha1.FinalizerUndo}
	}
	stands := rapid.SampledFrom([]string{"", "", "", "", "refused", "doubtful", "edited", "deleted"}).Draw(t, "stands")
	if stands == "refused" {
		spec.SyncPeriod = "1s"
	}
	if rapid.IntRange(0, 4).Draw(t, "breaker") == 0 {
		hcr.Status.Breaker = &v1alpha1.Breaker{ID: "20261122t115500z", OpenedAt: metav1.NewTime(noon.Add(-5 * time.Minute))}
		if rapid.Bool().Draw(t, "reset") {
			hcr.Annotations = map[string]string{v1alpha1.AnnotationResetBreaker: hcr.Status.Breaker.ID}
		}
	}
	w.judge(hcr, stands)
}

// judge lets the manager take in a registration, and write into its status what the rules say.
func (w *checkedWorld) judge(hcr *v1alpha1.HealthCheckRegistration, stands string) {
	key := client.ObjectKeyFromObject(hcr)
	w.o.policies.Seen(w.t.Context(), hcr.DeepCopy())
	if stands != "doubtful" {
		w.o.policies.Judge(w.t.Context(), key)
		j, _ := w.o.policies.Get(key)
		accepted := metav1.Condition{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Message: j.Verdict.Message(), ObservedGeneration: 1}
		if j.Admitted.Valid() {
			accepted.Status = metav1.ConditionTrue
		}
		if j.Admitted.Valid() != (stands != "refused") {
			w.t.Fatalf("%s: the rules say %s", stands, j.Verdict.Message())
		}
		hcr.Status.Conditions = []metav1.Condition{accepted}
	}
	switch stands {
	case "edited":
		hcr.Generation = 2
	case "deleted":
		hcr.Generation, hcr.DeletionTimestamp = 2, &metav1.Time{Time: noon}
	}
	w.o.policies.Seen(w.t.Context(), hcr.DeepCopy())
	w.o.results.update(hcr, noon)
	w.stored = append(w.stored, *hcr)
}

// acts are what the manager does to the Worker's conditions now.
func (w *checkedWorld) acts() map[string]string {
	r := &TargetReconciler{Observer: w.o, Checker: readsLive()}
	target := checking.Target{Kind: worker.GroupKind(), Key: types.NamespacedName{Namespace: "n", Name: "w"}}
	l := r.newEvaluation(target, w.worker, versions{worker.Version: w.worker}, nil)
	acts := map[string]string{}
	live := sets.New[string]()
	for _, d := range l.registrations {
		if d.Registration != nil {
			live.Insert(d.ConditionTypes()...)
		}
	}
	for _, s := range l.plan(w.t.Context(), health.Layout{Shape: health.Gardener}, live).Steps {
		if l.stopped(s) {
			continue
		}
		if acts[s.Condition.Type] = string(s.Condition.Status); s.Remove {
			acts[s.Condition.Type] = "removed"
		}
		if s.Held {
			acts[s.Condition.Type] += ", because the breaker opens when so many turn False at once"
		}
	}
	return acts
}

// workersKeepConditions as Gardener does.
var workersKeepConditions = json.RawMessage(`{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "workers.extensions.gardener.cloud"}, "spec": {
	"names": {"kind": "Worker"}, "versions": [{"name": "v1alpha1", "served": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {"properties": {"status": {"properties": {"conditions": {
		"type": "array", "items": {"properties": {"type": {}, "status": {}, "reason": {}, "message": {}, "lastTransitionTime": {}, "lastUpdateTime": {}, "codes": {}}}
	}}}}}}}]
}}`)

var arrow = regexp.MustCompile(`(?m)^ +([XYZ])(?:: .*)? → (.*)$`)

// says is what one reads of the Worker.
func (w *checkedWorld) says() (acts map[string]string, text string) {
	items := []any{w.worker.Object, workersKeepConditions}
	for _, found := range lookedAtMaps {
		items = append(items, found.Object)
	}
	for i := range w.stored {
		w.stored[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("HealthCheckRegistration"))
		items = append(items, &w.stored[i])
	}
	file, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items, "metadata": map[string]any{"annotations": map[string]string{
		"facts.autohealer.resourcestack.com/taken-at": noon.Format(time.RFC3339),
	}}})
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := snapshot.Read(file)
	if err != nil {
		w.t.Fatal(err)
	}
	g, err := builtin()
	if err != nil {
		w.t.Fatal(err)
	}
	f, err := snapshot.NewWatchedFacts(w.t.Context(), s, g, "autohealer-system")
	if err != nil {
		w.t.Fatal(err)
	}
	view, _, err := f.ViewChecks(w.t.Context(), w.policy, "worker", types.NamespacedName{Namespace: "n", Name: "w"})
	if err != nil {
		w.t.Fatal(err)
	}
	text = explain.Checked("worker/w", "n", view, noon)
	acts = map[string]string{}
	for _, m := range arrow.FindAllStringSubmatch(text, -1) {
		if strings.HasSuffix(m[2], "(not written)") {
			continue
		}
		says, _, _ := strings.Cut(m[2], ", and False from")
		says, _, _ = strings.Cut(says, ": ")
		if before, twice := acts[m[1]]; twice && before != says {
			w.t.Errorf("of %s one reads %q and %q in\n%s", m[1], before, says, text)
		}
		acts[m[1]] = says
	}
	return acts, text
}

// TestExplainAndChecksNeverDisagree: of every condition of an object, explain says that it is written, and with which status, or
// removed, or stays, as the manager that makes the checks decides.
func TestExplainAndChecksNeverDisagree(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawChecked(t, rt)
		if len(w.stored) == 0 {
			return // there is nobody to ask about this kind
		}
		want := w.acts()
		got, text := w.says()
		if !maps.Equal(got, want) {
			rt.Errorf("explain says %v, the manager does %v:\n%s", got, want, text)
		}
	})
}
