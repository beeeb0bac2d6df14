package check

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/internal/cli/manifest"
)

// server is a client of a real API server with our CRDs, and without policy and webhook: what it refuses, the schema does.
func server(t *testing.T) client.Client {
	t.Helper()
	if testing.Short() {
		t.Skip("starts an API server")
	}
	log.SetLogger(logr.Discard())
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join("..", "..", "..", "bin")
	}
	if _, err := os.Stat(filepath.Join(assets, "kube-apiserver")); err != nil {
		t.Fatalf("no API server in %s: run `make controlplane`", assets)
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets, CRDDirectoryPaths: []string{filepath.Join("..", "..", "..", "crds")}, ErrorIfCRDPathMissing: true,
	}
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start API server: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict)
}

// base is a good object; a change's key is a path in it, with null to remove what is there.
const base = `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: ConditionSet
metadata: {name: base, labels: {a: b}}
spec:
  type: KernelDeadlock
  effect: NoExecute
  taintKey: example.com/kernel
  conditions: {KernelDeadlock: {status: true}}
`

var changes = map[string]string{
	"nothing":                  `{}`,
	"defaults and null":        `{spec: {nodeSelector: null, for: null}, status: {observedGeneration: 7}}`,
	"namespace of a cluster":   `{metadata: {namespace: x}}`,
	"enum":                     `{spec: {effect: Evict}}`,
	"enum without a type":      `{spec: {conditions: {KernelDeadlock: {status: maybe}}}}`,
	"enum, another type":       `{spec: {conditions: {KernelDeadlock: {status: 1}}}}`,
	"required":                 `{spec: {type: null}}`,
	"required deep":            `{spec: {conditions: {KernelDeadlock: {status: null}}}}`,
	"type":                     `{spec: {taintKey: 7}}`,
	"types":                    `{spec: {conditions: [KernelDeadlock], includeControlPlane: "yes"}}`,
	"pattern":                  `{spec: {type: "-x"}}`,
	"duration":                 `{spec: {for: 5 minutes}}`,
	"long duration":            `{spec: {for: 9000h}}`,
	"bounds":                   `{spec: {type: "` + strings.Repeat("x", 64) + `", conditions: {KernelDeadlock: null}}}`,
	"CEL of a field":           `{spec: {maxNodes: 101%}}`,
	"CEL of the spec":          `{spec: {effect: NoSchedule, evictAfter: 5m}}`,
	"CEL of an item":           `{spec: {nodeSelector: {matchExpressions: [{key: a, operator: In}, {key: b, operator: Exists, values: [c]}]}}}`,
	"name":                     `{metadata: {name: Upper_Case}}`,
	"no name":                  `{metadata: {name: null}}`,
	"labels":                   `{metadata: {labels: {"a b": c, d: "e f"}}}`,
	"finalizer":                `{metadata: {finalizers: ["no slash or domain!"]}}`,
	"labels of another type":   `{metadata: {labels: {a: 1}}}`,
	"unknown field":            `{spec: {efect: x, nodeSelector: {matchLables: {}}}, metadata: {lables: {}}, extra: 1}`,
	"unknown field, preserved": `{spec: {conditions: {KernelDeadlock: {status: {a: b}}}}}`,
	"another kind":             `{kind: ConditionSat}`,
	"another version":          `{apiVersion: autohealer.resourcestack.com/v9}`,
}

// TestTheAPIServerSaysTheSame: one object, one answer, word by word; created, and as an update of what is stored.
func TestTheAPIServerSaysTheSame(t *testing.T) {
	c := server(t)
	checker, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	stored := &unstructured.Unstructured{Object: parse(t, base)}
	if err := c.Create(t.Context(), stored); err != nil {
		t.Fatal(err)
	}
	refusals := 0
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		change := parse(t, changes[name])
		t.Run("create/"+name, func(t *testing.T) {
			object := merge(parse(t, base), change)
			if meta, _ := object["metadata"].(map[string]any); meta["name"] == "base" {
				meta["name"] = "created"
			}
			sent := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
			want := answer(c.Create(t.Context(), sent, client.DryRunAll))
			refusals += min(1, len(want))
			compare(t, want, checker, object, nil)
		})
		t.Run("update/"+name, func(t *testing.T) {
			object := merge(parse(t, base), change)
			sent := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
			if sent.GetName() != "base" || sent.GetKind() != "ConditionSet" || strings.HasSuffix(sent.GetAPIVersion(), "v9") {
				t.Skip("another object is no update")
			}
			sent.SetResourceVersion(stored.GetResourceVersion())
			compare(t, answer(c.Update(t.Context(), sent, client.DryRunAll)), checker, object, stored.Object)
		})
	}
	if refusals < 15 {
		t.Errorf("the API server refused %d changes; the test shows little", refusals)
	}
}

// TestRatcheting: an update may leave alone what a stored object has wrong. The API server stores such an object only from
// before its schema; here it is compared with itself.
func TestRatcheting(t *testing.T) {
	checker, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	bad := merge(parse(t, base), parse(t, `{spec: {maxNodes: 101%}}`))
	touched := merge(parse(t, base), parse(t, `{spec: {maxNodes: 101%, for: 2m}}`))
	changed := merge(parse(t, base), parse(t, `{spec: {maxNodes: 102%}}`))
	for name, c := range map[string]struct {
		object, old map[string]any
		allowed     bool
	}{
		"created":             {bad, nil, false},
		"left alone":          {touched, bad, true},
		"changed for another": {changed, bad, false},
	} {
		if r := checker.Object(t.Context(), c.object, c.old); r.Allowed != c.allowed {
			t.Errorf("%s: allowed %v, want %v: %v", name, r.Allowed, c.allowed, r.Violations)
		}
	}
}

// answer is what the API server said: the message of each cause, sorted; nil when it stored the object.
func answer(err error) []string {
	if err == nil {
		return nil
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return []string{err.Error()}
	}
	var causes []string
	for _, c := range status.Status().Details.Causes {
		causes = append(causes, c.Field+": "+c.Message)
	}
	slices.Sort(causes)
	return slices.Compact(causes)
}

// compare finds each refusal of ours in the API server's answer, and each of its in ours; and in our report each of these in words.
func compare(t *testing.T, want []string, checker *Checker, object, old map[string]any) {
	t.Helper()
	got := refusals(t, checker, object, old)
	slices.Sort(got)
	got = slices.Compact(got)
	in := 0
	for _, v := range checker.Object(t.Context(), object, old).Violations {
		if !strings.HasPrefix(v.Rule, "conditionset/") {
			in++
		}
	}
	if mistakes := len(slices.DeleteFunc(slices.Clone(got), func(text string) bool { return strings.Contains(text, notChecked) })); in != mistakes {
		t.Errorf("the report has %d refusals of %d: %v", in, mistakes, got)
	}
	if len(want) == 1 && len(got) > 0 && got[0] != want[0] { // an answer in one piece: it must have all that we say
		for _, g := range got {
			if !strings.Contains(want[0], g) {
				t.Errorf("we say\n%s\nthe API server\n%s", g, want[0])
			}
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-API server +ours\n%s", diff)
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	d := manifest.Read(manifest.File{Text: []byte(text)})
	if len(d) != 1 || len(d[0].Problems) > 0 {
		t.Fatalf("read %q: %v", text, d)
	}
	return d[0].Object
}

// refusals are what our copy of the API server says, in its words.
func refusals(t *testing.T, c *Checker, object, old map[string]any) []string {
	t.Helper()
	gvk := gvkOf(object)
	d := c.definitions[gvk]
	if d == nil {
		message, _, _ := strings.Cut(c.noSuchKind(gvk), "; this program knows") // which the API server doesn't say
		return []string{message}
	}
	stored := runtime.DeepCopyJSON(object)
	unknown, err := d.decode(stored)
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for _, path := range unknown {
		all = append(all, fmt.Sprintf("unknown field %q", path))
	}
	old = d.readOld(old)
	d.prepare(stored, old, c.Namespace)
	for _, e := range d.validate(t.Context(), stored, old) {
		all = append(all, e.Error())
	}
	return all
}

// merge is a JSON merge patch that leaves explicit nulls of leaves in place: what they mean is the API server's business.
func merge(object, change map[string]any) map[string]any {
	for key, value := range change {
		inner, isMap := value.(map[string]any)
		below, wasMap := object[key].(map[string]any)
		if isMap && wasMap {
			object[key] = merge(below, inner)
			continue
		}
		object[key] = value
	}
	return object
}
