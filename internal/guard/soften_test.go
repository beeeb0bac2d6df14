package guard

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// TestWhatDriftedStaysEditable: each refusal of a rule over cluster or rights, as its own cases show it, is asked once more:
// of a config that observes, and of updates that leave the reason alone, touch it, or begin to enforce it.
func TestWhatDriftedStaysEditable(t *testing.T) {
	g := newTestGuard(t, nil)
	var ratchets, observing []string
	edits := 0
	for _, kind := range kinds.Names(kinds.Policies()) {
		for _, rule := range g.Rules(kind) {
			if rule.Severity != Deny || rule.Portable || rule.RatchetWhen != "" {
				continue
			}
			i := slices.IndexFunc(rule.Tests, func(test Test) bool { return test.Expect == ExpectDeny })
			refused := rule.Tests[i]
			want := func(name string, old *runtime.RawExtension, object runtime.RawExtension, want string) {
				t.Helper()
				refused.OldObject, refused.Object = old, object
				if got := outcome(runCatalogueTest(t, kind, refused), rule.ID); got != want {
					t.Errorf("%s, %s: %s, want %s", rule.ID, name, got, want)
				}
			}
			expect := func(softens bool) string {
				if softens {
					return ExpectWarn
				}
				return ExpectDeny
			}
			object := refused.Object
			observes := changed(t, object, map[string]any{"mode": "Observe"})
			want("observing", nil, observes, expect(rule.WhileObserving != ""))
			if other := unrelated(t, g.Rules(kind), rule, object); other != nil {
				want("an edit of something else", &object, changed(t, object, other), expect(len(rule.RatchetOn) > 0))
				edits++
			}
			want("turned to observation", &object, observes, ExpectWarn)
			want("turned to enforcement", &observes, object, ExpectDeny)
			for _, path := range rule.RatchetOn {
				want("a change of "+path, new(changed(t, object, map[string]any{strings.TrimPrefix(path, "spec."): others[path]})), object, ExpectDeny)
			}
			if len(rule.RatchetOn) > 0 {
				ratchets = append(ratchets, rule.ID)
			}
			if rule.WhileObserving != "" {
				observing = append(observing, rule.ID)
			}
		}
	}
	if len(ratchets) < 18 || len(observing) < 11 || edits < 25 {
		t.Errorf("%d ratchet: %v\n%d spare what observes: %v\n%d edits", len(ratchets), ratchets, len(observing), observing, edits)
	}
}

// unrelated is a field that the object doesn't have and the rule isn't about, with a value that another case of the kind has; nil when
// there is none.
func unrelated(t *testing.T, all []RuleInfo, rule RuleInfo, object runtime.RawExtension) map[string]any {
	t.Helper()
	specOf := func(object runtime.RawExtension) map[string]any {
		var content map[string]map[string]any
		if err := json.Unmarshal(object.Raw, &content); err != nil {
			t.Fatal(err)
		}
		return content["spec"]
	}
	about := slices.Concat(rule.Reads, rule.RatchetOn, []string{"spec.mode"})
	is := specOf(object)
	for _, other := range all {
		for _, test := range other.Tests {
			spec := specOf(test.Object)
			for _, field := range slices.Sorted(maps.Keys(spec)) {
				isAbout := slices.ContainsFunc(about, func(path string) bool { return strings.HasPrefix(strings.TrimPrefix(path, "object."), "spec."+field) })
				if _, has := is[field]; !has && !isAbout {
					return map[string]any{field: spec[field]}
				}
			}
		}
	}
	return nil
}

// TestWhatIsAdmittedForObservingCantAct: an account without rights doesn't keep a config from observing; what admits that is
// no admission to act by.
func TestWhatIsAdmittedForObservingCantAct(t *testing.T) {
	g := under(t, newTestGuard(t, nil), Options{Authorizer: authorizerfactory.NewAlwaysDenyAuthorizer()})
	wc := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "w", UID: "u1", Generation: 1}}
	wc.Spec.ServicesAndDependantSelectors = map[string]v1alpha1.DependantSelectors{"etcd": {PodSelectors: []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"app": "api"}}}}}
	if v, verdict := Admit(t.Context(), g, wc); v.Valid() || v.Enforces() || verdict.Allowed {
		t.Errorf("enforcing: valid %v, may act %v", v.Valid(), v.Enforces())
	}
	wc.Spec.Mode = v1alpha1.Observe
	v, verdict := Admit(t.Context(), g, wc)
	if !v.Valid() || v.Enforces() {
		t.Errorf("observing: valid %v, may act %v: %s", v.Valid(), v.Enforces(), verdict.Message())
	}
	if w := verdict.Warnings(); len(w) != 1 || !strings.HasSuffix(w[0], "; mode: Observe does nothing, and mode: Enforce would be refused") {
		t.Errorf("warned %q", w)
	}
}

// others are values that no case has.
var others = map[string]any{
	"spec.serviceAccountName":            "another",
	"spec.internalKubeConfigSecretName":  "another",
	"spec.externalKubeConfigSecretName":  "another",
	"spec.dependentResourceInfos":        []any{},
	"spec.servicesAndDependantSelectors": map[string]any{},
	"spec.targetRefs":                    []any{},
	"spec.disabled":                      true,
	"spec.outlierDetection":              map[string]any{},
	"spec.output":                        "RegistrationOnly",
	"spec.suspendWhen":                   "false",
	"spec.namespaceSelector":             map[string]any{"matchLabels": map[string]any{"another": "label"}},
}

// changed has other fields in its spec.
func changed(t *testing.T, object runtime.RawExtension, fields map[string]any) runtime.RawExtension {
	t.Helper()
	var content map[string]map[string]any
	if err := json.Unmarshal(object.Raw, &content); err != nil {
		t.Fatal(err)
	}
	maps.Copy(content["spec"], fields)
	text, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return runtime.RawExtension{Raw: text}
}
