package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// checkFunc is a check of one kind. threshold is its progressing time-out.
type checkFunc func(object *unstructured.Unstructured, threshold time.Duration, now time.Time) (Result, error)

// builtin are the kinds that come with a check, in any version.
var builtin = map[schema.GroupKind]checkFunc{
	{Group: "apps", Kind: "Deployment"}:  typed(Deployment),
	{Group: "apps", Kind: "StatefulSet"}: typed(StatefulSet),
	{Group: "apps", Kind: "ReplicaSet"}:  typed(ReplicaSet),
	{Group: "apps", Kind: "DaemonSet"}:   typed(DaemonSet),
	{Group: "batch", Kind: "Job"}:        typed(Job),
	{Kind: "Pod"}:                        typed(Pod),
	{Kind: "PersistentVolumeClaim"}:      typed(PersistentVolumeClaim),
	{Kind: "Service"}:                    typed(Service),
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: func(o *unstructured.Unstructured, _ time.Duration, _ time.Time) (Result, error) {
		return CustomResourceDefinition(o), nil
	},
	{Group: "resources.gardener.cloud", Kind: "ManagedResource"}: func(o *unstructured.Unstructured, threshold time.Duration, now time.Time) (Result, error) {
		return ManagedResource(o, threshold, now), nil
	},
}

// FieldsRead are the fields beside metadata that these checks and kstatus read: no others are kept of what is only looked at by them.
var FieldsRead = []string{
	"status", "spec.replicas", "spec.updateStrategy", "spec.completions", "spec.parallelism", "spec.suspend", "spec.type", "spec.clusterIP",
	"spec.progressDeadlineSeconds", "spec.paused",
}

func typed[T appsv1.Deployment | appsv1.StatefulSet | appsv1.ReplicaSet | appsv1.DaemonSet | batchv1.Job | corev1.Pod | corev1.PersistentVolumeClaim | corev1.Service](check func(*T) Result) checkFunc {
	return func(object *unstructured.Unstructured, _ time.Duration, _ time.Time) (Result, error) {
		into := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
			return Result{}, fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		return check(into), nil
	}
}

// HasBuiltin says whether a check for the kind comes with Autohealer.
func HasBuiltin(kind schema.GroupKind) bool { return builtin[kind] != nil }

// Builtin judges an object by the check that comes for its kind. timeout is how long Progressing is trusted, and how long an object is
// new: it may start until then. One that is being deleted is Progressing.
func Builtin(object *unstructured.Unstructured, timeout time.Duration, now time.Time) Result {
	kind := object.GroupVersionKind().GroupKind()
	check := builtin[kind]
	if check == nil {
		return unknown("there is no built-in check for " + kind.String())
	}
	if object.GetDeletionTimestamp() != nil {
		return withObjectName(progressing(kind.Kind+" is being deleted"), object, timeout)
	}
	r, err := check(object, timeout, now)
	if err != nil {
		return Error(err)
	}
	if r.OnlyAtStart && r.Status == False && now.Sub(object.GetCreationTimestamp().Time) < timeout {
		r.Status = Progressing
	}
	return withObjectName(r, object, timeout)
}

// withObjectName is the result with the object's name, so that a message tells which one it is about.
func withObjectName(r Result, object *unstructured.Unstructured, timeout time.Duration) Result {
	if r.Status == True && r.Note == "" {
		return r
	}
	name := object.GetName()
	if namespace := object.GetNamespace(); namespace != "" {
		name = namespace + "/" + name
	}
	if r.Status == True {
		r.Note = name + ": " + r.Note
		return r
	}
	r.Detail, r.Timeout = name+": "+r.Detail, timeout
	return r
}

// ByStatus judges an object of any kind by what kstatus makes of its generation and conditions: Current is healthy, Failed
// unhealthy, InProgress and Terminating are Progressing. An object that carries neither observedGeneration nor conditions
// is healthy by these rules, and so is what StatusIsConclusive isn't true of.
func ByStatus(object *unstructured.Unstructured, timeout time.Duration) Result {
	computed, err := status.Compute(object)
	if err != nil {
		return Error(fmt.Errorf("compute the status of %s %s: %w", object.GetKind(), object.GetName(), err))
	}
	detail := fmt.Sprintf("%s is %s: %s", object.GetKind(), computed.Status, computed.Message)
	switch computed.Status {
	case status.CurrentStatus:
		return healthy()
	case status.FailedStatus:
		return withObjectName(unhealthy(detail), object, timeout)
	case status.InProgressStatus, status.TerminatingStatus:
		return withObjectName(progressing(detail), object, timeout)
	}
	return withObjectName(unknown(detail), object, timeout)
}

// alwaysCurrent are kinds of which kstatus' own rule says that each object is healthy.
var alwaysCurrent = []schema.GroupKind{{Kind: "ConfigMap"}, {Group: "batch", Kind: "CronJob"}}

// StatusIsConclusive says whether ByStatus can find an object unhealthy whose generation was observed: kstatus has a rule for its kind, or the object one
// of the conditions that kstatus reads.
func StatusIsConclusive(object *unstructured.Unstructured) bool {
	if status.GetLegacyConditionsFn(object) != nil && !slices.Contains(alwaysCurrent, object.GroupVersionKind().GroupKind()) {
		return true
	}
	return slices.ContainsFunc(ConditionTypes(object), func(t string) bool { return t == "Ready" || t == "Reconciling" || t == "Stalled" })
}

// PersistentVolumeClaim is healthy when it is Bound; Pending is Progressing.
func PersistentVolumeClaim(c *corev1.PersistentVolumeClaim) Result {
	switch c.Status.Phase {
	case corev1.ClaimBound:
		return healthy()
	case corev1.ClaimLost:
		return unhealthy("PersistentVolumeClaim has lost its volume")
	}
	return progressing("PersistentVolumeClaim isn't bound yet")
}

// Service is healthy when it has an address or needs none. One of type LoadBalancer without one is Progressing.
func Service(s *corev1.Service) Result {
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		return progressing("Service of type LoadBalancer has no address")
	}
	return healthy()
}

// CustomResourceDefinition is healthy when it got its names and is served.
func CustomResourceDefinition(definition *unstructured.Unstructured) Result {
	const kind = "CustomResourceDefinition"
	names, established := conditionStateOf(definition, "NamesAccepted"), conditionStateOf(definition, "Established")
	return firstOf(requireTrue(kind, "NamesAccepted", names), requireTrue(kind, "Established", established).atStart())
}

// ManagedResource (of Gardener's resource manager) is healthy when its controller has seen the spec, ResourcesApplied and
// ResourcesHealthy are True, and ResourcesProgressing isn't True for as long as threshold; zero doesn't ask for that.
func ManagedResource(resource *unstructured.Unstructured, threshold time.Duration, now time.Time) Result {
	const kind = "ManagedResource"
	healthy := requireTrue(kind, "ResourcesHealthy", conditionStateOf(resource, "ResourcesHealthy"))
	if c := conditionStateOf(resource, "ResourcesHealthy"); c != nil && c.reason == "HealthChecksPending" { // Unknown, after each change
		healthy.Status = Progressing
	}
	observed, _, _ := unstructured.NestedInt64(resource.Object, "status", "observedGeneration")
	r := firstOf(
		seen(kind, resource.GetGeneration(), observed),
		requireTrue(kind, "ResourcesApplied", conditionStateOf(resource, "ResourcesApplied")),
		healthy.atStart(),
	)
	if r.Status != True || threshold <= 0 {
		return r
	}
	c := Find(resource, "ResourcesProgressing")
	if c == nil || c.Status != True || now.Before(c.LastTransition.Add(threshold)) {
		return r
	}
	return unhealthy(fmt.Sprintf("resources of ManagedResource progress since %s, longer than %s (%s): %s",
		c.LastTransition.UTC().Format(time.RFC3339), threshold, c.Reason, c.Message))
}

func conditionStateOf(object *unstructured.Unstructured, conditionType string) *conditionState {
	_, entry := find(object, conditionType)
	if entry == nil {
		return nil
	}
	return &conditionState{stringField(entry, "status"), stringField(entry, "reason"), stringField(entry, "message")}
}
