package probeconfig

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
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

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	ownNamespace = "autohealer-system"
	aKubeconfig  = `{"apiVersion": "v1", "kind": "Config", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
"clusters": [{"name": "a", "cluster": {"server": "https://10.1.2.3"}}], "users": [{"name": "a", "user": {"token": "t"}}]}`
)

// env is a manager without goroutines over an API server in memory; its clock stands still, and its probes are told what
// they find.
type env struct {
	t     *testing.T
	api   *storedClient
	clock *testingclock.FakeClock
	guard *guard.Guard
	// rights of all accounts.
	rights *fixedAuthorizer
	*TargetReconciler
	keeper  *statusKeeper
	configs *policy.Keeper[*v1alpha1.ProbeConfig]
	// queue of targets, in tests that look at it.
	queue kube.Queue
	runs  *Observer
	told  *recorder
}

// fixedAuthorizer is allowed everything, or nothing; silent: nobody can be asked.
type fixedAuthorizer struct{ allowed, silent bool }

func (a *fixedAuthorizer) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.silent {
		return authorizer.DecisionNoOpinion, "", errors.New("no answer in time")
	}
	if a.allowed {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// newEnv has a config over the namespaces with a label, and so many of them.
func newEnv(t *testing.T, namespaces int, change func(*v1alpha1.ProbeConfig)) *env {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	level := func(n int32) *v1alpha1.ScaleInfo { return &v1alpha1.ScaleInfo{Level: n} }
	ref := func(name string) v1alpha1.DependentRef {
		return v1alpha1.DependentRef{APIVersion: "apps/v1", Kind: "Deployment", Name: name}
	}
	pc := &v1alpha1.ProbeConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: "protect", UID: "config-uid", Generation: 1},
		Spec: v1alpha1.ProbeConfigSpec{
			InternalKubeConfigSecretName: "internal", ExternalKubeConfigSecretName: "external", BackoffJitterFactor: ptr.To(0.0),
			NamespaceSelector: &v1alpha1.LabelSelector{MatchLabels: map[string]string{"role": "hosted"}},
			DependentResourceInfos: []v1alpha1.DependentResourceInfo{
				{Ref: ref("kcm"), ScaleUp: level(0), ScaleDown: level(1)}, {Ref: ref("mcm"), ScaleUp: level(1), ScaleDown: level(0)},
			},
		},
	}
	if change != nil {
		change(pc)
	}
	objects := []client.Object{pc}
	for i := range namespaces {
		objects = append(objects, hostedObjects(shoot(i))...)
	}
	w := &env{t: t, clock: testingclock.NewFakeClock(noon)}
	w.api = &storedClient{WithWatch: fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(testrestmapper.TestOnlyStaticRESTMapper(scheme)).
		WithStatusSubresource(&v1alpha1.ProbeConfig{}, &appsv1.Deployment{}).WithObjects(objects...).Build()}
	w.manage(fixedAuthorizer{allowed: true})
	return w
}

func shoot(i int) string { return fmt.Sprintf("shoot-%d", i) }

func hostedObjects(namespace string) []client.Object {
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"role": "hosted"}}}}
	for _, name := range []string{"internal", "external"} {
		objects = append(objects, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name)}, Data: map[string][]byte{"kubeconfig": []byte(strings.Replace(aKubeconfig, "10.1.2.3", name+".example.com", 1))},
		})
	}
	for _, name := range []string{"kcm", "mcm"} {
		objects = append(objects, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), Generation: 1},
			Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}, Status: appsv1.DeploymentStatus{Replicas: 3},
		})
	}
	return objects
}

// rotated is a patch of a Secret that brings another token.
func (w *env) rotated(name string) string {
	text := strings.Replace(strings.Replace(aKubeconfig, "10.1.2.3", name+".example.com", 1), `"token": "t"`, `"token": "new"`, 1)
	return `{"data":{"kubeconfig":"` + base64.StdEncoding.EncodeToString([]byte(text)) + `"}}`
}

// manage begins anew, as a process does that takes over.
func (w *env) manage(rights fixedAuthorizer) {
	w.t.Helper()
	w.rights = &rights
	var err error
	if w.guard, err = guard.New(guard.Options{Clock: w.clock, OwnNamespace: ownNamespace, Authorizer: w.rights}); err != nil {
		w.t.Fatal(err)
	}
	facts := &kube.Facts{
		Fleet: condition.NewFleet(limit.Builtin()), Weeder: weeder.NewState(limit.Builtin(), ownNamespace), Targets: probe.NewFleet(limit.Builtin()),
		Clock: w.clock, Server: &kube.ServerClock{Clock: w.clock},
	}
	o := NewObserver(nil, Options{Options: policy.Options{Guard: w.guard, Facts: facts, OwnNamespace: ownNamespace, Rejections: &kube.Rejections{}}, Witnesses: (&probing.Witnesses{}).Init()})
	w.runs = o
	w.told = &recorder{}
	report := NewReporter(w.told)
	w.TargetReconciler = &TargetReconciler{
		Observer: o, Prober: (&probing.Prober{Handler: w.runs, Policy: kubeconfig.Policy{}}).Init(), Live: w.api, Errors: &o.policies.Errors, Report: report,
		Reader: &actuate.ScaleReader{Live: w.api, Client: w.api},
		Scales: &actuate.Scales{Client: w.api, Acts: logr.Discard(), Current: &kube.Generations{Reader: w.api, Clock: w.clock}},
	}
	w.keeper = &statusKeeper{Observer: o, Report: report, Reader: w.Reader}
	w.configs = &policy.Keeper[*v1alpha1.ProbeConfig]{
		Steps:  w.keeper.steps(),
		Client: w.api, Events: w.told, Clock: w.clock, Urgent: o.policies.VerdictUnreported,
	}
	w.see()
	o.markSynced()
	w.keep()
	w.see()
	w.settle()
}

// request is that of the first target.
func request(w *env) reconcile.Request {
	return requestFor(w.Observer.targets.keys()[0])
}

func requestFor(key probing.Key) reconcile.Request {
	return reconcile.Request{NamespacedName: key}
}

// keyOf is that of a namespace's target.
func (w *env) keyOf(namespace string) probing.Key {
	w.t.Helper()
	return targetKey(client.ObjectKeyFromObject(w.stored()), namespace)
}

// target is what is known of a namespace's.
func (w *env) target(namespace string) probe.Target {
	w.t.Helper()
	target, ok := w.Observer.targets.get(w.keyOf(namespace))
	if !ok {
		w.t.Fatalf("%s is no target", namespace)
	}
	return target
}

// see takes in what is stored, as informers would.
func (w *env) see() {
	w.t.Helper()
	var namespaces corev1.NamespaceList
	var configs v1alpha1.ProbeConfigList
	if err := w.api.List(w.t.Context(), &namespaces); err != nil {
		w.t.Fatal(err)
	}
	if err := w.api.List(w.t.Context(), &configs); err != nil {
		w.t.Fatal(err)
	}
	for i := range namespaces.Items {
		w.Observer.namespaceSeen(&namespaces.Items[i])
	}
	for i := range configs.Items {
		w.Observer.policies.Seen(w.t.Context(), &configs.Items[i])
		w.Observer.policies.Judge(w.t.Context(), client.ObjectKeyFromObject(&configs.Items[i]))
	}
}

func (w *env) stored() *v1alpha1.ProbeConfig {
	w.t.Helper()
	var pc v1alpha1.ProbeConfigList
	if err := w.api.List(w.t.Context(), &pc); err != nil {
		w.t.Fatal(err)
	}
	if len(pc.Items) == 0 {
		return nil
	}
	return &pc.Items[0]
}

// keep keeps the config's finalizer and status.
func (w *env) keep() {
	w.t.Helper()
	w.clock.Step(2 * time.Second)
	for range 2 {
		if _, err := w.configs.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.stored().Namespace, Name: "protect"}}); err != nil {
			w.t.Fatal(err)
		}
		if w.stored() == nil {
			return
		}
		w.see()
	}
}

// settle lets all targets be looked at until nothing is to be done at once.
func (w *env) settle() {
	w.t.Helper()
	for range 5 {
		for _, key := range w.Observer.targets.keys() {
			if _, err := w.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: key}); err != nil && key.Namespace != w.api.denied && w.api.invisible+w.api.unreadable == "" && !w.api.unpatched {
				w.t.Fatal(err)
			}
		}
		w.api.endPods(w.t)
	}
}

// probe tells what a run found in a namespace, and lets everything follow.
func (w *env) probe(namespace string, internal, external probe.Class) {
	w.t.Helper()
	w.clock.Step(10 * time.Second)
	run := probe.Run{Started: w.clock.Now(), Ended: w.clock.Now(), Internal: probe.Outcome{Class: internal}, ListError: probe.Outcome{Class: probe.Forbidden}}
	if internal == probe.OK {
		run.External = &probe.Outcome{Class: external}
	}
	w.found(namespace, run)
}

// found tells of a run in a namespace, and lets everything follow.
func (w *env) found(namespace string, run probe.Run) {
	w.t.Helper()
	w.runs.Observe(targetKey(types.NamespacedName{Namespace: w.stored().Namespace, Name: "protect"}, namespace), run)
	w.settle()
}

// fail lets the external probe fail as often as it takes.
func (w *env) fail(namespace string) {
	w.t.Helper()
	w.probe(namespace, probe.OK, probe.OK)
	for range 3 {
		w.probe(namespace, probe.OK, probe.Timeout)
	}
}

func requestOf(pc *v1alpha1.ProbeConfig) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(pc)}
}

// replicas of a namespace's Deployments kcm and mcm, with an r for a record.
func (w *env) replicas(namespace string) string {
	w.t.Helper()
	text := ""
	for _, name := range []string{"kcm", "mcm"} {
		var d appsv1.Deployment
		if err := w.api.Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &d); err != nil {
			w.t.Fatal(err)
		}
		text += fmt.Sprint(*d.Spec.Replicas)
		if d.Annotations[v1alpha1.AnnotationOriginalReplicas] != "" {
			text += "r"
		}
		text += " "
	}
	return text[:len(text)-1]
}

func (w *env) want(namespace, want, when string) {
	w.t.Helper()
	if got := w.replicas(namespace); got != want {
		w.t.Errorf("%s: %s has replicas %q, want %q", when, namespace, got, want)
	}
}

func (w *env) edit(o client.Object, patch string) {
	w.t.Helper()
	if err := w.api.Patch(w.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.t.Fatal(err)
	}
	w.see()
}

// storedClient is an API server in memory that scales Deployments of any client.
type storedClient struct {
	client.WithWatch
	// down: it answers no read. denied is a namespace whose scales may not be read, unreadable a name of which no scale may
	// be, and invisible one of which nothing may.
	down                          bool
	denied, unreadable, invisible string
	// unlisted: Deployments may not be listed.
	unlisted bool
	// unanswered: lists of Deployments are not answered.
	unanswered bool
	// unpatched: nothing may be patched.
	unpatched bool
	// meanwhile happens while a scale is read; nil: nothing.
	meanwhile func()
	mu        sync.Mutex // held while scaling
}

func (m *storedClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if m.down {
		return apierrors.NewServiceUnavailable("down")
	}
	if key.Name == m.invisible && key.Name != "" {
		return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, key.Name, nil)
	}
	return m.WithWatch.Get(ctx, key, o, opts...)
}

func (m *storedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, metadata := list.(*metav1.PartialObjectMetadataList); metadata && m.unlisted {
		return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "", nil)
	}
	if of, metadata := list.(*metav1.PartialObjectMetadataList); metadata && m.unanswered && of.Kind == "DeploymentList" {
		return apierrors.NewServiceUnavailable("down")
	}
	return m.WithWatch.List(ctx, list, opts...)
}

func (m *storedClient) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if _, metadata := o.(*metav1.PartialObjectMetadata); metadata && m.unpatched {
		return apierrors.NewServiceUnavailable("down")
	}
	return m.WithWatch.Patch(ctx, o, patch, opts...)
}

func (m *storedClient) SubResource(name string) client.SubResourceClient {
	if name != "scale" {
		return m.WithWatch.SubResource(name)
	}
	return &scaleClient{m.WithWatch.SubResource(name), m}
}

// endPods plays the controller of Deployments.
func (m *storedClient) endPods(t *testing.T) {
	t.Helper()
	var all appsv1.DeploymentList
	if err := m.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		if d := &all.Items[i]; d.Status.Replicas != *d.Spec.Replicas {
			d.Status.Replicas = *d.Spec.Replicas
			if err := m.WithWatch.Status().Update(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
}

type scaleClient struct {
	client.SubResourceClient
	m *storedClient
}

func (s *scaleClient) Get(ctx context.Context, o, scale client.Object, _ ...client.SubResourceGetOption) error {
	if o.GetNamespace() == s.m.denied || o.GetName() == s.m.unreadable {
		return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments/scale"}, o.GetName(), nil)
	}
	if s.m.meanwhile != nil {
		s.m.meanwhile()
	}
	var d appsv1.Deployment
	if err := s.m.Get(ctx, client.ObjectKeyFromObject(o), &d); err != nil {
		return err
	}
	u := scale.(*unstructured.Unstructured)
	u.SetUID(d.UID)
	u.SetResourceVersion(d.ResourceVersion)
	u.Object["spec"] = map[string]any{"replicas": int64(*d.Spec.Replicas)}
	u.Object["status"] = map[string]any{"replicas": int64(d.Status.Replicas)}
	return nil
}

func (s *scaleClient) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	var options client.SubResourceUpdateOptions
	options.ApplyOptions(opts)
	u := options.SubResourceBody.(*unstructured.Unstructured)
	var d appsv1.Deployment
	if err := s.m.Get(ctx, client.ObjectKeyFromObject(o), &d); err != nil {
		return err
	}
	if d.UID != u.GetUID() || d.ResourceVersion != u.GetResourceVersion() {
		return apierrors.NewConflict(schema.GroupResource{}, d.Name, nil)
	}
	replicas, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	d.Spec.Replicas, d.Generation = ptr.To(int32(replicas)), d.Generation+1
	if err := s.m.Update(ctx, &d); err != nil {
		return err
	}
	u.SetResourceVersion(d.ResourceVersion)
	return nil
}

// recorder keeps what Events say.
type recorder struct {
	// meanwhile happens while something is told, for this reason; nil: nothing.
	meanwhile func(reason string)
	mu        sync.Mutex
	told      strings.Builder // needs mu
}

func (r *recorder) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	if r.meanwhile != nil {
		r.meanwhile(reason)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(&r.told, reason+" "+note+"\n", args...)
}

func (r *recorder) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told.String()
}
