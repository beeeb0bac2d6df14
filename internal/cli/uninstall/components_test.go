package uninstall

import (
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/config"
)

func TestWhateverIsInstalledIsRemoved(t *testing.T) {
	apart := []string{"Kustomization", "Component", "Namespace"}                          // no objects, and what goes last
	ofChart, err := config.Objects(os.DirFS("../../../hack/gen-chart/objects"), "*.yaml") // beside config's
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range append(ofChart, installed()...) {
		if slices.Contains(apart, o.GetKind()) {
			continue
		}
		if !slices.ContainsFunc(components, func(p component) bool {
			return p.kind == o.GroupVersionKind() && slices.Contains(p.names(), o.GetName())
		}) {
			t.Errorf("no part has %s/%s in namespace %q", o.GetKind(), o.GetName(), o.GetNamespace())
		}
	}
	for _, p := range components {
		if len(p.names()) == 0 {
			t.Errorf("nothing is of part %s in namespace %q", p.kind, p.namespace)
		}
	}
}

func TestAPreviewTellsOfAFreezeWhereThereWillBeOne(t *testing.T) {
	named := func(name string, deleted bool) *object {
		o := &object{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if deleted {
			o.DeletionTimestamp = &metav1.Time{}
		}
		return o
	}
	rails, set := "guardrails."+v1alpha1.GroupVersion.Group, named("set", false)
	deployment := named("autohealer-manager", false)
	deployment.SetGroupVersionKind(deploymentKind)
	for name, test := range map[string]struct {
		survey Survey
		want   bool
	}{
		"a policy may act":                        {Survey{Delete: map[stage][]*object{definitions: {named(rails, false)}, policies: {set}}}, true},
		"a manager may act":                       {Survey{Delete: map[stage][]*object{definitions: {named(rails, false)}, manager: {deployment}}}, true},
		"nobody acts":                             {Survey{Delete: map[stage][]*object{definitions: {named(rails, false)}}}, false},
		"there are no Guardrails":                 {Survey{Delete: map[stage][]*object{policies: {set}}}, false},
		"the kind of Guardrails is being deleted": {Survey{Delete: map[stage][]*object{definitions: {named(rails, true)}, policies: {set}}}, false},
	} {
		var text strings.Builder
		test.survey.Write(&text)
		if got := strings.HasPrefix(text.String(), "Freeze: "); got != test.want {
			t.Errorf("%s: it says\n%s", name, &text)
		}
	}
}
