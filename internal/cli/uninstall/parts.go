package uninstall

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Label and value by which an object is known to be of an installation, beside its name.
const (
	label = "app.kubernetes.io/name"
	ours  = "autohealer"
)

// stage says with what a part goes.
type stage int

const (
	gates stage = iota
	manager
	// rights, and what the manager made.
	rights
)

// part is an object that an installation has: one of config/default and its overlays, or one that the manager makes.
type part struct {
	stage     stage
	kind      schema.GroupVersionKind
	namespace string // "own" is Autohealer's own
	names     []string
	// made by the manager, or for it, without the label.
	made bool
}

const own = "own"

func kind(group, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
}

var (
	crdKind        = kind("apiextensions.k8s.io", "CustomResourceDefinition")
	namespaceKind  = kind("", "Namespace")
	deploymentKind = kind("apps", "Deployment")
	policyNames    = []string{
		"autohealer-conditionset", "autohealer-guardrail", "autohealer-guardrailexception", "autohealer-node-annotations", "autohealer-probeconfig", "autohealer-weederconfig",
	}
)

// roles are the ClusterRoles that people bind.
var roles = []string{
	"autohealer-editor", "autohealer-exception-approver", "autohealer-guardrail-admin", "autohealer-manager", "autohealer-metrics-reader",
	"autohealer-operator", "autohealer-probe-target", "autohealer-tenant", "autohealer-viewer", "autohealer-workload-operator",
}

// parts in the order in which they go. A binding goes before what it binds, and what the manager makes when that is gone, or it
// would make it again.
var parts = []part{
	{stage: gates, kind: kind("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"), names: []string{"autohealer"}},
	{stage: gates, kind: kind("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"), names: policyNames},
	{stage: gates, kind: kind("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"), names: policyNames},
	{stage: manager, kind: deploymentKind, namespace: own, names: []string{"autohealer-manager"}},
	{stage: manager, kind: kind("policy", "PodDisruptionBudget"), namespace: own, names: []string{"autohealer-manager"}},
	{stage: manager, kind: kind("", "Service"), namespace: own, names: []string{"autohealer-webhook", "autohealer-metrics"}},
	{stage: manager, kind: kind("networking.k8s.io", "NetworkPolicy"), namespace: own, names: []string{"autohealer-manager"}},
	{stage: manager, kind: kind("monitoring.coreos.com", "ServiceMonitor"), namespace: own, names: []string{"autohealer"}, made: true},
	{stage: rights, kind: kind("cert-manager.io", "Certificate"), namespace: own, names: []string{"autohealer-webhook", "autohealer-webhook-ca"}, made: true},
	{stage: rights, kind: kind("cert-manager.io", "Issuer"), namespace: own, names: []string{"autohealer-webhook-ca", "autohealer-webhook-bootstrap"}, made: true},
	{stage: rights, kind: kind("", "Secret"), namespace: own, names: []string{"autohealer-webhook-cert", "autohealer-webhook-cert-issued", "autohealer-webhook-ca"}, made: true},
	{stage: rights, kind: kind("coordination.k8s.io", "Lease"), namespace: own, names: []string{"autohealer-manager"}, made: true}, // it says until then who leads
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "RoleBinding"), namespace: "kube-node-lease", names: []string{"autohealer-manager-node-leases"}},
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "Role"), namespace: "kube-node-lease", names: []string{"autohealer-manager-node-leases"}},
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "RoleBinding"), namespace: own, names: []string{"autohealer-manager", "autohealer-manager-certificates"}},
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "Role"), namespace: own, names: []string{"autohealer-manager", "autohealer-manager-certificates"}},
	{stage: rights, kind: kind("", "ServiceAccount"), namespace: own, names: []string{"autohealer-manager"}},
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "ClusterRoleBinding"), names: []string{"autohealer-manager"}},
	{stage: rights, kind: kind("rbac.authorization.k8s.io", "ClusterRole"), names: roles},
}

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
	of := strings.ToLower(o.Kind) + "/" + o.Name
	if o.Namespace != "" {
		of += " in namespace " + o.Namespace
	}
	return of
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

// isRail says whether a kind of ours rules over policies and is none.
func isRail(kind schema.GroupVersionKind) bool {
	return kind.Group == v1alpha1.GroupVersion.Group && strings.HasPrefix(kind.Kind, "Guardrail")
}
