package oracle

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// registering is what is judged of a HealthCheckRegistration's spec.
type registering struct {
	Mode, Output, SuspendWhen string
	RemoveConditionTypes      []string
	Target                    struct {
		APIVersion, Kind, Type, TypePath string
		Selector, NamespaceSelector      *metav1.LabelSelector
	}
	Checks []check
}

// check is one of its checks.
type check struct {
	ConditionType, Cluster, When, OnMissing string
	Object                                  *struct {
		APIVersion, Kind, Name, Namespace, Where string
		Selector                                 *metav1.LabelSelector
	}
	Evaluate struct {
		Builtin, Status *struct{}
		CEL             *struct{ Healthy, Progressing, Failed string }
	}
}

func registeringOf(policy *unstructured.Unstructured) (r registering, err error) {
	encoded, err := json.Marshal(policy.Object["spec"])
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(encoded, &r)
}

// of are the checks that decide a condition type.
func (r *registering) of(conditionType string) []check {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(c check) bool { return c.ConditionType != conditionType })
}

// writes says whether targets have conditions of a type because of it.
func (r *registering) writes(conditionType string) bool {
	return r.Mode != "Observe" && r.Output != "RegistrationOnly" && len(r.of(conditionType)) > 0
}

// takesOff says whether targets lose a condition because it asks for that.
func (r *registering) takesOff(conditionType string) bool {
	return r.Mode != "Observe" && slices.Contains(r.RemoveConditionTypes, conditionType)
}

// selects says whether an object is a target, as it and its namespace are. One that is being deleted isn't looked at any more.
func (r *registering) selects(t, namespace *thing) bool {
	gv, err := schema.ParseGroupVersion(r.Target.APIVersion)
	if err != nil || t == nil || t.GetDeletionTimestamp() != nil || t.GroupVersionKind().GroupKind() != gv.WithKind(r.Target.Kind).GroupKind() {
		return false
	}
	path := r.Target.TypePath
	if path == "" {
		path = "spec.type"
	}
	is, _, _ := unstructured.NestedString(t.Object, strings.Split(path, ".")...)
	return (r.Target.Type == "" || is == r.Target.Type) && (r.Target.Selector == nil || matches(r.Target.Selector, t.GetLabels())) &&
		(r.Target.NamespaceSelector == nil || namespace != nil && matches(r.Target.NamespaceSelector, namespace.GetLabels()))
}

// decider is a registration that may have had a say in a write.
type decider struct {
	policy     *Policy
	uid        types.UID
	generation int64
	// specs are those that the manager may have gone by, the newest first.
	specs []registering
	// surely: it has had the same say for so long that the manager must know it.
	surely bool
}

// deciders are the registrations that concern a target, and have a say of one sort.
func (s *subjects) deciders(at time.Time, target thingKey, say func(*registering) bool) (all []decider) {
	for uid, p := range s.registrations() {
		if !p.Gone.IsZero() && at.Sub(p.Gone) > s.options.Lag {
			continue
		}
		// A creation has no fractions of seconds.
		d := decider{policy: p, uid: uid, surely: p.Gone.IsZero() && at.Sub(p.Latest.GetCreationTimestamp().Time) > s.options.Lag+time.Second}
		for _, spec := range p.InForce(at, s.options.Lag) {
			r, err := registeringOf(spec.Object)
			ever, always := s.over(at, []schema.GroupVersionKind{target.kind, namespaceKind.gvk()}, func(m time.Time) bool {
				return err == nil && say(&r) && r.selects(s.asOf(target, m), s.namespaceOf(target, m))
			})
			if d.surely = d.surely && always; !ever {
				continue
			}
			if d.specs = append(d.specs, r); d.generation == 0 {
				d.generation = spec.Generation
			}
		}
		if len(d.specs) > 0 {
			all = append(all, d)
		}
	}
	return all
}

// owed are the registrations that decided a claimed condition of a target last, if they are deleted and nobody decides it any more.
func (s *subjects) owed(t *thing) (all []types.UID) {
	if t.GetDeletionTimestamp() != nil {
		return nil
	}
	for _, conditionType := range t.claims() {
		var last *Policy
		var uids []types.UID
		for uid, p := range s.registrations() {
			r, err := registeringOf(p.Latest)
			if p.Gone.IsZero() && (err != nil || r.writes(conditionType) && r.selects(t, s.namespaceOf(t.key(), time.Time{}))) {
				last, uids = nil, nil
				break
			}
			if slices.Contains(s.mark(t, conditionType).by, uid) && !p.Gone.IsZero() && (last == nil || p.Gone.After(last.Gone)) {
				last, uids = p, []types.UID{uid}
			}
		}
		all = append(all, uids...)
	}
	return all
}
