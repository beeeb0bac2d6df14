package oracle

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// claimsKey is the annotation in which a target names the conditions that are ours.
const claimsKey = "autohealer.resourcestack.com/owned-conditions"

// HealthCheckRegistrations is the kind that tells on objects, by conditions, how what they depend on is.
type HealthCheckRegistrations struct {
	// Targets are the kinds that registrations name as such, and Checked those that their checks look at. They must be served. What checks
	// find of any other kind, or in a shoot, isn't known here. ProbeConfigs leave no status of what both follow.
	Targets, Checked []Followed
}

// Followed is a kind with its resource.
type Followed struct {
	schema.GroupVersionResource
	Kind string
}

func (f Followed) gvk() schema.GroupVersionKind { return f.GroupVersion().WithKind(f.Kind) }

// namespaceKind is what registrations select by, too.
var namespaceKind = Followed{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, Kind: "Namespace"}

// Policies are the HealthCheckRegistrations.
func (HealthCheckRegistrations) Policies() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: ourGroup, Version: "v1alpha1", Resource: "healthcheckregistrations"}
}

func (k HealthCheckRegistrations) followed() []Followed {
	return slices.Concat(k.Targets, k.Checked, []Followed{namespaceKind})
}

// Foreign are the targets, what is checked, the targets' namespaces, and what the manager may read by RBAC.
func (k HealthCheckRegistrations) Foreign() []schema.GroupVersionResource {
	all := rbacResources()
	for _, f := range k.followed() {
		all = append(all, f.GroupVersionResource)
	}
	return all
}

// Trim drops nothing: expressions may read whatever there is.
func (HealthCheckRegistrations) Trim(*unstructured.Unstructured) {}

// Begin gives a reader that has seen nothing yet.
func (k HealthCheckRegistrations) Begin(o Options) Reader { return newSubjects(k, o) }

// thing is one revision of a target, or of what checks look at.
type thing struct {
	*unstructured.Unstructured
	// owed gives the deleted registrations whose conditions it still has.
	owed func(*thing) []types.UID
}

// Records gives whoever has to take something off.
func (t *thing) Records() []types.UID { return t.owed(t) }

func (s *subjects) View(object []byte) (View, error) {
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &meta); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	key := types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
	switch meta.Kind {
	case "Role", "ClusterRole":
		return parseRole(key, object)
	case "RoleBinding", "ClusterRoleBinding":
		return parseBinding(key, object)
	}
	t := &thing{Unstructured: &unstructured.Unstructured{}, owed: s.owed}
	if err := t.UnmarshalJSON(object); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	return t, nil
}

// thingKey is a name by which an object is found, whichever object has it.
type thingKey struct {
	kind schema.GroupVersionKind
	name types.NamespacedName
}

func (t *thing) key() thingKey {
	return thingKey{t.GroupVersionKind(), types.NamespacedName{Namespace: t.GetNamespace(), Name: t.GetName()}}
}

func (t *thing) String() string {
	return fmt.Sprintf("%s %s/%s", t.GetKind(), t.GetNamespace(), t.GetName())
}

// claims are the condition types that the object says are ours.
func (t *thing) claims() []string {
	return strings.FieldsFunc(t.GetAnnotations()[claimsKey], func(r rune) bool { return r == ',' || r == ' ' })
}

func (t *thing) claimed(conditionType string) bool { return slices.Contains(t.claims(), conditionType) }

// held says whether people ask to turn nothing bad on the object.
func (t *thing) held(at time.Time) bool {
	text, held := t.GetAnnotations()[holdKey]
	until, err := time.Parse(time.RFC3339, text)
	return held && (err != nil || at.Before(until))
}

// entry is a condition as an object has it; nil for none.
type entry map[string]any

func (t *thing) conditions() (all []entry) {
	list, _, _ := unstructured.NestedSlice(t.Object, "status", "conditions")
	for _, item := range list {
		if e, ok := item.(map[string]any); ok {
			all = append(all, e)
		}
	}
	return all
}

func (t *thing) condition(conditionType string) entry {
	all := t.conditions()
	if i := slices.IndexFunc(all, func(e entry) bool { return e.text("type") == conditionType }); i >= 0 {
		return all[i]
	}
	return nil
}

func (e entry) text(field string) string {
	text, _ := e[field].(string)
	return text
}

func (e entry) status() string { return e.text("status") }

// says is all that the condition tells, but for times; "" for none.
func (e entry) says() string {
	if e == nil {
		return ""
	}
	return fmt.Sprintf("%s %s %q %v", e.status(), e.text("reason"), e.text("message"), e["codes"])
}

// statusesOf are what a condition of each reason of checks may say.
var statusesOf = map[string][]string{
	"HealthCheckSuccessful": {"True"}, "HealthCheckUnsuccessful": {"False"}, "HealthCheckProgressing": {"Progressing", "Unknown"},
	"ConditionCheckError": {"Unknown"}, inDoubt: {"Unknown"},
}

// inDoubt is the reason of what was unsuccessful for too many at once.
const inDoubt = "HealthCheckInDoubt"

var messageOfChecks = regexp.MustCompile(`^[^(]*(\([0-9]+/[0-9]+\) Health checks successful(: |$)|no check gave a result$)`)

// byChecks says whether the condition is of the form that checks are written in.
func (e entry) byChecks() bool {
	return slices.Contains(statusesOf[e.text("reason")], e.status()) && messageOfChecks.MatchString(e.text("message"))
}

// doubted: it was unsuccessful, and wasn't believed to be.
func (e entry) doubted() bool {
	return e.text("reason") == inDoubt || strings.HasPrefix(e.text("message"), "Unsuccessful before, which was in doubt. ")
}

// apart are the condition types that two revisions don't have in common, and whether that is all: neither the rest of their status nor the
// order of the other conditions differs.
func apart(before, after *thing) (conditionTypes []string, all bool) {
	for _, e := range slices.Concat(before.conditions(), after.conditions()) {
		t := e.text("type")
		if !reflect.DeepEqual(before.condition(t), after.condition(t)) && !slices.Contains(conditionTypes, t) {
			conditionTypes = append(conditionTypes, t)
		}
	}
	rest := func(of *thing) ([]entry, map[string]any) {
		others := slices.DeleteFunc(of.conditions(), func(e entry) bool { return slices.Contains(conditionTypes, e.text("type")) })
		o := of.DeepCopy()
		unstructured.RemoveNestedField(o.Object, "status", "conditions")
		if status, _, _ := unstructured.NestedMap(o.Object, "status"); len(status) == 0 {
			delete(o.Object, "status")
		}
		return others, o.Object
	}
	others, object := rest(before)
	sameOthers, sameObject := rest(after)
	same := func(a, b entry) bool { return reflect.DeepEqual(a, b) }
	return conditionTypes, slices.EqualFunc(others, sameOthers, same) && reflect.DeepEqual(object, sameObject)
}

// unclaimed is an object without what it says of claims.
func (t *thing) unclaimed() map[string]any {
	o := t.DeepCopy()
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", claimsKey)
	if len(o.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	}
	return o.Object
}
