package dependents_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	decl "k8s.io/apiserver/pkg/cel"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
)

var now = time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)

// objects are a cluster.
type objects struct {
	targets []*unstructured.Unstructured
	// there are objects by kind, namespace and name.
	there     map[string]*unstructured.Unstructured
	unserved  string
	forbidden string
	layout    health.Layout
	unsafe    string
	types     map[schema.GroupVersionKind]*decl.DeclType
	untyped   error
	err       error
}

func (o *objects) Targets(_ context.Context, kind schema.GroupVersionKind, _ labels.Selector, most int) ([]*unstructured.Unstructured, bool, error) {
	if o.forbidden == kind.Kind {
		return nil, false, apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: strings.ToLower(kind.Kind) + "s"}, "", errors.New("no"))
	}
	return o.targets[:min(most, len(o.targets))], len(o.targets) > most, o.err
}

func (o *objects) Find(_ context.Context, ref registration.Ref) ([]*unstructured.Unstructured, error) {
	if o.forbidden == ref.Kind.Kind {
		return nil, apierrors.NewForbidden(schema.GroupResource{Group: ref.Kind.Group, Resource: strings.ToLower(ref.Kind.Kind) + "s"}, ref.Name, errors.New("no"))
	}
	if ref.Name == "" {
		return o.selected(ref), nil
	}
	if found := o.there[ref.Kind.Kind+" "+ref.Key().String()]; found != nil {
		return []*unstructured.Unstructured{found}, nil
	}
	return nil, nil
}

// selected are those that labels select, sorted.
func (o *objects) selected(ref registration.Ref) (found []*unstructured.Unstructured) {
	for _, key := range slices.Sorted(maps.Keys(o.there)) {
		if of := o.there[key]; of.GetKind() == ref.Kind.Kind && of.GetNamespace() == ref.Namespace && ref.Selector.Matches(labels.Set(of.GetLabels())) {
			found = append(found, of)
		}
	}
	return found
}

func (o *objects) Resolve(ref registration.Ref) registration.Ref {
	if ref.Kind.Kind == "ClusterRole" {
		ref.Namespace = ""
	}
	return ref
}

func (o *objects) Namespace(_ context.Context, name string) (labels.Set, error) {
	return labels.Set{"name": name}, nil
}

func (o *objects) Layout(context.Context, schema.GroupVersionKind) (health.Layout, error) {
	return o.layout, nil
}

func (o *objects) Served(_ context.Context, kind schema.GroupVersionKind) (bool, error) {
	return kind.Kind != o.unserved, nil
}

func (o *objects) Types(context.Context, []schema.GroupVersionKind) (map[schema.GroupVersionKind]*decl.DeclType, error) {
	return o.types, o.untyped
}

func (o *objects) Kubeconfig(context.Context, string, v1alpha1.SecretKey) (string, error) {
	return o.unsafe, nil
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func registered(t *testing.T, name, spec string) *v1alpha1.HealthCheckRegistration {
	t.Helper()
	hcr := &v1alpha1.HealthCheckRegistration{}
	hcr.Name = name
	if err := yaml.UnmarshalStrict([]byte(spec), &hcr.Spec); err != nil {
		t.Fatal(err)
	}
	return hcr
}

// worker in its own namespace, and its Deployment mcm, which is well or not.
func (o *objects) worker(t *testing.T, name string, well bool, more string) {
	t.Helper()
	o.targets = append(o.targets, object(t, fmt.Sprintf("{apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, metadata: {namespace: %s, name: w%s}, spec: {type: aws, pools: [{minimum: 1}]}}", name, more)))
	if o.there == nil {
		o.there = map[string]*unstructured.Unstructured{}
	}
	o.there["Deployment "+name+"/mcm"] = object(t, fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: %s, name: mcm, generation: 1}, status: {observedGeneration: 1, conditions: [{type: Available, status: %q, reason: R, message: M}]}}",
		name, map[bool]string{true: "True", false: "False"}[well]))
}

const (
	onWorkers = "target: {apiVersion: extensions.gardener.cloud/v1alpha1, kind: Worker, type: aws}\n"
	mcm       = onWorkers + `checks: [{name: mcm, conditionType: EveryNodeReady, object: {apiVersion: apps/v1, kind: Deployment, name: "'mcm'"}, evaluate: {builtin: {}}}]`
)

func tell(t *testing.T, o *objects, spec string, stored ...*v1alpha1.HealthCheckRegistration) (registration.Forecast, registration.Items) {
	t.Helper()
	if o.layout.Shape == "" && o.layout.Problem == "" {
		o.layout = health.Layout{Shape: health.Gardener}
	}
	s := &dependents.Survey{
		Objects: o, Read: 1001, Check: 100, Known: &dependents.Known{},
		Stored: func(context.Context) ([]*v1alpha1.HealthCheckRegistration, error) { return stored, nil },
	}
	forecast, err := s.Forecast(t.Context(), registered(t, "judged", spec), limit.Builtin(), now)
	if err != nil {
		t.Fatal(err)
	}
	return forecast, forecast.Items
}

func TestHowManyWouldTurnFalse(t *testing.T) {
	o := &objects{}
	for i := range 10 {
		o.worker(t, fmt.Sprintf("shoot--%d", i), i != 4, "")
	}
	forecast, items := tell(t, o, mcm)
	if forecast.Targets != 10 || forecast.Looked != 10 || !forecast.AllRead || forecast.WouldFail != 1 || forecast.WouldBeDoubted != 0 {
		t.Errorf("the forecast is %+v", forecast)
	}
	want := []string{"shoot--4/w: EveryNodeReady (0/1) Health checks successful: 1) mcm: shoot--4/mcm: condition Available of Deployment is False (R: M)"}
	if len(forecast.WouldFailTargets) != 1 || !strings.HasPrefix(forecast.WouldFailTargets[0], "shoot--4/w: EveryNodeReady (0/1) Health checks successful: 1) mcm: shoot--4/mcm") {
		t.Errorf("it tells of %q, not %q", forecast.WouldFailTargets, want)
	}
	if first := items.Targets[0]; first.Namespace != "shoot--4" || first.Conditions[0].Verdict.Status != health.False || first.Conditions[0].Now != "" || !first.Conditions[0].Writes {
		t.Errorf("the worst is %+v", first)
	}
	if items.Writes != 10 {
		t.Errorf("%d conditions would be written", items.Writes)
	}
}

func TestTheBreakerHoldsInAForecastWhatItHoldsInLife(t *testing.T) {
	o := &objects{}
	for i := range 10 {
		o.worker(t, fmt.Sprintf("shoot--%d", i), false, "")
	}
	if forecast, _ := tell(t, o, mcm); forecast.WouldFail != 10 || forecast.WouldBeDoubted != 0 {
		t.Errorf("of what was never True %d would turn False, %d be doubted", forecast.WouldFail, forecast.WouldBeDoubted)
	}
	o.wereWell()
	forecast, items := tell(t, o, mcm)
	if forecast.WouldFail != 2 || forecast.WouldBeDoubted != 8 { // the third is the first that is three, and 30% of ten
		t.Errorf("%d would turn False, %d be doubted", forecast.WouldFail, forecast.WouldBeDoubted)
	}
	if last := items.Targets[len(items.Targets)-1].Conditions[0]; last.Verdict.Status != health.Unknown || last.Verdict.Reason != "HealthCheckInDoubt" {
		t.Errorf("one in doubt is %+v", last.Verdict)
	}
}

func TestWhatIsFalseAlreadyDoesNotTurnFalse(t *testing.T) {
	o := &objects{}
	o.worker(t, "shoot--a", false, `, annotations: {autohealer.resourcestack.com/owned-conditions: EveryNodeReady}`)
	o.targets[0].Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "EveryNodeReady", "status": "False", "reason": "HealthCheckUnsuccessful", "message": "(0/1) Health checks successful: 1) mcm: down", "lastTransitionTime": "2026-11-22T05:00:00Z"}}}
	forecast, items := tell(t, o, mcm)
	if forecast.WouldFail != 0 || items.Failing != 1 || len(forecast.ForeignConditions) != 0 {
		t.Errorf("the forecast is %+v, %d are failing", forecast, items.Failing)
	}
}

func TestForeignConditionsAreFound(t *testing.T) {
	o := &objects{}
	o.worker(t, "shoot--a", false, "")
	o.targets[0].Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "EveryNodeReady", "status": "True"}}}
	forecast, items := tell(t, o, mcm)
	if !slices.Equal(forecast.ForeignConditions, []string{"EveryNodeReady of shoot--a/w"}) || forecast.WouldFail != 0 || items.Writes != 0 {
		t.Errorf("the forecast is %+v", forecast)
	}
	if forecast, _ = tell(t, o, "output: RegistrationOnly\n"+mcm); len(forecast.ForeignConditions) != 0 {
		t.Error("what writes no conditions is told of someone else's")
	}
}

func TestAShootIsNotAsked(t *testing.T) {
	o := &objects{}
	o.worker(t, "shoot--a", true, "")
	o.worker(t, "shoot--b", false, "")
	_, items := tell(t, o, onWorkers+"shootKubeconfig: {secretName: gardener}\n"+`checks: [{name: mcm, conditionType: EveryNodeReady, object: {apiVersion: apps/v1, kind: Deployment, name: "'mcm'"}, evaluate: {builtin: {}}}, {name: nodes, conditionType: EveryNodeReady, evaluate: {nodes: {min: 1}}}]`)
	for _, f := range items.Targets {
		c, want := f.Conditions[0], map[string]health.Status{"shoot--a": "", "shoot--b": "False"}[f.Namespace]
		if c.Verdict.Status != want || !slices.Equal(c.NotEvaluated, []string{"nodes"}) {
			t.Errorf("%s would be %q without %q", f.Namespace, c.Verdict.Status, c.NotEvaluated)
		}
	}
	if items.Writes != 1 {
		t.Errorf("%d would be written, though one isn't known", items.Writes)
	}
}

func TestWhatNodesAreComparedWithIsAsked(t *testing.T) {
	const nodes = onWorkers + "shootKubeconfig: {secretName: gardener}\nchecks: [{name: nodes, conditionType: EveryNodeReady, object: {apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, selector: {}}, evaluate: {nodes: {desired: object.spec.replicas}}}]"
	for name, c := range map[string]struct {
		is       objects
		spec     string
		status   health.Status
		notMade  []string
		unknown  int
		unread   []string
		unserved []string
	}{
		"some are desired":     {objects{}, "{replicas: 3}", "", []string{"nodes"}, 0, nil, nil},
		"none are":             {objects{}, "{replicas: 0}", "True", nil, 0, nil, nil},
		"it doesn't say":       {objects{}, "{}", "Unknown", nil, 1, nil, nil},
		"there are none":       {objects{}, "", "False", nil, 0, nil, nil},
		"it may not be read":   {objects{forbidden: "MachineDeployment"}, "{replicas: 3}", "Unknown", nil, 0, []string{"machinedeployments.machine.sapcloud.io"}, nil},
		"the kind isn't there": {objects{unserved: "MachineDeployment"}, "", "False", nil, 0, nil, []string{"MachineDeployment of machine.sapcloud.io/v1alpha1"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &c.is
			o.worker(t, "shoot--a", true, "")
			if c.spec != "" {
				o.there["MachineDeployment shoot--a/pool"] = object(t, "{apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, metadata: {namespace: shoot--a, name: pool}, spec: "+c.spec+"}")
			}
			forecast, items := tell(t, o, nodes)
			is := items.Targets[0].Conditions[0]
			if is.Verdict.Status != c.status || !slices.Equal(is.NotEvaluated, c.notMade) || forecast.WouldBeUnknown != c.unknown {
				t.Errorf("it would be %q (%s) without %q, and Unknown of %d", is.Verdict.Status, is.Verdict.Message, is.NotEvaluated, forecast.WouldBeUnknown)
			}
			if !slices.Equal(forecast.UnreadableKinds, c.unread) || !slices.Equal(forecast.UnknownKinds, c.unserved) {
				t.Errorf("it tells of %q and %q", forecast.UnreadableKinds, forecast.UnknownKinds)
			}
		})
	}
}

func TestWhatIsInNoNamespaceIsToldWithoutOne(t *testing.T) {
	o := &objects{}
	o.worker(t, "shoot--a", true, "")
	_, items := tell(t, o, onWorkers+`checks: [{name: role, conditionType: X, object: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, name: "'r'"}, evaluate: {status: {}}},
 {name: mcm, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: "'none'"}, evaluate: {builtin: {}}}]`)
	is := items.Targets[0].Conditions[0]
	if got := is.Verdict.Message; got != "(0/2) Health checks successful: 1) mcm: Deployment shoot--a/none doesn't exist; 2) role: ClusterRole r doesn't exist" {
		t.Errorf("it would say %q", got)
	}
	if is.At["role"] != "ClusterRole r" || is.At["mcm"] != "Deployment shoot--a/none" {
		t.Errorf("they are at %q", is.At)
	}
}

func TestOthersOfTheSameTypeCount(t *testing.T) {
	o := &objects{}
	o.worker(t, "shoot--a", true, "")
	other := registered(t, "other", onWorkers+`checks: [{name: gone, conditionType: EveryNodeReady, object: {apiVersion: apps/v1, kind: Deployment, name: "'gone'"}, evaluate: {builtin: {}}}]`)
	observer := registered(t, "observer", "mode: Observe\n"+onWorkers+`checks: [{name: x, conditionType: EveryNodeReady, object: {apiVersion: apps/v1, kind: Deployment, name: "'gone'"}, evaluate: {builtin: {}}}]`)
	forecast, items := tell(t, o, mcm, other, observer)
	if message := items.Targets[0].Conditions[0].Verdict.Message; forecast.WouldFail != 1 || message != "(1/2) Health checks successful: 1) other/gone: Deployment shoot--a/gone doesn't exist" {
		t.Errorf("%d would turn False: %s", forecast.WouldFail, message)
	}
}

func TestWhatKindsAreLike(t *testing.T) {
	for name, c := range map[string]struct {
		objects objects
		spec    string
		want    func(registration.Forecast) bool
	}{
		"the targets' is unknown": {objects{unserved: "Worker"}, mcm, func(p registration.Forecast) bool {
			return slices.Equal(p.UnknownKinds, []string{"Worker of extensions.gardener.cloud/v1alpha1"}) && p.Targets == 0
		}},
		"that of a check is unknown": {objects{unserved: "Deployment"}, mcm, func(p registration.Forecast) bool {
			return slices.Equal(p.UnknownKinds, []string{"Deployment of apps/v1"}) && p.Looked == 1
		}},
		"the targets may not be read": {objects{forbidden: "Worker"}, mcm, func(p registration.Forecast) bool {
			return slices.Equal(p.UnreadableKinds, []string{"workers.extensions.gardener.cloud"}) && !p.AllRead
		}},
		"what is checked may not be read": {objects{forbidden: "Deployment"}, mcm, func(p registration.Forecast) bool {
			return slices.Equal(p.UnreadableKinds, []string{"deployments.apps"}) && p.WouldFail == 0
		}},
		"they take no conditions": {objects{layout: health.Layout{Problem: "the kind has no status subresource"}}, mcm, func(p registration.Forecast) bool {
			return p.Unwritable == "the kind has no status subresource"
		}},
		"a status of the shape isn't allowed": {objects{layout: health.Layout{Shape: "Conditions", NoProgressing: true}}, "output: Gardener\n" + mcm, func(p registration.Forecast) bool {
			return p.Unwritable == "output: Gardener has status Progressing, which the schema of status.conditions doesn't allow; leave output out"
		}},
		"it is allowed in their own shape": {objects{layout: health.Layout{Shape: "Conditions", NoProgressing: true}}, mcm, func(p registration.Forecast) bool {
			return p.Unwritable == ""
		}},
		"and none are written": {objects{layout: health.Layout{Problem: "the kind has no status subresource"}}, "output: RegistrationOnly\n" + mcm, func(p registration.Forecast) bool {
			return p.Unwritable == ""
		}},
		"a kubeconfig is unsafe": {objects{unsafe: "user runs a command"}, "shootKubeconfig: {secretName: gardener}\n" + mcm, func(p registration.Forecast) bool {
			return slices.Equal(p.UnsafeKubeconfigs, []string{"shoot--a/gardener (user runs a command)"})
		}},
		"status of what has none": {objects{}, onWorkers + `checks: [{name: plain, conditionType: X, object: {apiVersion: v1, kind: ConfigMap, name: "'c'"}, evaluate: {status: {}}}, {name: mcm, conditionType: X, object: {apiVersion: apps/v1, kind: Deployment, name: "'mcm'"}, evaluate: {status: {}}}]`, func(p registration.Forecast) bool {
			return slices.Equal(p.StatuslessChecks, []string{"plain (ConfigMap has no conditions)"})
		}},
		"status of what has others": {objects{}, onWorkers + `checks: [{name: web, conditionType: X, object: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, selector: {}}, evaluate: {status: {}}}, {name: sick, conditionType: X, object: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, selector: {}}, evaluate: {cel: {healthy: object.ok}}}]`, func(p registration.Forecast) bool {
			return slices.Equal(p.StatuslessChecks, []string{"web (Rollout has Available, Progressing)"})
		}},
		"status of what is chosen": {objects{}, onWorkers + `checks: [{name: all, conditionType: X, object: {apiVersion: v1, kind: ConfigMap, selector: {}}, evaluate: {status: {}}}, {name: plain, conditionType: X, object: {apiVersion: v1, kind: ConfigMap, selector: {}, where: object.metadata.name == 'c'}, evaluate: {status: {}}}]`, func(p registration.Forecast) bool {
			return slices.Equal(p.StatuslessChecks, []string{"plain (ConfigMap has no conditions)"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c.objects.worker(t, "shoot--a", true, "")
			c.objects.there["ConfigMap shoot--a/telling"] = object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shoot--a, name: telling}, status: {conditions: [{type: Ready}]}}")
			c.objects.there["ConfigMap shoot--a/c"] = object(t, "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shoot--a, name: c}}")
			for _, rollout := range []string{"{name: a, namespace: shoot--a}, status: {observedGeneration: '1', conditions: [{type: Available}, {type: Progressing}]}", "{name: new, namespace: shoot--a}"} {
				o := object(t, "{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: "+rollout+"}")
				c.objects.there["Rollout shoot--a/"+o.GetName()] = o
			}
			if forecast, _ := tell(t, &c.objects, c.spec); !c.want(forecast) {
				t.Errorf("the forecast is %+v", forecast)
			}
		})
	}
}

func TestStatusIsAskedOfAllThatACheckLooksAt(t *testing.T) {
	o := &objects{}
	for _, namespace := range []string{"shoot--a", "shoot--b"} {
		o.worker(t, namespace, true, "")
		o.there["Queue "+namespace+"/q"] = object(t, "{apiVersion: example.com/v1, kind: Queue, metadata: {name: q, namespace: "+namespace+"}}")
	}
	spec := onWorkers + `checks: [{name: queue, conditionType: X, object: {apiVersion: example.com/v1, kind: Queue, name: "'q'"}, evaluate: {status: {}}}]`
	if forecast, _ := tell(t, o, spec); !slices.Equal(forecast.StatuslessChecks, []string{"queue (Queue has no conditions)"}) {
		t.Errorf("of none that tells: %q", forecast.StatuslessChecks)
	}
	o.there["Queue shoot--a/q"].Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready"}}}
	if forecast, _ := tell(t, o, spec); len(forecast.StatuslessChecks) != 0 {
		t.Errorf("one tells, and the other is new: %q", forecast.StatuslessChecks)
	}
}

func TestWorkerlessTargets(t *testing.T) {
	o := &objects{}
	o.worker(t, "shoot--a", true, "")
	o.worker(t, "shoot--b", true, "")
	o.targets[1].Object["spec"] = map[string]any{"type": "aws"}
	if forecast, _ := tell(t, o, mcm); !slices.Equal(forecast.Workerless, []string{"shoot--b/w"}) {
		t.Errorf("workerless are %q", forecast.Workerless)
	}
	asking := strings.Replace(mcm, "conditionType: EveryNodeReady", "conditionType: EveryNodeReady, when: has(target.spec.pools)", 1)
	if forecast, _ := tell(t, o, asking); len(forecast.Workerless) != 0 {
		t.Errorf("workerless are %q, though the check asks", forecast.Workerless)
	}
}

func TestBounds(t *testing.T) {
	o := &objects{}
	for i := range 1200 {
		o.worker(t, fmt.Sprintf("shoot--%d", i), true, "")
	}
	if forecast, items := tell(t, o, mcm); forecast.Targets != 1001 || forecast.Looked != 100 || forecast.AllRead || len(items.Targets) != 100 {
		t.Errorf("of 1200 targets %d count and %d were looked at, all read: %t", forecast.Targets, forecast.Looked, forecast.AllRead)
	}
}

func TestOfTargetsThatAreNotAllReadNoneIsDoubted(t *testing.T) {
	o := &objects{}
	for i := range 1200 {
		o.worker(t, fmt.Sprintf("shoot--%d", i), false, "")
		if i >= 10 {
			o.targets[i].Object["spec"] = map[string]any{"type": "other"}
		}
	}
	o.wereWell()
	forecast, _ := tell(t, o, mcm)
	if forecast.AllRead || forecast.Targets != 10 || forecast.WouldFail != 10 || forecast.WouldBeDoubted != 0 {
		t.Errorf("of ten targets among those that were read, the forecast is %+v", forecast)
	}
	stored := registered(t, "judged", mcm)
	stored.Status.Breaker = &v1alpha1.Breaker{ID: "b"}
	if forecast, _ = tell(t, o, mcm, stored); forecast.WouldFail != 0 || forecast.WouldBeDoubted != 10 {
		t.Errorf("while the breaker is open, the forecast is %+v", forecast)
	}
}

func TestWhatCanNotBeReadIsNotKnown(t *testing.T) {
	s := &dependents.Survey{
		Objects: &objects{err: context.DeadlineExceeded}, Read: 10, Check: 10, Known: &dependents.Known{},
		Stored: func(context.Context) ([]*v1alpha1.HealthCheckRegistration, error) { return nil, nil },
	}
	if _, err := s.Forecast(t.Context(), registered(t, "judged", mcm), limit.Builtin(), now); !errors.Is(err, guard.ErrNotKnown) {
		t.Errorf("the error is %v", err)
	}
}
