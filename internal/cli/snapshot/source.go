package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	decl "k8s.io/apiserver/pkg/cel"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
	"github.com/resourcestack/autohealer/internal/kube/survey"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// Annotations of a Secret in a file say in place of its values what the kubeconfigs in its keys are for, or why they are refused.
const (
	serverOf  = "server.facts.autohealer.resourcestack.com/"
	refusalOf = "refusal.facts.autohealer.resourcestack.com/"
	expiryOf  = "expiry.facts.autohealer.resourcestack.com/"  // RFC 3339, and what expires
	missingOf = "missing.facts.autohealer.resourcestack.com/" // there is no such key
)

func (s *Snapshot) missingReason(what string, err error) error {
	if err == nil || s.warn == nil {
		return err
	}
	s.warn("nothing is known of " + what + ": " + err.Error())
	return nil
}

// checked answers the survey of HealthCheckRegistrations.
type checked struct {
	*dependents.Live
	facts *Snapshot
}

// Kubeconfig tells what a Secret holds.
func (s *Snapshot) Kubeconfig(ctx context.Context, namespace, secret string) (probe.KubeconfigFacts, error) {
	found, err := s.credential(ctx, types.NamespacedName{Namespace: namespace, Name: secret}, survey.KubeconfigKey)
	return survey.FactsOf(found), s.missingReason("where a ProbeConfig leads", err)
}

// Kubeconfig says why a shoot's is never used.
func (c checked) Kubeconfig(ctx context.Context, namespace string, at v1alpha1.SecretKey) (string, error) {
	found, err := c.facts.credential(ctx, types.NamespacedName{Namespace: namespace, Name: at.SecretName}, at.Key)
	if err != nil || !found.Refusal.Unsafe() {
		return "", err
	}
	return found.Refusal.Error(), nil
}

// credential reads a Secret, and keeps of it what isn't secret.
func (s *Snapshot) credential(ctx context.Context, name types.NamespacedName, key string) (found kubeconfig.Inspection, err error) {
	secret := &corev1.Secret{}
	err = s.reader().Get(ctx, name, secret)
	switch {
	case apierrors.IsNotFound(err):
		s.Objects.answer(query(secretKind.GroupKind(), name, ""))
		return kubeconfig.Inspection{Missing: true}, nil
	case err != nil && s.live != nil:
		return found, fmt.Errorf("read Secret %s: %w", name, err)
	case err != nil:
		return found, err
	case s.live == nil:
		return s.credentialIn(secret, key)
	}
	found = s.live.policy.Inspect(secret, key)
	return found, s.Objects.storeSecret(name, key, found)
}

// credentialIn reads what a file says of a Secret, or its value where somebody wrote that into the file.
func (s *Snapshot) credentialIn(secret *corev1.Secret, key string) (kubeconfig.Inspection, error) {
	server, is := secret.Annotations[serverOf+key]
	refusal, refused := secret.Annotations[refusalOf+key]
	_, missing := secret.Annotations[missingOf+key]
	switch value, there := secret.Data[key]; {
	case missing:
		return kubeconfig.Inspection{Missing: true}, nil
	case is, refused:
		at, of, _ := strings.Cut(secret.Annotations[expiryOf+key], " ")
		expires, _ := time.Parse(time.RFC3339, at) // zero for none
		return kubeconfig.Inspection{Server: server, Refusal: kubeconfig.Refusal(refusal), Expiry: kubeconfig.Expiry{Of: of, At: expires}}, nil
	case there && len(value) == 0, !there && s.Trimmed:
		return kubeconfig.Inspection{}, notInFacts("what key %s of Secret %s/%s holds is", key, secret.Namespace, secret.Name)
	}
	return kubeconfig.Policy{}.Inspect(secret, key), nil
}

func (o *Objects) storeSecret(name types.NamespacedName, key string, found kubeconfig.Inspection) error {
	secret := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{}}}
	if before, there := o.find(secretKind.GroupKind(), name); there {
		secret = before.raw.DeepCopy()
	}
	secret.SetGroupVersionKind(secretKind)
	secret.SetNamespace(name.Namespace)
	secret.SetName(name.Name)
	annotation, value := serverOf, found.Server
	switch {
	case found.Missing:
		annotation, value = missingOf, "true"
	case found.Refusal != "":
		annotation, value = refusalOf, string(found.Refusal)
	}
	_ = unstructured.SetNestedField(secret.Object, value, "metadata", "annotations", annotation+key)
	if e := found.Expiry; !e.At.IsZero() {
		_ = unstructured.SetNestedField(secret.Object, e.At.UTC().Format(time.RFC3339)+" "+e.Of, "metadata", "annotations", expiryOf+key)
	}
	if !found.Missing {
		_ = unstructured.SetNestedField(secret.Object, "", "data", key)
	}
	return o.store(secret)
}

// Dependent tells what is scaled.
func (s *Snapshot) Dependent(ctx context.Context, namespace string, ref probe.Ref) (probe.DependentFacts, error) {
	if s.live == nil {
		return s.Objects.scaleOf(namespace, ref)
	}
	d, err := s.live.survey.Dependent(ctx, namespace, ref)
	if err != nil {
		return d, s.missingReason("what a ProbeConfig scales", err)
	}
	switch kind := ref.GroupVersionKind(); {
	case d.Unscalable:
		s.Objects.answer(unserved(kind, ofScale))
	case d.Missing:
		s.Objects.answer(scaleless(kind, types.NamespacedName{Namespace: namespace, Name: ref.Name}))
	default:
		scale := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(d.Replicas)}, "status": map[string]any{"replicas": int64(d.Replicas), "selector": d.Pods}}}
		scale.SetGroupVersionKind(scaleKind)
		scale.SetNamespace(namespace)
		scale.SetName(ref.Name)
		scale.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name}})
		return d, s.Objects.store(scale)
	}
	return d, nil
}

// Annotations of what is scaled; none where they aren't known, or may not be read.
func (s *Snapshot) Annotations(ctx context.Context, namespace string, ref probe.Ref) (map[string]string, error) {
	about := &unstructured.Unstructured{}
	about.SetGroupVersionKind(ref.GroupVersionKind())
	err := s.reader().Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, about)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || errors.Is(err, guard.ErrNotKnown) {
		return nil, nil
	}
	return about.GetAnnotations(), s.missingReason("what people ask for on what a ProbeConfig scales", err)
}

// scaleOf is the scale of an object, as it is here, or as a workload says.
func (o *Objects) scaleOf(namespace string, ref probe.Ref) (probe.DependentFacts, error) {
	kind, name := ref.GroupVersionKind(), types.NamespacedName{Namespace: namespace, Name: ref.Name}
	scale, there := o.find(scaleKind.GroupKind(), types.NamespacedName{Namespace: namespace, Name: inVersion(kind) + "/" + ref.Name})
	workload, runs := o.find(kind.GroupKind(), name)
	switch {
	case o.has(unserved(kind, ofScale)):
		return probe.DependentFacts{Unscalable: true}, nil
	case there:
		of := scale.typed.(*autoscalingv1.Scale)
		return probe.DependentFacts{Replicas: of.Spec.Replicas, Pods: of.Status.Selector}, nil
	case scales[kind] && runs:
		return scaleIn(workload.raw)
	case o.has(scaleless(kind, name)), scales[kind] && o.covers(kind.GroupKind(), name, ""):
		return probe.DependentFacts{Missing: true}, nil
	}
	return probe.DependentFacts{}, notInFacts("%s in namespace %s is", ref, namespace)
}

// scales are the kinds whose objects say what their scale is.
var scales = map[schema.GroupVersionKind]bool{
	{Group: "apps", Version: "v1", Kind: "Deployment"}: true, {Group: "apps", Version: "v1", Kind: "StatefulSet"}: true, {Group: "apps", Version: "v1", Kind: "ReplicaSet"}: true,
}

func scaleIn(workload *unstructured.Unstructured) (probe.DependentFacts, error) {
	var spec struct {
		Replicas *int32                `json:"replicas"`
		Selector *metav1.LabelSelector `json:"selector"`
	}
	fields, _, _ := unstructured.NestedMap(workload.Object, "spec")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &spec); err != nil {
		return probe.DependentFacts{}, fmt.Errorf("read the scale of %s %s: %w", workload.GetKind(), workload.GetName(), err)
	}
	pods, err := metav1.LabelSelectorAsSelector(spec.Selector)
	if err != nil {
		return probe.DependentFacts{}, fmt.Errorf("read the selector of %s %s: %w", workload.GetKind(), workload.GetName(), err)
	}
	return probe.DependentFacts{Replicas: ptr.Deref(spec.Replicas, 1), Pods: pods.String()}, nil
}

// Types asks for the kinds' schemas, which aren't in a file.
func (c checked) Types(ctx context.Context, kinds []schema.GroupVersionKind) (map[schema.GroupVersionKind]*decl.DeclType, error) {
	if c.facts.live != nil {
		return c.Live.Types(ctx, kinds)
	}
	if len(kinds) == 0 {
		return nil, nil
	}
	return nil, notInFacts("the schema of %s is", kinds[0].Kind)
}

// Served says whether the API server knows a kind.
func (c checked) Served(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	if c.facts.live == nil {
		return c.facts.Objects.serves(kind)
	}
	served, err := c.Live.Served(ctx, kind)
	if err == nil && !served {
		c.facts.Objects.answer(unserved(kind, ""))
	}
	return served, err
}

// serves says whether a kind is served. One of which there are objects is.
func (o *Objects) serves(kind schema.GroupVersionKind) (bool, error) {
	objects := o.all(kind.GroupKind())
	none := len(objects) == 0 && o.covers(kind.GroupKind(), types.NamespacedName{}, "")
	switch {
	case o.has(unserved(kind, "")):
		return false, nil
	case none, len(objects) > 0 && objects[0].raw.GroupVersionKind() == kind:
		return true, nil
	}
	return false, notInFacts("kind %s of %s is", kind.Kind, kind.GroupVersion())
}

// RESTMapping tells how a kind is served, by its CustomResourceDefinition where that is here.
func (o *Objects) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	version := kind.WithVersion(versions[0])
	plural, _ := meta.UnsafeGuessKindToResource(version)
	for _, definition := range o.all(definitionKind) {
		if of, _, _ := unstructured.NestedString(definition.raw.Object, "spec", "names", "kind"); of != kind.Kind {
			continue
		}
		if resource, of, _ := strings.Cut(definition.raw.GetName(), "."); of == kind.Group {
			plural.Resource = resource
		}
	}
	return &meta.RESTMapping{Resource: plural, GroupVersionKind: version}, nil
}
