package snapshot

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/display"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// resource is a kind of objects that planners read, and what of them is kept. Everything else is left out, so that nothing secret is
// written that nobody reads.
type resource struct {
	schema.GroupVersionKind
	// namespace has those that are read; "" is for all.
	namespace string
	// of names the kinds of policies of which nothing is known without.
	of []string
	// must: without, nothing is read at all.
	must bool
	// without says what follows when it isn't known which there are; "" where that is said of each policy.
	without string
	// keeps are names with dots, with [] behind a list's, and several with | between.
	keeps []string
}

var (
	acting      = []string{"WeederConfig", "ProbeConfig", "OutlierPolicy"}
	probing     = []string{"ProbeConfig"}
	routing     = []string{"OutlierPolicy"}
	workload    = []string{"spec.replicas|selector"}
	backendKind = []string{"spec.rules[].backendRefs[].group|kind|namespace|name|port", "spec.routes[].services[].name|port|protocol", "spec.tcpproxy.services[].name|port|protocol"}
)

// resources are listed in this order. HealthCheckRegistrations come first: they say what more of others is kept. Of policies all is.
var resources = withKinds([]resource{
	{GroupVersionKind: ours("HealthCheckRegistration"), of: []string{"HealthCheckRegistration"}, must: true},
	{GroupVersionKind: ours("ConditionSet"), of: []string{"ConditionSet"}, must: true, without: "what stored ConditionSets did isn't known, and doesn't count under limits"},
	{GroupVersionKind: ours("Guardrail"), of: []string{"ConditionSet"}, must: true, without: "no limit, rule or pause of a Guardrail is known"},
	{GroupVersionKind: ours("GuardrailException"), must: true, without: "no GuardrailException is known"},
	{GroupVersionKind: ours("WeederConfig"), of: []string{"WeederConfig"}, must: true},
	{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node"), of: []string{"ConditionSet"}, must: true, keeps: []string{
		"metadata.uid|resourceVersion|creationTimestamp", "spec.taints", "status.conditions[].type|status|lastHeartbeatTime|lastTransitionTime",
	}},
	{
		GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), namespace: corev1.NamespaceNodeLease, keeps: []string{"spec.renewTime"},
		without: "node leases can't be read, so conditions that carry no heartbeat, such as NetworkUnavailable, seem silent",
	},
	{
		GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), of: append([]string{"ConditionSet"}, acting...), must: true, without: "whether an eviction hits pods that nodes can't do without isn't known",
		keeps: []string{"spec.template.metadata.labels", "spec.template.spec.tolerations", "spec.template.spec.volumes[].hostPath.path"},
	},
	{GroupVersionKind: ours("ProbeConfig"), of: probing},
	{GroupVersionKind: autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), of: probing, keeps: []string{"spec.scaleTargetRef", "metadata.ownerReferences"}},
	{GroupVersionKind: ours("OutlierPolicy"), of: routing},
	{GroupVersionKind: outlier.RouteKinds[0].WithVersion(""), of: routing, keeps: backendKind},
	{GroupVersionKind: outlier.RouteKinds[1].WithVersion(""), of: routing, keeps: backendKind},
	{GroupVersionKind: outlier.RouteKinds[2].WithVersion(""), of: routing, keeps: backendKind},
	{GroupVersionKind: outlier.RouteKinds[3].WithVersion(""), of: routing, keeps: backendKind},
	{GroupVersionKind: outlier.RouteKinds[4].WithVersion(""), of: routing, keeps: backendKind},
	{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), of: acting},
	{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service"), of: acting, keeps: []string{
		"spec.type|selector|publishNotReadyAddresses|ipFamilies|clusterIPs", "spec.ports[].name|protocol|appProtocol|port", "status.loadBalancer.ingress[].ip|hostname",
	}},
	{GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), of: acting, keeps: []string{
		"addressType|ports", "endpoints[].addresses|conditions|zone", "endpoints[].targetRef.kind|namespace|name",
	}},
	{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), of: acting, keeps: workload},
	{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("StatefulSet"), of: acting, keeps: workload},
	{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), of: acting, keeps: []string{
		"metadata.uid|creationTimestamp|ownerReferences", "spec.restartPolicy", "spec.containers|initContainers[].name|restartPolicy|restartPolicyRules",
		"status.phase", "status.conditions[].type|status|lastTransitionTime", "status.containerStatuses|initContainerStatuses[].name|restartCount",
		"status.containerStatuses|initContainerStatuses[].state.waiting.reason",
		"status.containerStatuses|initContainerStatuses[].state|lastState.terminated.exitCode|reason|startedAt|finishedAt",
	}},
})

// withKinds adds those of our kinds of which nothing but the policies is read.
func withKinds(all []resource) []resource {
	for _, k := range kinds.All {
		if !slices.ContainsFunc(all, func(r resource) bool { return r.GroupVersionKind == k.GVK() }) {
			all = append(all, resource{GroupVersionKind: k.GVK(), of: []string{k.Name()}, must: true})
		}
	}
	return all
}

// named are kinds of which only those objects are read that policies name, or that say something of these.
var named = []resource{
	{GroupVersionKind: scaleKind, keeps: []string{"metadata.ownerReferences", "spec.replicas", "status.replicas|selector"}},
	{GroupVersionKind: secretKind, keeps: []string{"metadata.annotations", "data"}}, // its values are gone
	{GroupVersionKind: definitionKind.WithVersion("v1"), keeps: []string{
		"spec.names.kind", "spec.versions[].name|served|subresources", "spec.versions[].schema.openAPIV3Schema.x-kubernetes-preserve-unknown-fields",
		"spec.versions[].schema.openAPIV3Schema.properties.status.x-kubernetes-preserve-unknown-fields",
		"spec.versions[].schema.openAPIV3Schema.properties.status.properties.conditions",
	}},
}

// annotations that are kept, whatever they are on.
var annotations = []string{
	v1alpha1.AnnotationOwnedTaints, v1alpha1.AnnotationHoldUntil, v1alpha1.AnnotationHibernated, v1alpha1.AnnotationIgnoreScaling,
	probe.WatchdogIgnores, v1alpha1.AnnotationOriginalReplicas, v1alpha1.AnnotationOwnedConditions, corev1.MirrorPodAnnotationKey,
	outlier.UpstreamProtocol + "h2", outlier.UpstreamProtocol + "h2c", outlier.UpstreamProtocol + "tls",
}

func ours(kind string) schema.GroupVersionKind { return v1alpha1.GroupVersion.WithKind(kind) }

// kindOf is what planners read of a kind; nil where they read none of it.
func kindOf(kind schema.GroupKind) *resource {
	for _, all := range [][]resource{resources, named} {
		if i := slices.IndexFunc(all, func(r resource) bool { return r.GroupKind() == kind }); i >= 0 {
			return &all[i]
		}
	}
	return nil
}

// lists is how all of them that are read are asked for.
func (r *resource) lists() string {
	return query(r.GroupKind(), types.NamespacedName{Namespace: r.namespace}, "")
}

// consequence is what isn't known where it isn't known which there are.
func (r *resource) consequence() string {
	if r.without != "" {
		return r.without
	}
	policies := make([]string, len(r.of))
	for i, kind := range r.of {
		policies[i] = strings.TrimSuffix(kind, "y") + map[bool]string{true: "ies", false: "s"}[strings.HasSuffix(kind, "y")]
	}
	return "nothing is known of what " + display.List(policies, "and") + " would do"
}

// trimmer takes out of objects what nobody reads: neither planners nor, of what health checks look at, the stored registrations.
type trimmer struct {
	fields registration.Fields
	kinds  map[schema.GroupVersionKind]kept
}

func newTrimmer(fields registration.Fields) *trimmer {
	return &trimmer{fields: fields, kinds: map[schema.GroupVersionKind]kept{}}
}

// trim gives an object with what is read of it, and who it is. Of policies all is; of a Secret its values never are.
func (t *trimmer) trim(object *unstructured.Unstructured) *unstructured.Unstructured {
	kind := object.GroupVersionKind()
	fields, known := t.kinds[kind]
	if !known {
		fields = t.keptOf(kind)
		t.kinds[kind] = fields
	}
	trimmed := &unstructured.Unstructured{Object: fields.of(object.Object).(map[string]any)}
	unstructured.RemoveNestedField(trimmed.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(trimmed.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	if kind == secretKind {
		withoutValues(trimmed)
	}
	if len(trimmed.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(trimmed.Object, "metadata", "annotations")
	}
	return trimmed
}

// withoutValues takes out of a Secret all but its keys, and what was found out of them.
func withoutValues(secret *unstructured.Unstructured) {
	annotations := secret.GetAnnotations()
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		ours := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		return !slices.ContainsFunc([]string{serverOf, refusalOf, expiryOf, missingOf}, ours)
	})
	secret.SetAnnotations(annotations)
	data, _, _ := unstructured.NestedMap(secret.Object, "data")
	for key := range data {
		data[key] = ""
	}
	secret.Object["data"] = data
}

func (t *trimmer) keptOf(kind schema.GroupVersionKind) kept {
	if kind.Group == v1alpha1.GroupVersion.Group || t.fields[kind].Has("") {
		return nil
	}
	all := keep("apiVersion|kind", "metadata.name|namespace|labels|generation|deletionTimestamp")
	all.add("metadata", "annotations", strings.Join(annotations, "|"))
	if r := kindOf(kind.GroupKind()); r != nil {
		all.keep(r.keeps...)
	}
	all.keep(t.fields[kind].UnsortedList()...)
	return all
}

// kept has what is kept of each field of an object, or under [] of each entry of a list. Where it is nil, that is all.
type kept map[string]kept

// keep is what is kept by the names of fields, as a resource has them.
func keep(fields ...string) kept {
	all := kept{}
	all.keep(fields...)
	return all
}

func (k kept) keep(fields ...string) {
	for _, field := range fields {
		k.add(strings.Split(strings.ReplaceAll(field, "[]", ".[]"), ".")...)
	}
}

// add takes in a path. Names with a | between are paths each.
func (k kept) add(path ...string) {
	for name := range strings.SplitSeq(path[0], "|") {
		inner, there := k[name]
		switch {
		case len(path) == 1:
			k[name] = nil
			continue
		case there && inner == nil:
			continue
		case !there:
			k[name] = kept{}
		}
		k[name].add(path[1:]...)
	}
}

// of copies what is kept. A path that leads into something without fields has all of it.
func (k kept) of(value any) any {
	each, isList := k["[]"]
	switch v := value.(type) {
	case map[string]any:
		if k == nil || isList {
			break
		}
		some := map[string]any{}
		for name, inner := range k {
			if field, there := v[name]; there {
				some[name] = inner.of(field)
			}
		}
		return some
	case []any:
		if !isList {
			break
		}
		some := make([]any, 0, len(v))
		for _, entry := range v {
			one := each.of(entry)
			if fields, isMap := one.(map[string]any); !isMap || len(fields) > 0 {
				some = append(some, one)
			}
		}
		return some
	}
	return runtime.DeepCopyJSONValue(value)
}
