package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/resourcestack/autohealer/e2e/harness"
)

var _ = Describe("Bad input", func() {
	DescribeTable("gets an error that names what is wrong", func(ctx SpecContext, text string, want ...string) {
		before := pid()
		path := file(text)
		for _, command := range [][]string{{"apply", "-f", path}, {"apply", "--server-side", "-f", path}} {
			message := refused(ctx, command...)
			Expect(message).To(containAny(want), message)
			Expect(message).NotTo(ContainSubstring("panic"))
		}
		_, err := get(ctx, "bad")
		Expect(err).To(MatchError(ContainSubstring("not found")))
		Expect(pid()).To(Equal(before), "the manager runs on")
	},
		Entry("malformed YAML", "apiVersion: [\n  kind: }", "error converting YAML to JSON: yaml: line 1: did not find expected node content"),
		Entry("tabs", "apiVersion: v1\n\tkind: ConditionSet", "error converting YAML to JSON: yaml: line 2: found a tab character that violates indentation"),
		Entry("no YAML mapping", "- just\n- a list\n", "invalid object to validate"),
		Entry("another version", strings.Replace(manifest("bad", base), "v1alpha1", "v1beta9", 1), `no matches for kind "ConditionSet" in version "autohealer.resourcestack.com/v1beta9"`),
		Entry("an unknown field", withSpec(`efect: NoSchedule`), "spec.efect"),
		Entry("an unknown field further down", withSpec(`nodeSelector: {matchLabel: {a: b}}`), "spec.nodeSelector.matchLabel"),
		Entry("an unknown field of a condition", withSpec(`conditions: {KubeletUnhealthy: {status: true, for: 5m}}`), "spec.conditions.KubeletUnhealthy.for", `.spec.conditions["KubeletUnhealthy"].for`),
		Entry("a string where a boolean belongs", withSpec(`includeControlPlane: maybe`), "spec.includeControlPlane", ".spec.includeControlPlane"),
		Entry("a list where a map belongs", withSpec(`conditions: [KubeletUnhealthy]`), "spec.conditions", ".spec.conditions"),
		Entry("a number where a string belongs", withSpec(`taintKey: 5`), "spec.taintKey", ".spec.taintKey"),
		Entry("a duration in words", withSpec(`for: 5 minutes`), `spec.for: Invalid value: "5 minutes": write a duration such as 30s, 10m or 1h30m`),
		Entry("a duration without a unit", withSpec(`for: "5"`), `spec.for: Invalid value: "5": write a duration such as 30s, 10m or 1h30m`),
		Entry("a duration of more hours than an int holds", withSpec(`for: 99999999999999999999h`), "spec.for"),
		Entry("no conditions", withSpec(`conditions: {}`), "spec.conditions in body should have at least 1 properties"),
		Entry("17 conditions", withSpec(`conditions: {`+many(17, "C#: {status: true}")+`}`), "spec.conditions: Too many: 17: must have at most 16 items"),
		Entry("a status that is none", withSpec(`conditions: {KubeletUnhealthy: {status: maybe}}`), `spec.conditions.KubeletUnhealthy.status: Unsupported value: "maybe"`),
		Entry("no spec", "apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: ConditionSet\nmetadata: {name: bad}\n", "spec: Required value"),
		Entry("no name", strings.Replace(manifest("bad", base), "name: bad", "labels: {a: b}", 1), "resource name may not be empty", "name or generateName is required", "name is required"),
		Entry("more than the API server takes: 3 MiB", withSpec(`type: `+long(3<<20)), "Request entity too large: limit is 3145728"),
		Entry("5,000 conditions", withSpec(`conditions: {`+many(5000, "C#: {status: true}")+`}`), "Too many: 5000: must have at most 16 items"),
	)
})

// withSpec is a set with one more field, or with another value for one, in its spec. YAML parsers differ on fields given
// twice, so the one it replaces goes.
func withSpec(field string) string {
	kept := []string{"type: Bad", "effect: NoExecute", "taintKey: example.com/bad", "conditions: {KubeletUnhealthy: {status: true}}"}
	name, _, _ := strings.Cut(field, ":")
	for i, other := range kept {
		if strings.HasPrefix(other, name+":") {
			kept[i] = field
			return manifest("bad", "{"+strings.Join(kept, ", ")+"}")
		}
	}
	return manifest("bad", "{"+strings.Join(append(kept, field), ", ")+"}")
}

// containAny: the ways of applying word some errors differently.
func containAny(wordings []string) types.GomegaMatcher {
	var matchers []types.GomegaMatcher
	for _, wording := range wordings {
		matchers = append(matchers, ContainSubstring(wording))
	}
	return Or(matchers...)
}

// pid of the running manager: it changes when the process dies, whoever starts it again.
func pid() string {
	GinkgoHelper()
	id, err := os.ReadFile(filepath.Join(h.Dir, "run", fmt.Sprintf("%s.pid", harness.Manager)))
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(id))
}
