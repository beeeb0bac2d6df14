package probeconfig

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/crds"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

// plane is a real control plane with our CRDs, and api its client; nil with -short.
var (
	plane *cluster.Cluster
	api   client.WithWatch
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	os.Exit(withPlane(m))
}

func withPlane(m *testing.M) int {
	ctx := context.Background()
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		println(err.Error())
		return 1
	}
	defer func() { _ = c.Stop() }()
	ctrl.SetLogger(logr.Discard())
	plane = c
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	if api, err = client.NewWithWatch(c.Config, client.Options{Scheme: scheme}); err != nil {
		panic(err)
	}
	if err := install(ctx); err != nil {
		println(err.Error())
		return 1
	}
	return m.Run()
}

// install creates our CRDs and waits until they are served.
func install(ctx context.Context) error {
	files, err := crds.FS.ReadDir(".")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := crds.FS.ReadFile(file.Name())
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			return err
		}
		if err := api.Create(ctx, crd); err != nil {
			return err
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		err := api.List(ctx, &v1alpha1.ProbeConfigList{})
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// apiServer is a probed API server that can be made to fail.
type apiServer struct {
	*httptest.Server
	fails atomic.Bool
}

func startAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if s.fails.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte(`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`))
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) kubeconfig() []byte {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
"clusters": [{"name": "a", "cluster": {"server": %q, "certificate-authority-data": %q}}], "users": [{"name": "a", "user": {"token": "t"}}]}`, s.URL, ca)
}

// hosted is a namespace with the dependents of a probed cluster.
type hosted struct {
	*WithT
	t                  *testing.T
	namespace          string
	internal, external *apiServer
}

func newHosted(t *testing.T, labels map[string]string) *hosted {
	t.Helper()
	if plane == nil {
		t.Skip("needs a control plane")
	}
	h := &hosted{WithT: NewWithT(t), t: t, internal: startAPIServer(t), external: startAPIServer(t)}
	h.SetDefaultEventuallyTimeout(20 * time.Second)
	h.SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	h.SetDefaultConsistentlyDuration(4 * time.Second)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hosted-", Labels: labels}}
	h.Expect(api.Create(t.Context(), ns)).To(Succeed())
	h.namespace = ns.Name
	for name, s := range map[string]*apiServer{"internal": h.internal, "external": h.external} {
		h.Expect(api.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name}, Data: map[string][]byte{"kubeconfig": s.kubeconfig()},
		})).To(Succeed())
	}
	for _, name := range []string{"kcm", "mcm"} {
		h.deploy(name, 3)
	}
	return h
}

func (h *hosted) deploy(name string, replicas int32) {
	h.t.Helper()
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/none"}}},
	}
	h.Expect(api.Create(h.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(replicas), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod},
	})).To(Succeed())
}

// protect stores a ProbeConfig in Autohealer's own namespace over namespaces with a label, or in the hosted one.
func (h *hosted) protect(change func(*v1alpha1.ProbeConfig)) *v1alpha1.ProbeConfig {
	h.t.Helper()
	level := func(n int32) *v1alpha1.ScaleInfo { return &v1alpha1.ScaleInfo{Level: n} }
	ref := func(name string) v1alpha1.DependentRef {
		return v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	}
	pc := &v1alpha1.ProbeConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "protect"},
		Spec: v1alpha1.ProbeConfigSpec{
			InternalKubeConfigSecretName: "internal", ExternalKubeConfigSecretName: "external",
			ProbeInterval: "1s", ProbeTimeout: "500ms", InitialDelay: "0s", FailureThreshold: ptr.To[int32](2),
			BackoffJitterFactor: ptr.To(0.0), InternalProbeFailureBackoffDuration: "1s",
			DependentResourceInfos: []v1alpha1.DependentResourceInfo{
				{Ref: ref("kcm"), ScaleUp: level(0), ScaleDown: level(1)}, {Ref: ref("mcm"), ScaleUp: level(1), ScaleDown: level(0)},
			},
		},
	}
	if change != nil {
		change(pc)
	}
	h.Expect(api.Create(h.t.Context(), pc)).To(Succeed())
	h.t.Cleanup(func() { h.leave(pc) })
	return pc
}

// leave removes a config, if need be by force, when no manager runs any more.
func (h *hosted) leave(pc *v1alpha1.ProbeConfig) {
	ctx := context.Background()
	_ = api.Delete(ctx, pc)
	_ = api.Patch(ctx, pc, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
}

// replicas that a Deployment is to have, and its record. It plays the controller that starts and ends the pods.
func (h *hosted) replicas(name string) func() (string, error) {
	return func() (string, error) {
		var d appsv1.Deployment
		if err := api.Get(h.t.Context(), types.NamespacedName{Namespace: h.namespace, Name: name}, &d); err != nil {
			return "", err
		}
		if d.Status.Replicas != *d.Spec.Replicas {
			d.Status.Replicas = *d.Spec.Replicas
			_ = api.Status().Update(h.t.Context(), &d) // who loses against another write tries again
		}
		record := ""
		if d.Annotations[v1alpha1.AnnotationOriginalReplicas] != "" {
			record = " recorded"
		}
		return fmt.Sprint(*d.Spec.Replicas) + record, nil
	}
}

func (h *hosted) eventually(name, want string) {
	h.t.Helper()
	h.Eventually(h.replicas(name)).Should(Equal(want), "replicas of %s", name)
}

func (h *hosted) condition(pc *v1alpha1.ProbeConfig, kind string) func() string {
	return func() string {
		var now v1alpha1.ProbeConfig
		if err := api.Get(h.t.Context(), client.ObjectKeyFromObject(pc), &now); err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(now.Status.Conditions, kind)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason
	}
}

// allowAll may do anything.
type allowAll struct{}

func (allowAll) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// manage runs the controllers as one process does, until stop.
func manage(t *testing.T, authorizer authorizer.UnconditionalAuthorizer) (g *guard.Guard, stop func()) {
	t.Helper()
	var lines bytes.Buffer
	real := clock.RealClock{}
	g, err := guard.New(guard.Options{OwnNamespace: "default", Authorizer: authorizer})
	if err != nil {
		t.Fatal(err)
	}
	facts := &kube.Facts{
		Fleet: condition.NewFleet(limit.Builtin()), Weeder: weeder.NewState(limit.Builtin(), "default"), Targets: probe.NewFleet(limit.Builtin()),
		Clock: real, Server: &kube.ServerClock{Clock: real},
	}
	mgr, err := ctrl.NewManager(plane.Config, ctrl.Options{
		Scheme: api.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Logger: logr.FromSlogHandler(slog.NewTextHandler(&lines, nil)), GracefulShutdownTimeout: ptr.To(5 * time.Second),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := AddToManager(mgr, Options{
		Options: policy.Options{Guard: g, Facts: facts, OwnNamespace: "default", Rejections: &kube.Rejections{}}, Dial: kubeconfig.Policy{AllowLoopback: true}, Witnesses: (&probing.Witnesses{}).Init(),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager: %v", err)
		}
		if t.Failed() {
			t.Log(lines.String())
		}
	}
	t.Cleanup(stop)
	return g, stop
}

func TestWhenOnlyTheOuterSideFailsDependentsAreScaledDownAndLaterGivenBack(t *testing.T) {
	h := newHosted(t, nil)
	_, stop := manage(t, allowAll{})
	pc := h.protect(nil)
	h.Eventually(h.condition(pc, "ExternalHealthy")).Should(Equal("True ProbeSucceeds"))
	h.Eventually(h.condition(pc, "Ready")).Should(Equal("True Operative"))

	h.external.fails.Store(true)
	h.eventually("mcm", "0 recorded")
	h.eventually("kcm", "0 recorded")
	h.Eventually(h.condition(pc, "ProtectionActive")).Should(Equal("True ScaledDown"))
	h.Eventually(h.condition(pc, "ExternalHealthy")).Should(Equal("False ProbeFails"))

	stop() // another manager takes over
	manage(t, allowAll{})
	h.Consistently(h.replicas("kcm")).Should(Equal("0 recorded"), "a manager that starts doesn't undo while it fails")

	h.external.fails.Store(false)
	recovered := time.Now()
	h.Eventually(h.replicas("kcm"), 90*time.Second).Should(Equal("3"))
	h.Expect(time.Since(recovered)).To(BeNumerically(">", 55*time.Second), "an API server that just recovered isn't believed")
	h.eventually("mcm", "3")
	h.Eventually(h.condition(pc, "ProtectionActive")).Should(Equal("False NothingScaledDown"))
}

func TestWhenTheAPIServerItselfIsDownNothingIsScaled(t *testing.T) {
	h := newHosted(t, nil)
	manage(t, allowAll{})
	pc := h.protect(nil)
	h.Eventually(h.condition(pc, "InternalHealthy")).Should(Equal("True ProbeSucceeds"))
	h.internal.fails.Store(true)
	h.external.fails.Store(true)
	h.Eventually(h.condition(pc, "InternalHealthy")).Should(Equal("False ProbeFails"))
	h.Consistently(h.replicas("mcm")).Should(Equal("3"))
}

func TestDeletionAndObserveModeGiveBackAtOnce(t *testing.T) {
	for name, withdraw := range map[string]func(*hosted, *v1alpha1.ProbeConfig){
		"deleted": func(h *hosted, pc *v1alpha1.ProbeConfig) {
			h.Expect(api.Delete(h.t.Context(), pc)).To(Succeed())
			h.Eventually(func() bool {
				return apierrors.IsNotFound(api.Get(h.t.Context(), client.ObjectKeyFromObject(pc), &v1alpha1.ProbeConfig{}))
			}).Should(BeTrue(), "its finalizer goes")
		},
		"observing": func(h *hosted, pc *v1alpha1.ProbeConfig) { h.edit(pc, `{"spec":{"mode":"Observe"}}`) },
		"fewer dependents": func(h *hosted, pc *v1alpha1.ProbeConfig) {
			h.edit(pc, `{"spec":{"dependentResourceInfos":[{"ref":{"apiVersion":"apps/v1","kind":"Deployment","name":"other"},"optional":true,"scaleUp":{"level":0},"scaleDown":{"level":0}}]}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHosted(t, nil)
			manage(t, allowAll{})
			pc := h.protect(nil)
			h.failsOnce(pc)
			h.eventually("kcm", "0 recorded")
			withdraw(h, pc)
			h.eventually("kcm", "3")
			h.eventually("mcm", "3")
			h.Consistently(h.replicas("kcm")).Should(Equal("3"))
		})
	}
}

// failsOnce lets the way from outside fail once it worked.
func (h *hosted) failsOnce(pc *v1alpha1.ProbeConfig) {
	h.t.Helper()
	h.Eventually(h.condition(pc, "ExternalHealthy")).Should(Equal("True ProbeSucceeds"))
	h.external.fails.Store(true)
}

func (h *hosted) edit(o client.Object, patch string) {
	h.t.Helper()
	h.Expect(api.Patch(h.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

func TestWhatKeepsDependentsFromBeingScaledDown(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.ProbeConfig)
		before func(*hosted)
		kind   string
		want   string
	}{
		"mode Observe": {func(pc *v1alpha1.ProbeConfig) { pc.Spec.Mode = "Observe" }, nil, "ExternalHealthy", "False ProbeFails"},
		"a Secret that is gone": {nil, func(h *hosted) {
			h.Expect(api.Delete(h.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "external"}})).To(Succeed())
		}, "Stalled", "True SecretUnusable"},
		"hibernation": {nil, func(h *hosted) {
			h.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespace}}, `{"metadata":{"annotations":{"autohealer.resourcestack.com/hibernated":"true"}}}`)
		}, "ExternalHealthy", "Unknown Hibernated"},
		"a rule that refuses it":         {func(pc *v1alpha1.ProbeConfig) { pc.Spec.DependentResourceInfos[0].Ref.Name = "kube-apiserver" }, nil, "Stalled", "True RuleViolated"},
		"a kubeconfig that never worked": {nil, nil, "ExternalHealthy", "False KubeconfigUntried"},
		"asked to ignore": {nil, func(h *hosted) {
			h.edit(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: h.namespace, Name: "mcm"}}, `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true"}}}`)
		}, "ExternalHealthy", "False ProbeFails"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHosted(t, nil)
			manage(t, allowAll{})
			h.external.fails.Store(c.want != "False ProbeFails")
			if c.before != nil {
				c.before(h)
			}
			pc := h.protect(c.change)
			if c.want == "False ProbeFails" {
				h.failsOnce(pc)
			}
			h.Eventually(h.condition(pc, c.kind)).Should(Equal(c.want))
			h.Consistently(h.replicas("mcm")).Should(Equal("3"))
		})
	}
}

func TestATenantWithoutRightsAndAPauseScaleNothing(t *testing.T) {
	t.Run("no rights", func(t *testing.T) {
		h := newHosted(t, nil)
		manage(t, denyAll{})
		h.external.fails.Store(true)
		pc := h.protect(nil)
		h.Eventually(h.condition(pc, "Accepted")).Should(Equal("False RuleViolated"))
		h.Consistently(h.replicas("mcm")).Should(Equal("3"))
	})
	t.Run("a pause", func(t *testing.T) {
		h := newHosted(t, nil)
		g, _ := manage(t, allowAll{})
		g.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "freeze"}, Spec: v1alpha1.GuardrailSpec{Paused: true}}})
		pc := h.protect(nil)
		h.failsOnce(pc)
		h.Eventually(h.condition(pc, "ExternalHealthy")).Should(Equal("False ProbeFails"))
		h.Consistently(h.replicas("mcm")).Should(Equal("3"))
		h.Expect(h.condition(pc, "Ready")()).To(Equal("True Paused"))
		g.SetGuardrails(nil)
		h.eventually("mcm", "0 recorded")
	})
}

// denyAll may do anything.
type denyAll struct{}

func (denyAll) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", nil
}

func TestNamespacesThatAreSelectedAreTargetsAndTooManyAtOnceAreSuspect(t *testing.T) {
	label := map[string]string{"role": "hosted-" + rand.String(8)} // namespaces of an earlier run stay
	var all []*hosted
	for range 4 {
		all = append(all, newHosted(t, label))
	}
	h := all[0]
	manage(t, allowAll{})
	pc := h.protect(func(pc *v1alpha1.ProbeConfig) {
		pc.Namespace, pc.Spec.NamespaceSelector = "default", &v1alpha1.LabelSelector{MatchLabels: label}
	})
	targets := func() string {
		var now v1alpha1.ProbeConfig
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(pc), &now); err != nil || now.Status.Targets == nil {
			return fmt.Sprint(err)
		}
		n := now.Status.Targets
		return fmt.Sprintf("%d of %d probed, %d fail, %d down", n.Probed, n.Total, n.ExternalUnhealthy, n.ScaledDown)
	}
	h.Eventually(targets).Should(Equal("4 of 4 probed, 0 fail, 0 down"))
	h.Eventually(h.condition(pc, "ExternalHealthy")).Should(Equal("True ProbeSucceeds"))
	all[0].external.fails.Store(true)
	all[0].eventually("mcm", "0 recorded")
	all[0].eventually("kcm", "0 recorded")
	h.Eventually(targets).Should(Equal("4 of 4 probed, 1 fail, 1 down"))

	all[1].external.fails.Store(true)
	h.Eventually(h.condition(pc, "LimitReached")).Should(Equal("True TooManyScaledDown"))
	all[2].external.fails.Store(true)
	h.Eventually(h.condition(pc, "BreakerOpen")).Should(Equal("True TooManyFailTogether"))
	h.Consistently(all[1].replicas("mcm")).Should(Equal("3"))

	h.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: all[0].namespace}}, `{"metadata":{"labels":{"role":null}}}`)
	all[0].eventually("kcm", "3")
	all[0].eventually("mcm", "3")
	h.Eventually(targets).Should(Equal("3 of 3 probed, 2 fail, 0 down"))

	var now v1alpha1.ProbeConfig
	h.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(pc), &now)).To(Succeed())
	h.edit(pc, fmt.Sprintf(`{"metadata":{"annotations":{"autohealer.resourcestack.com/reset-breaker":%q}}}`, now.Status.BreakerID))
	h.Eventually(targets).Should(Equal("3 of 3 probed, 2 fail, 1 down"))
	h.Eventually(h.condition(pc, "BreakerOpen")).Should(BeEmpty())
}
