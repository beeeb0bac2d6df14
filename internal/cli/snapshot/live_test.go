package snapshot

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
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
	case *corev1.Node, *corev1.Pod, *v1alpha1.ConditionSet:
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
	bare.Config = rest.CopyConfig(config)
	bare.Config.Host = "https://me:secret@" + strings.TrimPrefix(config.Host, "https://")
	if s, err := bare.Read(t.Context()); err != nil || s.From != "https://me:xxxxx@"+strings.TrimPrefix(config.Host, "https://") || len(s.Objects.all(ours("ConditionSet").GroupKind())) > 0 {
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

	applyWorkloads(t, c, now)
	applyProbed(t, c)

	progress := map[string]int{}
	live := Live{
		Config: config, Clock: clocktesting.NewFakePassiveClock(now.Add(300 * time.Millisecond)), ChunkSize: 7,
		Progress: func(kind string, n int) { progress[kind] = n },
		Warn:     func(text string) { t.Errorf("warned: %s", text) },
	}
	read, err := live.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"nodes": 25, "leases": 1, "daemonsets": 2, "deployments": 1, "statefulsets": 0, "conditionsets": 1, "guardrails": 0, "guardrailexceptions": 0, "healthcheckregistrations": 0,
		"weederconfigs": 1, "probeconfigs": 1, "outlierpolicies": 0, "horizontalpodautoscalers": 1, "namespaces": 5, "services": 2, "endpointslices": 2, "pods": 9}, progress); diff != "" {
		t.Errorf("progress, -want +got\n%s", diff)
	}
	if server := read.ServerTime.Sub(now).Abs(); server > time.Minute {
		t.Errorf("the API server's clock is %s off", server)
	}
	g, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := NewFacts(t.Context(), read, g, "autohealer-system")
	if err != nil {
		t.Fatal(err)
	}
	if err := facts.Record(t.Context(), func(text string) { t.Errorf("warned: %s", text) }); err != nil {
		t.Fatal(err)
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
	for _, conditions := range []string{"{KernelDeadlock: {status: true}}", "{KernelDeadlock: {status: false}}", "{NetworkUnavailable: {status: true}}"} {
		set := &v1alpha1.ConditionSet{}
		if err := yaml.Unmarshal([]byte("{metadata: {name: asked}, spec: {type: Asked, effect: NoExecute, taintKey: example.com/asked, conditions: "+conditions+"}}"), set); err != nil {
			t.Fatal(err)
		}
		at := now
		var forecasts []any
		for _, s := range []*Snapshot{read, fromFile} {
			facts, err := NewFacts(t.Context(), s, g, "autohealer-system")
			if err != nil {
				t.Fatal(err)
			}
			forecasts = append(forecasts, facts.ForecastConditionSet(set, g.Policy().Limits, at))
			at = at.AddDate(0, 1, 0)
		}
		if diff := cmp.Diff(forecasts[0], forecasts[1]); diff != "" {
			t.Errorf("%s: -live +file\n%s", conditions, diff)
		}
		t.Logf("%s: %+v", conditions, forecasts[0])
	}
	compareWeeder(t, g, read, fromFile)
	compareProber(t, g, read, fromFile)
}

// applyWorkloads makes a Service that recovered 30 seconds ago, and nine pods: two pages.
func applyWorkloads(t *testing.T, c client.Client, now time.Time) {
	t.Helper()
	apply(t, c, &corev1.Namespace{}, "{metadata: {name: shop, labels: {team: web}}}")
	apply(t, c, &corev1.ServiceAccount{}, "{metadata: {name: default, namespace: shop}}")
	apply(t, c, &corev1.Service{}, "{metadata: {name: db, namespace: shop}, spec: {selector: {app: db}, ports: [{port: 80}]}}")
	apply(t, c, &discoveryv1.EndpointSlice{}, `
metadata: {name: db-a, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}, targetRef: {kind: Pod, namespace: shop, name: db-0}}]`)
	const owned = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: api, uid: api, controller: true}]"
	const spec = "spec: {serviceAccountName: default, containers: [{name: main, image: a, env: [{name: TOKEN, value: keep-me-here}]}]}"
	apply(t, c, &corev1.Pod{}, fmt.Sprintf(`
metadata: {name: db-0, namespace: shop, labels: {app: db}, %s}
%s
status: {conditions: [{type: Ready, status: "True", lastTransitionTime: %q}]}`, owned, spec, now.Add(-30*time.Second).Format(time.RFC3339)))
	for i := range 8 {
		apply(t, c, &corev1.Pod{}, fmt.Sprintf(`
metadata: {name: api-%d, namespace: shop, labels: {app: api}, annotations: {example.com/secret: keep-me-here}, %s}
%s
status:
  containerStatuses:
  - {name: main, image: a, imageID: a, restartCount: %d, state: {terminated: {exitCode: 1}}, lastState: {terminated: {exitCode: 1, message: keep-me-here}}}`, i, owned, spec, i))
	}
	apply(t, c, &v1alpha1.WeederConfig{}, `
metadata: {name: stored, namespace: shop}
spec: {servicesAndDependantSelectors: {db: {podSelectors: [{matchLabels: {app: api}}]}}}`)
}

// compareWeeder: a WeederConfig's forecast is the same live and from the file.
func compareWeeder(t *testing.T, g *guard.Guard, live, file *Snapshot) {
	t.Helper()
	wc := &v1alpha1.WeederConfig{}
	if err := yaml.Unmarshal([]byte("{metadata: {name: asked, namespace: shop}, spec: {servicesAndDependantSelectors: {db: {podSelectors: [{matchLabels: {app: api}}]}}}}"), wc); err != nil {
		t.Fatal(err)
	}
	var reported []any
	for _, s := range []*Snapshot{live, file} {
		facts, err := NewFacts(t.Context(), s, g, "autohealer-system")
		if err != nil {
			t.Fatal(err)
		}
		forecast := facts.ForecastPods(wc, lifecycle.Active, g.Policy().Limits)
		if service := forecast.Items.Services[0]; service.WindowEnds == nil || service.CrashLooping != 7 || service.Deletions() != 7 || forecast.WouldDelete != 7 || forecast.SharedPods != 8 {
			t.Errorf("want 7 of 8 pods to go, the first has not restarted yet: %+v", forecast)
		}
		reported = append(reported, forecast)
	}
	if diff := cmp.Diff(reported[0], reported[1]); diff != "" {
		t.Errorf("-live +file\n%s", diff)
	}
}
