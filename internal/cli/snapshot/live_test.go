package snapshot

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
)

func startServer(t *testing.T) *rest.Config {
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
	env := &envtest.Environment{BinaryAssetsDirectory: assets}
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start API server: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop API server: %v", err)
		}
	})
	return config
}

// apply creates an object, with its status where it has one.
func apply(t *testing.T, c client.Client, object client.Object, text string) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), object); err != nil {
		t.Fatal(err)
	}
	want := object.DeepCopyObject().(client.Object)
	if err := c.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	want.SetResourceVersion(object.GetResourceVersion())
	switch want.(type) {
	case *corev1.Node, *v1alpha1.ConditionSet:
		if err := c.Status().Update(t.Context(), want); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheFileGivesTheSamePlan: read live page by page, written, and read from the file long after, facts say the same. A
// cluster without Autohealer has no policies, and can be read all the same.
func TestTheFileGivesTheSamePlan(t *testing.T) {
	config := startServer(t)
	bare := Live{
		Config: config, Clock: clocktesting.NewFakePassiveClock(time.Now()),
		Progress: func(string, int) {}, Warn: func(text string) { t.Errorf("warned: %s", text) },
	}
	if s, err := bare.Read(t.Context()); err != nil || len(s.ConditionSets) > 0 {
		t.Fatalf("read %v, %v", s, err)
	}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: []string{filepath.Join("..", "..", "..", "crds")}}); err != nil {
		t.Fatalf("install CRDs: %v", err)
	}
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	for i := range 25 {
		status := "False"
		if i < 2 {
			status = "True"
		}
		apply(t, c, &corev1.Node{}, fmt.Sprintf(`
metadata: {name: node-%02d, annotations: {example.com/secret: keep-me-here}}
status:
  conditions:
  - {type: KernelDeadlock, status: %q, reason: r, message: keep me here, lastHeartbeatTime: %q, lastTransitionTime: %q}`,
			i, status, now.Format(time.RFC3339), now.Add(-time.Hour).Format(time.RFC3339)))
	}
	apply(t, c, &coordinationv1.Lease{}, fmt.Sprintf(`
metadata: {name: node-00, namespace: kube-node-lease}
spec: {renewTime: %q}`, now.Format(metav1.RFC3339Micro)))
	pods := "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a, env: [{name: TOKEN, value: keep-me-here}]}]}}"
	apply(t, c, &appsv1.DaemonSet{}, "{metadata: {name: node-problem-detector, namespace: default}, spec: {"+pods+"}}")
	apply(t, c, &appsv1.DaemonSet{}, "{metadata: {name: ordinary, namespace: default}, spec: {"+pods+"}}")
	apply(t, c, &v1alpha1.ConditionSet{}, `
metadata: {name: stored, finalizers: [autohealer.resourcestack.com/undo]}
spec: {type: Kernel, effect: NoSchedule, taintKey: example.com/kernel, conditions: {KernelDeadlock: {status: true}}}
status: {observedGeneration: 1, taintKeys: [example.com/kernel]}`)

	progress := map[string]int{}
	live := Live{
		Config: config, Clock: clocktesting.NewFakePassiveClock(now.Add(300 * time.Millisecond)), PageSize: 7,
		Progress: func(kind string, n int) { progress[kind] = n },
		Warn:     func(text string) { t.Errorf("warned: %s", text) },
	}
	read, err := live.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"nodes": 25, "leases": 1, "daemonsets": 2, "conditionsets": 1, "guardrails": 0, "guardrailexceptions": 0}, progress); diff != "" {
		t.Errorf("progress, -want +got\n%s", diff)
	}
	if server := read.ServerTime.Sub(now).Abs(); server > time.Minute {
		t.Errorf("the API server's clock is %s off", server)
	}
	var file bytes.Buffer
	if err := read.Write(&file); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(file.Bytes(), []byte("keep")) {
		t.Errorf("the file has what no planner reads:\n%s", &file)
	}
	fromFile, err := Read(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, conditions := range []string{"{KernelDeadlock: {status: true}}", "{KernelDeadlock: {status: false}}", "{NetworkUnavailable: {status: true}}"} {
		set := &v1alpha1.ConditionSet{}
		if err := yaml.Unmarshal([]byte("{metadata: {name: asked}, spec: {type: Asked, effect: NoExecute, taintKey: example.com/asked, conditions: "+conditions+"}}"), set); err != nil {
			t.Fatal(err)
		}
		at := now
		var previews []any
		for _, s := range []*Snapshot{read, fromFile} {
			facts, err := NewFacts(t.Context(), s, g)
			if err != nil {
				t.Fatal(err)
			}
			previews = append(previews, facts.PreviewConditionSet(set, g.Policy().Limits, at))
			at = at.AddDate(0, 1, 0)
		}
		if diff := cmp.Diff(previews[0], previews[1]); diff != "" {
			t.Errorf("%s: -live +file\n%s", conditions, diff)
		}
		t.Logf("%s: %+v", conditions, previews[0])
	}
}
