package uninstall

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/config"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/undo"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// Label and value by which an object is known to be of an installation, beside its name.
const (
	label = "app.kubernetes.io/name"
	ours  = "autohealer"
)

// stage says with what an object goes.
type stage int

const (
	policies stage = iota
	admissionGates
	manager
	guardrails
	definitions
	rights
	ownNamespace
)

// deleted are the objects of the stages, in words and in their order.
var deleted = [...]string{
	policies: "policies", admissionGates: "the webhook and the admission policies", manager: "the manager", guardrails: "Guardrails and exceptions",
	definitions: "the kinds", rights: "the rights, and what the manager made", ownNamespace: "the namespace",
}

// component is a kind of which an installation has objects: by the manifests of this version, or because the manager makes them.
type component struct {
	stage     stage
	kind      schema.GroupVersionKind
	namespace string // "" for cluster-scoped ones
	// made are names of what the manager makes, or is made for it.
	made []string
	// unlabelled ones don't say that they are ours.
	unlabelled bool
}

// own is Autohealer's namespace in the manifests.
const own = check.DefaultNamespace

func kind(group, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
}

var (
	crdKind        = kind("apiextensions.k8s.io", "CustomResourceDefinition")
	namespaceKind  = kind("", "Namespace")
	deploymentKind = kind("apps", "Deployment")
	// clusterRoleKind is of the roles that people bind.
	clusterRoleKind = kind("rbac.authorization.k8s.io", "ClusterRole")
)

// helmCheck is what Helm makes before it uninstalls a release: the Job stays if it refuses, its rights if Helm is interrupted.
var helmCheck = []string{"autohealer-uninstall-check"}

// components in the order in which they go. A binding goes before what it binds, and what the manager makes when that is gone, or it
// would make it again.
var components = []component{
	{stage: admissionGates, kind: kind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")},
	{stage: admissionGates, kind: kind("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding")},
	{stage: admissionGates, kind: kind("admissionregistration.k8s.io", "ValidatingAdmissionPolicy")},
	{stage: manager, kind: deploymentKind, namespace: own},
	{stage: manager, kind: kind("batch", "Job"), namespace: own, made: helmCheck},
	{stage: manager, kind: kind("policy", "PodDisruptionBudget"), namespace: own},
	{stage: manager, kind: kind("", "ResourceQuota"), namespace: own},
	{stage: manager, kind: kind("", "Service"), namespace: own, made: []string{"autohealer-xds"}},
	{stage: manager, kind: kind("networking.k8s.io", "NetworkPolicy"), namespace: own},
	{stage: manager, kind: kind("monitoring.coreos.com", "ServiceMonitor"), namespace: own, unlabelled: true},
	{stage: manager, kind: kind("monitoring.coreos.com", "PrometheusRule"), namespace: own, unlabelled: true},
	{stage: rights, kind: kind("cert-manager.io", "Certificate"), namespace: own, made: []string{"autohealer-webhook", "autohealer-webhook-ca"}, unlabelled: true},
	{stage: rights, kind: kind("cert-manager.io", "Issuer"), namespace: own, made: []string{"autohealer-webhook-ca", "autohealer-webhook-bootstrap"}, unlabelled: true},
	{stage: rights, kind: kind("", "Secret"), namespace: own, made: []string{"autohealer-webhook-cert", "autohealer-webhook-cert-issued", "autohealer-webhook-cert-bundle", "autohealer-webhook-ca"}, unlabelled: true},
	{stage: rights, kind: kind("", "ConfigMap"), namespace: own, made: []string{"autohealer-envoy-clusters", "autohealer-envoys", "autohealer-evictions", "autohealer-dashboards"}},
	{stage: rights, kind: kind("coordination.k8s.io", "Lease"), namespace: own, made: []string{"autohealer-manager"}, unlabelled: true}, // it says until then who leads
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "RoleBinding"), namespace: "kube-node-lease"},
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "Role"), namespace: "kube-node-lease"},
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "RoleBinding"), namespace: own},
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "Role"), namespace: own},
	{stage: rights, kind: kind("", "ServiceAccount"), namespace: own, made: helmCheck},
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "ClusterRoleBinding"), made: helmCheck},
	{stage: rights, kind: clusterRoleKind, made: helmCheck},
}

// names of the objects of a component.
func (p component) names() []string {
	names := slices.Clone(p.made)
	for _, o := range installed() {
		if o.GroupVersionKind() == p.kind && o.GetNamespace() == p.namespace {
			names = append(names, o.GetName())
		}
	}
	return names
}

// installed are the objects in the manifests of this version.
var installed = sync.OnceValue(func() (all []*unstructured.Unstructured) {
	for _, files := range []string{"*/*.yaml", "*/*/*.yaml"} {
		found, err := config.Objects(config.FS, files)
		if err != nil {
			panic(err) // a mistake in the program, not in its input
		}
		all = append(all, found...)
	}
	return all
})

// about is an object of which no more than its metadata matters.
func about(kind schema.GroupVersionKind, namespace, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.SetGroupVersionKind(kind)
	return o
}

// labelled says whether an object says of itself that it is ours.
func labelled(o *metav1.PartialObjectMetadata) bool { return o.Labels[label] == ours }

// title of an object as undo writes it.
func title(o *metav1.PartialObjectMetadata) string {
	return undo.Title(o.GroupVersionKind(), o.Namespace, o.Name)
}

// named is an object as kubectl writes it on the command line.
func named(o *metav1.PartialObjectMetadata) string {
	of := strings.ToLower(o.Kind)
	if group := o.GroupVersionKind().Group; group != "" {
		of += "." + group
	}
	if o.Namespace != "" {
		return "-n " + o.Namespace + " " + of + " " + o.Name
	}
	return of + " " + o.Name
}

// stageOf is when objects of a kind of ours go: first the policies, of whatever version, and last what rules over them.
func stageOf(kind schema.GroupVersionKind) stage {
	if k := kinds.Named(kind.Kind); k != nil && k.RulesOver {
		return guardrails
	}
	return policies
}

// right is one that the uninstall takes.
type right struct {
	verb        string
	kind        schema.GroupVersionKind
	subresource string
	namespace   string
}

// surveyRights asks the API server whether whoever runs this may do all of it: half of it would leave things stuck.
func (u *Uninstaller) surveyRights(ctx context.Context, s *Survey) error {
	var missing []string
	for _, r := range u.needed(s) {
		mapping, err := u.Client.RESTMapper().RESTMapping(r.kind.GroupKind(), r.kind.Version)
		if err != nil {
			continue // its kind went meanwhile, so nothing of it is left to do
		}
		resource := mapping.Resource
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: resource.Group, Resource: resource.Resource, Subresource: r.subresource, Namespace: r.namespace,
		}}}
		if err := u.Client.Create(ctx, review); err != nil {
			return fmt.Errorf("ask what you may do: %w", err)
		}
		if review.Status.Allowed {
			continue
		}
		what := resource.GroupResource().String()
		if r.subresource != "" {
			what += "/" + r.subresource
		}
		if r.namespace != "" {
			what += " in namespace " + r.namespace
		}
		missing = append(missing, r.verb+" "+what)
	}
	slices.Sort(missing)
	for _, what := range slices.Compact(missing) {
		s.Blocked = append(s.Blocked, "You may not "+what)
	}
	return nil
}

// needed are the rights that a survey's objects take, each once.
func (u *Uninstaller) needed(s *Survey) []right {
	var all []right
	need := func(kind schema.GroupVersionKind, subresource, namespace string, verbs ...string) {
		for _, verb := range verbs {
			if r := (right{verb, kind, subresource, namespace}); !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	for _, r := range s.Undo {
		if r.Object.Kind.Kind == "EnvoyPatchPolicy" {
			need(r.Object.Kind, "", r.Object.Key.Namespace, "get", "delete")
			continue
		}
		need(r.Object.Kind, "", r.Object.Key.Namespace, "get", "patch")
		switch {
		case r.Object.Kind.Kind == "Node":
			need(setKind, "", "", "edit-owned-taints")
		case r.Object.Checked:
			need(r.Object.Kind, "status", r.Object.Key.Namespace, "patch")
		default:
			need(r.Object.Kind, "scale", r.Object.Key.Namespace, "get", "update")
		}
	}
	for _, o := range s.Held {
		need(o.Kind, "", o.Key.Namespace, "patch")
	}
	if len(s.Delete[definitions]) > 0 {
		need(guardrailKind, "", "", "get", "create", "delete")
	}
	for of, objects := range s.Delete {
		for _, o := range objects {
			need(o.GroupVersionKind(), "", o.Namespace, "delete")
			if of == policies {
				need(o.GroupVersionKind(), "", o.Namespace, "patch") // the finalizer
			}
		}
	}
	return all
}

var (
	setKind       = v1alpha1.GroupVersion.WithKind("ConditionSet")
	guardrailKind = v1alpha1.GroupVersion.WithKind("Guardrail")
)
