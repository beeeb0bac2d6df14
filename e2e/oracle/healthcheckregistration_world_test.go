package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// dials are Gadgets whose condition Dialled says what ConfigMaps and Deployments are like.
var dials = HealthCheckRegistrations{
	Targets: []Followed{{GroupVersionResource: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}, Kind: "Gadget"}},
	Checked: []Followed{
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap"},
		{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Kind: "Deployment"},
		{GroupVersionResource: schema.GroupVersionResource{Group: "resources.gardener.cloud", Version: "v1alpha1", Resource: "managedresources"}, Kind: "ManagedResource"},
	},
}

// tale is a history that a test tells, without a cluster, so that minutes pass at once.
type tale struct {
	*testing.T
	now     time.Time
	version uint64
	made    int
	objects map[string]*unstructured.Unstructured // by "Kind name"
	past    past
}

func newTale(t *testing.T, more ...Kind) *tale {
	s := &tale{T: t, now: noon, objects: map[string]*unstructured.Unstructured{}}
	s.past.starts = map[schema.GroupVersionResource]uint64{}
	for _, f := range newHistory(Options{Kinds: append(more, dials), Guardrails: true}).followed {
		s.past.starts[f.resource] = 1
	}
	s.version = 1
	s.put(`{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {tenant: a}}}`)
	s.put(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: r}, rules: [{apiGroups: ["", apps], resources: ["*"], verbs: [get, list, watch]}]}`)
	s.put(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: r}, roleRef: {kind: ClusterRole, name: r},
subjects: [{kind: ServiceAccount, namespace: autohealer-system, name: autohealer-manager}]}`)
	return s
}

// wait lets time pass.
func (s *tale) wait(d time.Duration) { s.now = s.now.Add(d) }

func (s *tale) resource(o *unstructured.Unstructured) schema.GroupVersionResource {
	gvk := o.GroupVersionKind()
	for _, f := range dials.followed() {
		if f.gvk() == gvk {
			return f.GroupVersionResource
		}
	}
	plural := strings.ToLower(gvk.Kind) + "s"
	if of, policies := strings.CutSuffix(plural, "policys"); policies {
		plural = of + "policies"
	}
	return gvk.GroupVersion().WithResource(plural)
}

// put has somebody write an object, whole.
func (s *tale) put(manifest string, values ...any) {
	s.Helper()
	o := &unstructured.Unstructured{}
	encoded, err := yaml.YAMLToJSON(fmt.Appendf(nil, manifest, values...))
	if err == nil {
		err = json.Unmarshal(encoded, &o.Object)
	}
	if err != nil {
		s.Fatal(err)
	}
	known := s.objects[o.GetKind()+" "+o.GetName()]
	if s.made++; known == nil {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", s.made)))
	} else {
		o.SetUID(known.GetUID())
	}
	s.store(o, nil)
}

// drop has somebody delete an object.
func (s *tale) drop(name string) {
	s.Helper()
	s.version++
	o := s.objects[name]
	s.past.revisions = append(s.past.revisions, revision{revisionKey: s.key(o), at: s.now})
	delete(s.objects, name)
}

func (s *tale) key(o *unstructured.Unstructured) revisionKey {
	return revisionKey{objectKey{s.resource(o), o.GetUID()}, s.version}
}

func (s *tale) store(o *unstructured.Unstructured, by *write) {
	s.Helper()
	s.version++
	encoded, err := o.MarshalJSON()
	if err != nil {
		s.Fatal(err)
	}
	s.objects[o.GetKind()+" "+o.GetName()] = o
	name := nameOf(s.resource(o).Resource, o)
	s.past.revisions = append(s.past.revisions, revision{revisionKey: s.key(o), name: name, object: encoded, at: s.now})
	if by != nil {
		by.revisionKey, by.name, by.at = s.key(o), name, s.now
		s.past.writes = append(s.past.writes, *by)
	}
}

// change has somebody change an object; ours says that it is the manager, which writes to a subresource.
func (s *tale) change(name string, ours bool, subresource string, how func(o *unstructured.Unstructured)) {
	s.Helper()
	if s.objects[name] == nil {
		s.Fatal("there is no ", name)
	}
	o := s.objects[name].DeepCopy()
	how(o)
	s.store(o, &write{ours: ours, verb: "patch", subresource: subresource})
}

// annotated is an object with an annotation; without it when the value is "".
func annotated(key, value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		notes := o.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		if notes[key] = value; value == "" {
			delete(notes, key)
		}
		o.SetAnnotations(notes)
	}
}

// claim has the manager claim these conditions of a Gadget, and no others.
func (s *tale) claim(name string, conditionTypes ...string) {
	s.Helper()
	s.change("Gadget "+name, true, "", annotated(claimsKey, strings.Join(conditionTypes, ",")))
}

// reasonsOf are those of the statuses that tests write.
var reasonsOf = map[string]string{
	"True": "HealthCheckSuccessful", "False": "HealthCheckUnsuccessful", "Unknown": "ConditionCheckError", "Doubt": inDoubt,
}

// dialled is an object with condition Dialled, which says this; without it when it says "".
func dialled(status, message string) func(*unstructured.Unstructured) {
	return saying("Dialled", status, message)
}

func saying(conditionType, status, message string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) {
		list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		is := map[string]any{"type": conditionType, "status": status, "reason": reasonsOf[status], "message": message}
		if status == "Doubt" {
			is["status"] = "Unknown"
		}
		i := slices.IndexFunc(list, func(e any) bool { return entry(e.(map[string]any)).text("type") == conditionType })
		switch {
		case status == "":
			list = slices.Delete(list, i, i+1)
		case i < 0:
			list = append(list, is)
		default:
			list[i] = is
		}
		if err := unstructured.SetNestedSlice(o.Object, list, "status", "conditions"); err != nil {
			panic(err)
		}
	}
}

const fine, bad = "(1/1) Health checks successful", "(0/1) Health checks successful: 1) dial: it is Down"

// say has the manager write condition Dialled of Gadgets, with the message that goes with it.
func (s *tale) say(status string, names ...string) {
	s.Helper()
	for _, name := range names {
		message := map[string]string{"True": fine, "": ""}[status]
		if message == "" {
			message = bad
		}
		s.change("Gadget "+name, true, "status", dialled(status, message))
	}
}

// dial says what ConfigMap dial says.
func (s *tale) dial(phase string) {
	s.Helper()
	s.put(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default, name: dial}, data: {phase: %s}}`, phase)
}

// checkDial is a check of it.
const checkDial = `{name: dial, conditionType: Dialled, object: {apiVersion: v1, kind: ConfigMap, name: "'dial'"}, evaluate: {cel: {healthy: object.data.phase == 'Up'}}}`

// register has somebody write a registration.
func (s *tale) register(name, more string, checks ...string) {
	s.Helper()
	generation := int64(1)
	if known := s.objects["HealthCheckRegistration "+name]; known != nil {
		generation = known.GetGeneration() + 1
	}
	s.put(`{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: HealthCheckRegistration,
  metadata: {name: %s, generation: %d, creationTimestamp: %q}, spec: {target: {apiVersion: example.org/v1, kind: Gadget, type: dials}, checks: [%s]%s}}`,
		name, generation, s.now.Format(time.RFC3339), strings.Join(checks, ","), more)
}

func (s *tale) target(names ...string) {
	s.Helper()
	for _, name := range names {
		s.put(`{apiVersion: example.org/v1, kind: Gadget, metadata: {namespace: default, name: %s}, spec: {type: dials}}`, name)
	}
}

// dialling begins with a registration r, and Gadgets w1 to wN whose condition is True.
func (s *tale) dialling(n int) (names []string) {
	s.Helper()
	s.dial("Up")
	s.register("r", "", checkDial)
	for i := range n {
		names = append(names, fmt.Sprint("w", i+1))
	}
	s.target(names...)
	s.wait(time.Minute)
	for _, name := range names {
		s.claim(name, "Dialled")
		s.say("True", name)
	}
	s.wait(time.Minute)
	return names
}

// status has the manager write what a registration's status says.
func (s *tale) status(name, status string) {
	s.Helper()
	var is map[string]any
	if err := yaml.Unmarshal([]byte(status), &is); err != nil {
		s.Fatal(err)
	}
	s.change("HealthCheckRegistration "+name, true, "status", func(o *unstructured.Unstructured) { o.Object["status"] = is })
}

// A dialCase is what happens, and which invariants that breaks, in order.
type dialCase struct {
	name   string
	do     func(*tale)
	broken []Invariant
	text   string // part of the first violation's text
}

func TestTheOracleFindsWhatABrokenManagerSaysOfTargets(t *testing.T) {
	for of, cases := range map[string][]dialCase{
		"correct": correctTelling, "foreign": foreignTelling, "unfounded": unfoundedTelling, "doubtful": doubtfulTelling, "unlimited": unlimitedTelling,
	} {
		for _, test := range cases {
			t.Run(of+"/"+test.name, func(t *testing.T) {
				s := newTale(t)
				test.do(s)
				found := judge(s.past, Options{Kinds: []Kind{dials}, Guardrails: true}.withDefaults(), nil, nil, s.now)
				if !slices.Equal(invariantsOf(found), test.broken) {
					t.Errorf("expected %q, found:\n%v", test.broken, found)
				}
				if len(found) > 0 && !strings.Contains(found[0].String(), test.text) {
					t.Errorf("%q isn't in %s", test.text, found[0])
				}
			})
		}
	}
}
