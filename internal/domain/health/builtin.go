package health

import (
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// checked is an object under check. timeout is for how long Progressing is trusted.
type checked struct {
	*unstructured.Unstructured
	timeout time.Duration
	now     time.Time
}

// kindCheck is the check of a kind.
type kindCheck struct {
	// observes: the status tells the generation of the spec that the kind's controller has seen, which has to be the latest.
	observes bool
	check    func(o checked) (Result, error)
}

// builtin are the kinds that come with a check, in any version.
var builtin = map[schema.GroupKind]kindCheck{
	{Group: "apps", Kind: "Deployment"}:                               {true, typed(deploymentCheck)},
	{Group: "apps", Kind: "StatefulSet"}:                              {true, typed(statefulSetCheck)},
	{Group: "apps", Kind: "ReplicaSet"}:                               {true, typed(replicaSetCheck)},
	{Group: "apps", Kind: "DaemonSet"}:                                {true, typed(daemonSetCheck)},
	{Group: "batch", Kind: "Job"}:                                     {false, untyped(jobCheck)},
	{Kind: "Pod"}:                                                     {false, typed(podCheck)},
	{Kind: "PersistentVolumeClaim"}:                                   {false, untyped(claimCheck)},
	{Kind: "Service"}:                                                 {false, untyped(serviceCheck)},
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: {false, untyped(definitionCheck)},
	{Group: "resources.gardener.cloud", Kind: "ManagedResource"}:      {true, untyped(managedResourceCheck)},
}

// FieldsRead are the fields beside metadata that these checks and kstatus read: no others are kept of what is only looked at by them.
var FieldsRead = []string{
	"status", "spec.replicas", "spec.updateStrategy", "spec.completions", "spec.parallelism", "spec.suspend", "spec.type", "spec.clusterIP",
	"spec.progressDeadlineSeconds", "spec.paused",
}

func typed[T appsv1.Deployment | appsv1.StatefulSet | appsv1.ReplicaSet | appsv1.DaemonSet | corev1.Pod](check func(*T, checked) Result) func(checked) (Result, error) {
	return func(o checked) (Result, error) {
		into := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
			return Result{}, fmt.Errorf("read %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		return check(into, o), nil
	}
}

func untyped(check func(checked) Result) func(checked) (Result, error) {
	return func(o checked) (Result, error) { return check(o), nil }
}

// HasBuiltin says whether a check for the kind comes with Autohealer.
func HasBuiltin(kind schema.GroupKind) bool { return builtin[kind].check != nil }

// Builtin judges an object by the check that comes for its kind. timeout is how long Progressing is trusted, and how long an object is
// new: it may start until then. One that is being deleted is Progressing.
func Builtin(object *unstructured.Unstructured, timeout time.Duration, now time.Time) Result {
	kind := object.GroupVersionKind().GroupKind()
	if !HasBuiltin(kind) {
		return unknown("there is no built-in check for " + kind.String())
	}
	if object.GetDeletionTimestamp() != nil {
		return withObjectName(progressing(kind.Kind+" is being deleted"), object, timeout)
	}
	o := checked{object, timeout, now}
	r, err := builtin[kind].check(o)
	if err != nil {
		return Error(err)
	}
	if builtin[kind].observes {
		r = firstOf(o.observed(), r)
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

// jobCheck: a Job is healthy unless it has failed.
func jobCheck(o checked) Result { return o.requireNot("Failed", "failed") }

// claimCheck: a PersistentVolumeClaim is healthy when it is Bound; Pending is Progressing.
func claimCheck(o checked) Result {
	switch phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase {
	case string(corev1.ClaimBound):
		return healthy()
	case string(corev1.ClaimLost):
		return unhealthy("PersistentVolumeClaim has lost its volume")
	}
	return progressing("PersistentVolumeClaim isn't bound yet")
}

// serviceCheck: a Service is healthy when it has an address or needs none. One of type LoadBalancer without one is Progressing.
func serviceCheck(o checked) Result {
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "type")
	addresses, _, _ := unstructured.NestedSlice(o.Object, "status", "loadBalancer", "ingress")
	if kind == string(corev1.ServiceTypeLoadBalancer) && len(addresses) == 0 {
		return progressing("Service of type LoadBalancer has no address")
	}
	return healthy()
}

// definitionCheck: a CustomResourceDefinition is healthy when it got its names and is served.
func definitionCheck(o checked) Result {
	return firstOf(o.require("NamesAccepted"), o.require("Established").atStart())
}

// managedResourceCheck: a ManagedResource (of Gardener's resource manager) is healthy when ResourcesApplied and ResourcesHealthy are True, and
// ResourcesProgressing isn't True for as long as the timeout; zero doesn't ask for that.
func managedResourceCheck(o checked) Result {
	healthy := o.require("ResourcesHealthy")
	if o.condition("ResourcesHealthy").reason == "HealthChecksPending" { // Unknown, after each change
		healthy.Status = Progressing
	}
	r := firstOf(o.require("ResourcesApplied"), healthy.atStart())
	if r.Status != True || o.timeout <= 0 {
		return r
	}
	c := Find(o.Unstructured, "ResourcesProgressing")
	if c == nil || c.Status != True || o.now.Before(c.LastTransition.Add(o.timeout)) {
		return r
	}
	return unhealthy(fmt.Sprintf("resources of ManagedResource progress since %s, longer than %s (%s): %s",
		c.LastTransition.UTC().Format(time.RFC3339), o.timeout, c.Reason, c.Message))
}

// conditionState is a condition of an object under check; its status is "" where there is none.
type conditionState struct{ status, reason, message string }

func (o checked) condition(conditionType string) conditionState {
	_, entry := find(o.Unstructured, conditionType)
	return conditionState{stringField(entry, "status"), stringField(entry, "reason"), stringField(entry, "message")}
}

// require asks that a condition is True. Missing means not yet; Gardener's own may themselves be Progressing.
func (o checked) require(conditionType string) Result {
	c := o.condition(conditionType)
	detail := fmt.Sprintf("condition %s of %s is %s", conditionType, o.GetKind(), c.status)
	if c.reason != "" {
		detail += " (" + c.reason + ")"
	}
	if c.message != "" {
		detail += ": " + c.message
	}
	switch Status(c.status) {
	case "":
		return progressing(fmt.Sprintf("%s has no condition %s yet", o.GetKind(), conditionType))
	case True:
		return healthy()
	case Unknown:
		return unknown(detail)
	case Progressing:
		return progressing(detail)
	}
	return unhealthy(detail)
}

// requireNot asks that a condition isn't True; the detail says what is wrong then.
func (o checked) requireNot(conditionType, detail string) Result {
	c := o.condition(conditionType)
	if c.status != string(True) {
		return healthy()
	}
	return unhealthy(fmt.Sprintf("%s %s (%s): %s", o.GetKind(), detail, c.reason, c.message))
}

// observed asks that the object's controller has seen its latest spec; before, its status is about an older one.
func (o checked) observed() Result {
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	if observed >= o.GetGeneration() {
		return healthy()
	}
	return progressing(fmt.Sprintf("%s was changed, and its status is of generation %d instead of %d", o.GetKind(), observed, o.GetGeneration()))
}

// firstOf gives the first result that isn't True, or the last: one that is True may have a note.
func firstOf(results ...Result) Result {
	for _, r := range results {
		if r.Status != True {
			return r
		}
	}
	return results[len(results)-1]
}
