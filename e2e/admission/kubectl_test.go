package admission

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/crds"
)

var _ = Describe("kubectl", func() {
	It("lists sets by kind, short name and category, in columns that say what matters", func(ctx SpecContext) {
		create(ctx, "columns", `{type: Columns, effect: NoSchedule, taintKey: example.com/columns, conditions: {KernelDeadlock: {status: true}}}`)
		Eventually(ctx, conditionOf("columns", "Ready")).Should(HavePrefix("True"))
		for _, resource := range []string{"conditionsets", "conditionset", "cset", "autohealer"} {
			lines := strings.Split(accepted(ctx, "get", resource), "\n")
			Expect(lines).To(ContainElement(MatchRegexp(`^NAME +EFFECT +KEY +ACCEPTED +READY +REASON +MATCHING +TAINTED +HELD +BREAKER +AGE *$`)), resource)
			Expect(lines).To(ContainElement(MatchRegexp(`^(conditionset.autohealer.resourcestack.com/)?columns +NoSchedule +example.com/columns +True +True +Operative +0 +0 +0 +\S+$`)), resource)
		}
		lines := strings.Split(accepted(ctx, "get", "cset", "columns", "-o", "wide"), "\n")
		Expect(strings.Fields(lines[0])).To(Equal([]string{"NAME", "EFFECT", "KEY", "ACCEPTED", "READY", "REASON", "MATCHING", "TAINTED", "HELD", "BREAKER", "DOUBTFUL", "AGE"}))
		Expect(lines[1]).To(MatchRegexp(`^columns .* Operative +0 +0 +0 +0 +\S+$`))
	}, NodeTimeout(specTime))

	It("explains every field", func(ctx SpecContext) {
		fields := documented(ctx)
		Expect(len(fields)).To(BeNumerically(">", 30), "the schema's fields")
		recursive := accepted(ctx, "explain", "conditionset.spec", "--recursive")
		for _, field := range []string{"type", "effect", "taintKey", "conditions", "nodeSelector", "includeControlPlane", "for", "recoverAfter", "staleAfter", "evictAfter", "maxNodes", "mode"} {
			Expect(recursive).To(MatchRegexp(`(?m)^  %s\t<`, field), "kubectl explain --recursive")
			output := accepted(ctx, "explain", "conditionset.spec."+field)
			Expect(output).To(MatchRegexp(`DESCRIPTION:\n    \S+`), output)
			Expect(output).NotTo(ContainSubstring("<empty>"), "what kubectl shows where there is no description")
		}
	}, NodeTimeout(specTime))
})

// documented gives the paths of all fields that the API server publishes, and fails where one has no description.
func documented(ctx context.Context) []string {
	GinkgoHelper()
	text := accepted(ctx, "get", "crd", "conditionsets.autohealer.resourcestack.com", "-o", "yaml")
	var published apiextensionsv1.CustomResourceDefinition
	Expect(yaml.Unmarshal([]byte(text), &published)).To(Succeed())
	var fields []string
	root := published.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, name := range []string{"spec", "status"} {
		property := root.Properties[name]
		walk(name, &property, func(path string, schema *apiextensionsv1.JSONSchemaProps) {
			fields = append(fields, path)
			if !strings.HasSuffix(path, "[]") { // the list is described, and its items are
				Expect(schema.Description).NotTo(BeEmpty(), path)
			}
		})
	}
	return fields
}

// walk visits a schema and everything below it: properties, items as path[], values of maps as path.*.
func walk(path string, schema *apiextensionsv1.JSONSchemaProps, visit func(string, *apiextensionsv1.JSONSchemaProps)) {
	visit(path, schema)
	for name, property := range schema.Properties {
		walk(path+"."+name, &property, visit)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walk(path+"[]", schema.Items.Schema, visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil && schema.AdditionalProperties.Schema.Type != "string" {
		walk(path+".*", schema.AdditionalProperties.Schema, visit)
	}
}

// embeddedSchema is the schema of the CRD that the manager was built with.
func embeddedSchema() *apiextensionsv1.JSONSchemaProps {
	GinkgoHelper()
	text, err := crds.FS.ReadFile("autohealer.resourcestack.com_conditionsets.yaml")
	Expect(err).NotTo(HaveOccurred())
	var definition apiextensionsv1.CustomResourceDefinition
	Expect(yaml.Unmarshal(text, &definition)).To(Succeed())
	Expect(definition.Spec.Versions).To(HaveLen(1), fmt.Sprint(definition.Name))
	return definition.Spec.Versions[0].Schema.OpenAPIV3Schema
}
