package snapshot

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
)

const header = `apiVersion: v1
kind: List
metadata:
  annotations:
    facts.autohealer.resourcestack.com/taken-at: 2026-11-21T12:00:00Z
`

func TestRead(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"facts":                     {text: header + "items: []\n"},
		"what kubectl get prints":   {text: "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: a, creationTimestamp: 2026-11-01T00:00:00Z, selfLink: new}}\n"},
		"an object that is alone":   {text: "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n", want: `want a List of v1, as kubectl get -o yaml prints it, got kind "Node" of "v1"; write the file with kubectl autohealer facts export > FILE`},
		"the former format":         {text: "apiVersion: facts.autohealer.resourcestack.com/v1alpha1\nkind: ClusterFacts\nnodes: []\n", want: "the file is of a former format, which wasn't Kubernetes'; write the file with kubectl autohealer facts export > FILE"},
		"no time":                   {text: "apiVersion: v1\nkind: List\nitems: []\n", want: "neither annotation facts.autohealer.resourcestack.com/taken-at nor an object says when it was"},
		"a time that is none":       {text: strings.Replace(header, "2026-11-21T12:00:00Z", "noon", 1) + "items: []\n", want: `annotation facts.autohealer.resourcestack.com/taken-at: "noon" is no time`},
		"an item that is no object": {text: header + "items: [{kind: Node, metadata: {name: a}}]\n", want: "item 0: it is no object with apiVersion and kind"},
		"an item without a name":    {text: header + "items: [{apiVersion: v1, kind: Node}]\n", want: "item 0, Node: it has no metadata.name"},
		"another version":           {text: header + "items: [{apiVersion: v1, kind: Node, metadata: {name: a}}, {apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: a}}]\n", want: "item 1, HorizontalPodAutoscaler a: it is of autoscaling/v1, and what is read is autoscaling/v2"},
		"a field of another type":   {text: header + "items: [{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: a}, status: {conditions: Ready}}]\n", want: "item 0, Pod shop/a: status.conditions has a string where a list belongs"},
		"a field twice":             {text: header + "kind: List\n", want: `key "kind" already set`},
		"text that is none":         {text: "{", want: "read facts"},
		"a list within it":          {text: header + "items: [{apiVersion: v1, kind: PodList, metadata: {name: a}, items: []}]\n", want: "item 0, PodList a: it is a list or an answer, and what belongs here is an object"},
		"two documents":             {text: header + "items: []\n---\n" + header + "items: []\n", want: "the file has 2 YAML documents, and what is read is one List"},
		"an end, and another":       {text: header + "items: []\n...\n" + header + "items: []\n", want: "the file has 2 YAML documents, and what is read is one List"},
		"one document with marks":   {text: "# written by hand\r\n--- \n" + header + "items: []\n---\n\n# the end\n"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read([]byte(c.text))
			if got := fmt.Sprint(err); (c.want == "") != (err == nil) || !strings.Contains(got, c.want) && c.want != "" {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// TestWhatIsUnknownIsntEmpty: a kind that isn't there isn't known, but for one that the file says was asked for.
func TestWhatIsUnknownIsntEmpty(t *testing.T) {
	const node = "items:\n- {apiVersion: v1, kind: Node, metadata: {name: a, creationTimestamp: 2026-11-01T00:00:00Z}}\n"
	for name, c := range map[string]struct {
		text   string
		covers bool
	}{
		"nothing is said":    {"apiVersion: v1\nkind: List\n" + node, false},
		"none were found":    {header + "    facts.autohealer.resourcestack.com/answers: \"Node -A\\nService -A\"\n" + node, true},
		"others were looked": {header + "    facts.autohealer.resourcestack.com/answers: \"Node -A\\nService -n shop\"\n" + node, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Read([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if !s.Objects.covers(schema.GroupKind{Kind: "Node"}, types.NamespacedName{}, "") {
				t.Error("it has nodes, and doesn't know of them")
			}
			var services corev1.ServiceList
			if err := s.Objects.List(t.Context(), &services); (err == nil) != c.covers || err != nil && !errors.Is(err, guard.ErrNotKnown) || len(services.Items) > 0 {
				t.Errorf("listing Services gives %v and %v", services.Items, err)
			}
			err = s.Objects.Get(t.Context(), client.ObjectKey{Namespace: "mail", Name: "a"}, &corev1.Service{})
			if apierrors.IsNotFound(err) != c.covers || !c.covers && !errors.Is(err, guard.ErrNotKnown) {
				t.Errorf("a Service gives %v", err)
			}
		})
	}
}

// TestWithoutATime the last that an object tells of stands for it, but for those that are still to come.
func TestWithoutATime(t *testing.T) {
	s, err := Read([]byte(`{apiVersion: v1, kind: List, items: [
		{apiVersion: v1, kind: Node, metadata: {name: a, creationTimestamp: 2026-11-01T00:00:00Z, annotations: {autohealer.resourcestack.com/hold-until: 2027-01-01T00:00:00Z}},
			status: {time: 2028-01-01T00:00:00Z, conditions: [{type: Ready, status: "True", lastHeartbeatTime: 2026-11-21T12:00:00Z, lastTransitionTime: 2026-11-02T00:00:00Z}]}},
		{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: a, creationTimestamp: 2026-11-20T00:00:00Z, deletionTimestamp: 2026-11-22T00:00:00Z}},
		{apiVersion: example.com/v1, kind: Job, metadata: {name: a, namespace: a}, spec: {time: 2027-01-01T00:00:00Z, renewTime: 2027-01-01T00:00:00Z, startedAt: 2027-01-01T00:00:00Z}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if gaps := strings.Join(s.Gaps(), "\n"); !strings.Contains(gaps, "no annotation says when the facts were written; 2026-11-21T12:00:00Z, the last time that an object has, is taken for it and for the API server's time") {
		t.Error(gaps)
	} else if !strings.Contains(gaps, "no annotation says how the objects were listed, ") {
		t.Error(gaps)
	}
	if got := s.Describe(time.Date(2026, 11, 21, 12, 3, 0, 0, time.UTC)); got != "facts of 1 node and 0 ConditionSets, 3m0s old" {
		t.Error(got)
	}
}

func TestDescribeTellsTheAge(t *testing.T) {
	s, err := Read([]byte(header + "items: [{apiVersion: v1, kind: Node, metadata: {name: a}}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 22, 13, 30, 0, 0, time.UTC)
	if got, want := s.Describe(now), "facts of 1 node and 0 ConditionSets, 25h30m0s old"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestApplyCountsForWhatFollows: what was applied takes room under the limits of all sets.
func TestApplyCountsForWhatFollows(t *testing.T) {
	text := header + "items:\n"
	for i := range 20 {
		text += fmt.Sprintf("- {apiVersion: v1, kind: Node, metadata: {name: n%02d}, status: {conditions: [{type: A, status: \"%v\"}, {type: B, status: \"%v\"}]}}\n", i, map[bool]string{true: "True", false: "False"}[i < 2], map[bool]string{true: "True", false: "False"}[i >= 18])
	}
	s, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := NewFacts(t.Context(), s, g, "autohealer-system")
	if err != nil {
		t.Fatal(err)
	}
	set := func(name string) *v1alpha1.ConditionSet {
		cs := &v1alpha1.ConditionSet{}
		if err := yaml.Unmarshal([]byte("{metadata: {name: "+name+"}, spec: {type: T, effect: NoSchedule, taintKey: example.com/"+name+", conditions: {"+strings.ToUpper(name)+": {status: true}}}}"), cs); err != nil {
			t.Fatal(err)
		}
		return cs
	}
	apply := func(cs *v1alpha1.ConditionSet) {
		if err := facts.Apply(cs); err != nil {
			t.Fatal(err)
		}
	}
	union := func() int { return facts.ForecastConditionSet(set("b"), g.Policy().Limits, time.Time{}).UnionTainted }
	if got := union(); got != 2 {
		t.Errorf("alone: %d nodes, want 2", got)
	}
	apply(set("a"))
	if got := union(); got != 4 {
		t.Errorf("after the other: %d nodes, want 4", got)
	}
	again := set("a")
	again.Spec.Mode = v1alpha1.Observe
	apply(again)
	if got := union(); got != 2 {
		t.Errorf("after the other only observes: %d nodes, want 2", got)
	}
}

// TestTimesThatAreOver stand for when the file was written, each by itself.
func TestTimesThatAreOver(t *testing.T) {
	for name, object := range map[string]string{
		"a field's manager": "apiVersion: v1, kind: Pod, metadata: {name: a, namespace: a, managedFields: [{time: 2026-11-21T12:00:00Z}]}",
		"a condition":       "apiVersion: example.com/v1, kind: Job, metadata: {name: a}, status: {conditions: [{lastTransitionTime: 2026-11-21T12:00:00Z}]}",
		"a lease":           "apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: a, namespace: kube-node-lease}, spec: {renewTime: 2026-11-21T12:00:00.000000Z}",
		"a container":       "apiVersion: v1, kind: Pod, metadata: {name: a, namespace: a}, status: {containerStatuses: [{name: a, state: {running: {startedAt: 2026-11-21T12:00:00Z}}}]}",
	} {
		s, err := Read([]byte("{apiVersion: v1, kind: List, items: [{" + object + "}]}"))
		if err != nil || !s.ServerTime.Equal(&s.TakenAt) || s.TakenAt.UTC().Format(time.RFC3339) != "2026-11-21T12:00:00Z" {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}
