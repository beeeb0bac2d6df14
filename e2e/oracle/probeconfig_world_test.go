package oracle

import (
	"encoding/json"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
)

// plant is a world with Deployments that nothing but the test scales: there are no controllers.
type plant struct{ *world }

func newPlant(w *world) plant {
	for _, args := range [][]string{
		{"apply", "-f", "../../crds/autohealer.resourcestack.com_probeconfigs.yaml", "-f", "../../crds/autohealer.resourcestack.com_guardrails.yaml"},
		{"wait", "--for=condition=Established", "crd/probeconfigs.autohealer.resourcestack.com", "crd/guardrails.autohealer.resourcestack.com"},
		{"create", "namespace", "other"},
	} {
		if _, err := w.cluster.Kubectl(w.Context(), args...); err != nil {
			w.Fatal(err)
		}
	}
	return plant{w}
}

func (p plant) configs(namespace string) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(p.cluster.Config).Resource(ProbeConfigs{}.Policies()).Namespace(namespace)
}

// config protects the Deployments kcm and mcm.
func (p plant) config(more string) types.UID { p.Helper(); return p.configIn("default", more) }

func (p plant) configIn(namespace, more string) types.UID {
	p.Helper()
	ref := func(name string) string {
		return fmt.Sprintf(`{"ref":{"apiVersion":"apps/v1","kind":"Deployment","name":%q},"scaleUp":{"level":0},"scaleDown":{"level":0}}`, name)
	}
	text := fmt.Sprintf(`{"apiVersion":"autohealer.resourcestack.com/v1alpha1","kind":"ProbeConfig","metadata":{"name":"c"},"spec":{
		"internalKubeConfigSecretName":"in","externalKubeConfigSecretName":"out","dependentResourceInfos":[%s,%s]%s}}`, ref("kcm"), ref("mcm"), more)
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
		p.Fatal(err)
	}
	created, err := p.configs(namespace).Create(p.Context(), object, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	return created.GetUID()
}

// edit changes the config of namespace default.
func (p plant) edit(patch string) {
	p.Helper()
	if _, err := p.configs("default").Patch(p.Context(), "c", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		p.Fatal(err)
	}
}

// object is a Deployment of three replicas.
type object struct{ namespace, name string }

func (p plant) deploy(name string) object { p.Helper(); return p.deployIn("default", name) }

func (p plant) deployIn(namespace, name string) object {
	p.Helper()
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/none"}}},
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod,
	}}
	if _, err := p.admin.AppsV1().Deployments(namespace).Create(p.Context(), d, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
	return object{namespace, name}
}

// recordOf is a record of so many replicas.
func recordOf(config types.UID, generation, replicas int) string {
	return fmt.Sprintf(`{"replicas":%d,"owner":%q,"policy":"default/c","generation":%d,"objectGeneration":1,"since":"2026-11-21T03:00:00Z"}`, replicas, config, generation)
}

// note writes a record with its label as the manager does; "" removes them.
func (p plant) note(o object, record string) {
	p.Helper()
	value, label := "null", "null"
	if record != "" {
		value, label = quoted(record), `"true"`
	}
	p.patch(o, `{"metadata":{"annotations":{"autohealer.resourcestack.com/original-replicas":`+value+`},"labels":{"autohealer.resourcestack.com/scaled-down":`+label+`}}}`)
}

// patch changes a Deployment as the manager, ask as its owner.
func (p plant) patch(o object, patch string) {
	p.Helper()
	if _, err := p.manager.AppsV1().Deployments(o.namespace).Patch(p.Context(), o.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		p.Fatal(err)
	}
}

func (p plant) ask(o object, patch string) {
	p.Helper()
	if _, err := p.admin.AppsV1().Deployments(o.namespace).Patch(p.Context(), o.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		p.Fatal(err)
	}
}

func (p plant) scale(o object, replicas int32) {
	p.Helper()
	s := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: o.name}, Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if _, err := p.manager.AppsV1().Deployments(o.namespace).UpdateScale(p.Context(), o.name, s, metav1.UpdateOptions{}); err != nil {
		p.Fatal(err)
	}
}

// take records and takes three replicas.
func (p plant) take(config types.UID, objects ...object) {
	p.Helper()
	for _, o := range objects {
		p.note(o, recordOf(config, 1, 3))
		p.scale(o, 0)
	}
}

// markOfOne are the first 16 digits of the SHA-256 of "kubeconfig one".
const markOfOne = "2ebb140eba461416"

// supply writes the Secret with the external kubeconfig.
func (p plant) supply(namespace, text string) {
	p.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "out"}, Data: map[string][]byte{"kubeconfig": []byte(text)}}
	_, err := p.admin.CoreV1().Secrets(namespace).Update(p.Context(), secret, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = p.admin.CoreV1().Secrets(namespace).Create(p.Context(), secret, metav1.CreateOptions{})
	}
	if err != nil {
		p.Fatal(err)
	}
}

// prove has the status of the config in namespace default tell that a kubeconfig worked, and of no other; "" of none.
func (p plant) prove(namespace, mark string) {
	p.Helper()
	proven := "[]"
	if mark != "" {
		proven = fmt.Sprintf(`[{"namespace":%q,"mark":%q}]`, namespace, mark)
	}
	patch := fmt.Appendf(nil, `{"status":{"provenKubeconfigs":%s}}`, proven)
	if _, err := p.configs("default").Patch(p.Context(), "c", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		p.Fatal(err)
	}
}

func (p plant) giveBack(o object) { p.Helper(); p.scale(o, 3); p.note(o, "") }

// clean makes the plant as it was, by the admin's hand.
func (p plant) clean() {
	p.Helper()
	for _, namespace := range []string{"default", "other", "autohealer-system"} {
		if err := p.configs(namespace).DeleteCollection(p.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			p.Fatal(err)
		}
		if err := p.admin.AppsV1().Deployments(namespace).DeleteCollection(p.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			p.Fatal(err)
		}
		if err := p.admin.CoreV1().Secrets(namespace).DeleteCollection(p.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			p.Fatal(err)
		}
		yard(p).must("annotate", "namespace", namespace, "autohealer.resourcestack.com/hibernated-")
	}
	yard(p).must("delete", "guardrails", "--all")
}

// A plantCase is what the manager does, and which invariants that breaks, in order.
type plantCase struct {
	name    string
	options Options
	do      func(plant)
	broken  []Invariant
	text    string // part of the first violation's text
}

func TestTheOracleFindsWhatABrokenManagerScales(t *testing.T) {
	p := newPlant(newWorld(t))
	for _, tests := range [][]plantCase{correctScaling, foreignScaling, unfoundedScaling, unlimitedScaling} {
		for _, test := range tests {
			test.options.Kinds = []Kind{ProbeConfigs{}}
			test.options.Guardrails = true
			t.Run(test.name, func(t *testing.T) {
				p.run(t, testCase{name: test.name, options: test.options, broken: test.broken, text: test.text, do: func(w *world) {
					here := plant{w}
					defer here.clean()
					test.do(here)
				}})
			})
		}
	}
}
