package actuate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

// api is a real API server: what a JSON Patch does to an absent list can't be told by a fake.
var (
	api     client.Client
	podsAPI corev1client.PodsGetter
)

func TestMain(m *testing.M) {
	code := func() int {
		c, err := cluster.Start(context.Background(), cluster.Options{})
		if err != nil {
			println(err.Error())
			return 1
		}
		defer func() { _ = c.Stop() }()
		scheme := runtime.NewScheme()
		if err := errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme)); err != nil {
			panic(err)
		}
		if api, err = client.New(c.Config, client.Options{Scheme: scheme}); err != nil {
			panic(err)
		}
		if podsAPI, err = corev1client.NewForConfig(c.Config); err != nil {
			panic(err)
		}
		return m.Run()
	}()
	os.Exit(code)
}

const (
	key     = "node.stakater.com/KernelDeadlock"
	foreign = "example.com/dedicated"
)

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect}
}

// set is a stored ConditionSet, admitted by the built-in rules.
func set(t *testing.T) (*v1alpha1.ConditionSet, Admitted) {
	t.Helper()
	cs := &v1alpha1.ConditionSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autohealer.resourcestack.com/v1alpha1", Kind: "ConditionSet"},
		ObjectMeta: metav1.ObjectMeta{Name: "kernel", UID: "set-uid", Generation: 3},
		Spec: v1alpha1.ConditionSetSpec{
			Type: "KernelDeadlock", Effect: corev1.TaintEffectNoSchedule, TaintKey: key,
			Conditions: map[string]v1alpha1.MemberCondition{"KernelDeadlock": {Status: v1alpha1.RequiredStatus{JSON: "true"}}},
		},
	}
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v, verdict := guard.Admit(context.Background(), g, cs)
	if !v.Valid() {
		t.Fatalf("the set isn't admitted: %s", verdict.Message())
	}
	return cs, v
}

type current struct{ err error }

func (c current) Check(context.Context, schema.GroupVersionKind, types.NamespacedName, types.UID, int64) error {
	return c.err
}

func (c current) CheckAll(_ context.Context, _ schema.GroupVersionKind, all []kube.Admission) map[types.UID]error {
	wrong := map[types.UID]error{}
	for _, a := range all {
		if c.err != nil {
			wrong[a.UID] = c.err
		}
	}
	return wrong
}

func create(t *testing.T, node *corev1.Node) *condition.Node {
	t.Helper()
	if err := api.Create(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Delete(context.Background(), node) })
	return condition.NewNode(node, nil, time.Now())
}

func read(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := api.Get(context.Background(), types.NamespacedName{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

func taintStep() condition.Step {
	return condition.Step{Verb: condition.Taint, Set: "set-uid", SetName: "kernel", Generation: 3, Key: key, To: corev1.TaintEffectNoSchedule}
}

func owning() condition.Ownership {
	return condition.Ownership{Taints: []condition.OwnedTaint{{Key: key, Effect: corev1.TaintEffectNoSchedule, Set: "set-uid", Name: "kernel", Generation: 3}}}
}

func TestATaintAndItsRecordAreWrittenTogetherWhateverTheNodeHad(t *testing.T) {
	_, admitted := set(t)
	for name, node := range map[string]*corev1.Node{
		"nothing":               {},
		"other annotations":     {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}},
		"another's taint":       {Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint(foreign, corev1.TaintEffectNoSchedule)}}},
		"an empty record":       {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationOwnedTaints: ""}}},
		"a record of the past":  {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationOwnedTaints: `{"history":[{"set":"x","at":"2026-11-21T03:00:00Z"}]}`}}},
		"a taint and a comment": {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": "b"}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint(foreign, corev1.TaintEffectNoExecute)}}},
	} {
		t.Run(name, func(t *testing.T) {
			node.GenerateName = "had-"
			known := create(t, node)
			lines := &[]string{}
			writer := &Taints{Client: api, Current: current{}, Acts: funcr.New(func(_, args string) { *lines = append(*lines, args) }, funcr.Options{})}
			plan := condition.Plan{Node: known, Taints: append(append([]corev1.Taint{}, known.Taints...), taint(key, corev1.TaintEffectNoSchedule)), Owned: owning(), Steps: []condition.Step{taintStep()}}

			version, err := writer.Apply(t.Context(), plan, []Admitted{admitted})

			if err != nil {
				t.Fatal(err)
			}
			got := read(t, known.Name)
			if got.ResourceVersion != version {
				t.Errorf("the write gave resource version %s, and the node is at %s", version, got.ResourceVersion)
			}
			if len(got.Spec.Taints) != len(known.Taints)+1 || got.Annotations[v1alpha1.AnnotationOwnedTaints] != owning().String() {
				t.Errorf("the node has taints %v and record %q", got.Spec.Taints, got.Annotations[v1alpha1.AnnotationOwnedTaints])
			}
			if len(*lines) != 1 {
				t.Errorf("want one audit line, got %q", *lines)
			}

			undo := condition.Plan{Node: condition.NewNode(got, nil, time.Now()), Taints: known.Taints,
				Steps: []condition.Step{{Verb: condition.Untaint, Set: "set-uid", SetName: "kernel", Key: key, From: corev1.TaintEffectNoSchedule}}}
			if _, err := writer.Apply(t.Context(), undo, nil); err != nil {
				t.Fatalf("undo: %v", err)
			}
			left := read(t, known.Name)
			if _, ok := left.Annotations[v1alpha1.AnnotationOwnedTaints]; ok || len(left.Spec.Taints) != len(known.Taints) {
				t.Errorf("after the undo the node has taints %v and annotations %v", left.Spec.Taints, left.Annotations)
			}
		})
	}
}

func TestATaintWithoutAnAnswerIsToldAsSuch(t *testing.T) {
	_, admitted := set(t)
	known := create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "silent-"}})
	var lines []string
	writer := &Taints{Client: &mortal{Client: api}, Current: current{}, Acts: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})}
	plan := condition.Plan{Node: known, Taints: []corev1.Taint{taint(key, corev1.TaintEffectNoSchedule)}, Owned: owning(), Steps: []condition.Step{taintStep()}}
	if _, err := writer.Apply(t.Context(), plan, []Admitted{admitted}); !errors.Is(err, errDied) || len(lines) != 1 || !strings.Contains(lines[0], `"unconfirmed"="the manager died"`) {
		t.Errorf("error %v, lines %q", err, lines)
	}
}

func TestAWriteFromAnOldReadChangesNothing(t *testing.T) {
	_, admitted := set(t)
	known := create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "old-"}})
	others := read(t, known.Name)
	others.Spec.Taints = []corev1.Taint{taint(foreign, corev1.TaintEffectNoSchedule)}
	if err := api.Update(t.Context(), others); err != nil {
		t.Fatal(err)
	}
	writer := &Taints{Client: api, Current: current{}, Acts: funcr.New(func(_, args string) { t.Errorf("audit line for nothing: %s", args) }, funcr.Options{})}

	_, err := writer.Apply(t.Context(), condition.Plan{Node: known, Taints: []corev1.Taint{taint(key, corev1.TaintEffectNoSchedule)}, Owned: owning(), Steps: []condition.Step{taintStep()}}, []Admitted{admitted})

	if !errors.Is(err, ErrStale) || !Certain(err) {
		t.Errorf("want ErrStale, surely without effect, got %v", err)
	}
	if got := read(t, known.Name); len(got.Spec.Taints) != 1 || got.Spec.Taints[0].Key != foreign {
		t.Errorf("the node has taints %v", got.Spec.Taints)
	}
}

func TestNoTaintIsSetOnANodeThatIsHeldMeanwhileAndUndoGoesOn(t *testing.T) {
	_, admitted := set(t)
	for name, annotations := range map[string]map[string]string{"with annotations": {"a": "b"}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			known := create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "held-", Annotations: annotations}})
			hold := func(until string) {
				held := read(t, known.Name)
				metav1.SetMetaDataAnnotation(&held.ObjectMeta, "autohealer.resourcestack.com/hold-until", until)
				if err := api.Update(t.Context(), held); err != nil {
					t.Fatal(err)
				}
			}
			hold("2126-11-21T03:00:00Z")
			writer := &Taints{Client: api, Current: current{}}
			taints := condition.Plan{Node: known, Taints: []corev1.Taint{taint(key, corev1.TaintEffectNoSchedule)}, Owned: owning(), Steps: []condition.Step{taintStep()}}
			if _, err := writer.Apply(t.Context(), taints, []Admitted{admitted}); !errors.Is(err, ErrStale) {
				t.Fatalf("want ErrStale, got %v", err)
			}
			hold("2006-11-21T03:00:00Z") // over
			taints.Node = condition.NewNode(read(t, known.Name), nil, time.Now())
			if _, err := writer.Apply(t.Context(), taints, []Admitted{admitted}); err != nil {
				t.Fatalf("after the hold: %v", err)
			}
			undo := condition.Plan{Node: condition.NewNode(read(t, known.Name), nil, time.Now()),
				Steps: []condition.Step{{Verb: condition.Untaint, Set: "set-uid", SetName: "kernel", Key: key, From: corev1.TaintEffectNoSchedule}}}
			hold("2126-11-21T03:00:00Z")
			if _, err := writer.Apply(t.Context(), undo, nil); err != nil {
				t.Fatalf("undo: %v", err)
			}
		})
	}
}

func TestANodeReplacedUnderTheSameNameIsLeftAlone(t *testing.T) {
	_, admitted := set(t)
	known := create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "twin-"}})
	known.UID = "of-the-node-before"
	writer := &Taints{Client: api, Current: current{}}

	_, err := writer.Apply(t.Context(), condition.Plan{Node: known, Taints: []corev1.Taint{taint(key, corev1.TaintEffectNoSchedule)}, Owned: owning(), Steps: []condition.Step{taintStep()}}, []Admitted{admitted})

	if !errors.Is(err, ErrStale) {
		t.Errorf("want ErrStale, got %v", err)
	}
}

func TestNothingHarmfulIsWrittenWithoutAnAdmissionThatCoversIt(t *testing.T) {
	_, admitted := set(t)
	known := create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "bare-"}})
	otherGeneration, otherSet := taintStep(), taintStep()
	otherGeneration.Generation, otherSet.Set = 4, "another"
	for name, c := range map[string]struct {
		step     condition.Step
		admitted []Admitted
		current  error
		want     error
	}{
		"no admission":                            {step: taintStep(), want: ErrNotValidated},
		"the zero admission":                      {step: taintStep(), admitted: []Admitted{{}}, want: ErrNotValidated},
		"another generation's":                    {step: otherGeneration, admitted: []Admitted{admitted}, want: ErrNotValidated},
		"another set's":                           {step: otherSet, admitted: []Admitted{admitted}, want: ErrNotValidated},
		"one that no longer holds":                {step: taintStep(), admitted: []Admitted{admitted}, current: fmt.Errorf("it is at generation 4: %w", kube.ErrSuperseded), want: ErrStale},
		"one that can't be read":                  {step: taintStep(), admitted: []Admitted{admitted}, current: context.DeadlineExceeded, want: context.DeadlineExceeded},
		"an undo of what the record doesn't have": {step: condition.Step{Verb: condition.Untaint, Key: key}, want: ErrNotValidated},
	} {
		t.Run(name, func(t *testing.T) {
			writer := &Taints{Client: api, Current: current{c.current}}
			plan := condition.Plan{Node: known, Taints: []corev1.Taint{taint(key, corev1.TaintEffectNoSchedule)}, Owned: owning(), Steps: []condition.Step{c.step}}

			_, err := writer.Apply(t.Context(), plan, c.admitted)

			if !errors.Is(err, c.want) || !Certain(err) {
				t.Errorf("want %v, got %v", c.want, err)
			}
			if got := read(t, known.Name); len(got.Spec.Taints) != 0 || got.Annotations[v1alpha1.AnnotationOwnedTaints] != "" {
				t.Errorf("the node was written: %v %v", got.Spec.Taints, got.Annotations)
			}
		})
	}
}

func TestOnlyTheAPIServersRefusalIsCertain(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		certain bool
	}{
		"conflict":        {apierrors.NewConflict(schema.GroupResource{}, "n", nil), true},
		"forbidden":       {apierrors.NewForbidden(schema.GroupResource{}, "n", nil), true},
		"too many":        {apierrors.NewTooManyRequests("later", 1), true},
		"server time-out": {apierrors.NewServerTimeout(schema.GroupResource{}, "patch", 1), false},
		"time-out":        {apierrors.NewTimeoutError("too slow", 1), false},
		"internal error":  {apierrors.NewInternalError(errors.New("etcd")), false},
		"lost connection": {errors.New("read: connection reset by peer"), false},
		"our deadline":    {context.DeadlineExceeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Certain(c.err); got != c.certain {
				t.Errorf("Certain is %t", got)
			}
		})
	}
}

func TestAValidationErrorIsNotStale(t *testing.T) {
	_, admitted := set(t)
	known := create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "invalid-"}})
	writer := &Taints{Client: api, Current: current{}}

	_, err := writer.Apply(t.Context(), condition.Plan{Node: known, Taints: []corev1.Taint{taint("not a key", corev1.TaintEffectNoSchedule)}, Owned: owning(), Steps: []condition.Step{taintStep()}}, []Admitted{admitted})

	if err == nil || errors.Is(err, ErrStale) || !apierrors.IsInvalid(err) {
		t.Errorf("want the API server's own validation error, got %v", err)
	}
}
