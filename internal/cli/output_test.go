package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestDocumentsSayWhatTheyAre: what a verb writes as JSON it writes as YAML, too, and a program can tell what it is.
func TestDocumentsSayWhatTheyAre(t *testing.T) {
	t.Chdir("testdata")
	for args, kind := range map[string]string{
		"validate -f manifests/bad.yaml":                            "Validation",
		"plan -f manifests/plan.yaml --facts facts.yaml":            "Plan",
		"hash -f manifests/good.yaml":                               "HashList",
		"rules list":                                                "RuleList",
		"history -f history/manager.log":                            "History",
		"history -f history/manager.log node/nothing-was-done-here": "History",
	} {
		t.Run(args, func(t *testing.T) {
			var documents [2]map[string]any
			for i, format := range []string{"json", "yaml"} {
				_, stdout, stderr := run(t, "", append(strings.Fields(args), "-o", format)...)
				if err := yaml.UnmarshalStrict([]byte(stdout), &documents[i]); err != nil || strings.HasPrefix(stdout, "{") != (format == "json") || stderr != "" {
					t.Fatalf("-o %s: %v\n%s%s", format, err, stdout, stderr)
				}
			}
			if d := documents[0]; d["apiVersion"] != "cli.autohealer.resourcestack.com/v1alpha1" || d["kind"] != kind {
				t.Errorf("it is %v of %v, want %s", d["kind"], d["apiVersion"], kind)
			}
			if diff := cmp.Diff(documents[0], documents[1]); diff != "" {
				t.Errorf("-json +yaml\n%s", diff)
			}
		})
	}
}
