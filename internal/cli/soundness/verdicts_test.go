package soundness

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// A rule that only warns, or is gone, refuses nothing.
func TestBadSamplesAreForRulesThatRefuse(t *testing.T) {
	for _, s := range samples {
		text, err := os.ReadFile(filepath.Join("..", "..", "guard", "catalog", strings.ToLower(s.kind)+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		type rule struct{ ID, Severity string }
		var catalogue struct{ Rules []rule }
		if err := yaml.Unmarshal(text, &catalogue); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(catalogue.Rules, rule{s.rule, "Deny"}) {
			t.Errorf("%s isn't a rule that denies", s.rule)
		}
	}
}
