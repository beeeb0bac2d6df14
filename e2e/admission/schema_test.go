package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bound is one bound of the schema, with a set on either side of it.
type bound struct {
	// name is the field's path and the schema's keyword; a spec compares all of them with the schema.
	name string
	// fits and breaks are what to put into a sound spec, or status, as YAML; several of each where one can't show it.
	fits, breaks []string
	// says is in the message of every refusal.
	says string
}

const base = `{type: Bounds, effect: NoExecute, taintKey: example.com/bounds, conditions: {KubeletUnhealthy: {status: true}}}`

func many(n int, format string) string {
	var all []string
	for i := range n {
		all = append(all, strings.ReplaceAll(format, "#", fmt.Sprint(i)))
	}
	return strings.Join(all, ", ")
}

func long(n int) string { return strings.Repeat("x", n) }

var specBounds = slices.Concat([]bound{
	{"spec.type required", nil, []string{`{type: null}`}, "spec.type: Required value"},
	{"spec.type minLength", []string{`{type: x}`}, []string{`{type: ""}`}, "spec.type in body should be at least 1 chars long"},
	{"spec.type maxLength", []string{`{type: ` + long(63) + `}`}, []string{`{type: ` + long(64) + `}`}, "spec.type: Too long: may not be more than 63 bytes"},
	{"spec.type rule", []string{`{type: KernelDeadlock}`, `{type: a.b-c_d0}`}, []string{`{type: "0"}`, `{type: a-}`, `{type: "a b"}`, `{type: ä}`}, "write a name such as KernelDeadlock"},
	{"spec.effect required", nil, []string{`{effect: null}`}, "spec.effect: Required value"},
	{"spec.effect enum", []string{`{effect: NoExecute}`, `{effect: NoSchedule}`, `{effect: PreferNoSchedule}`}, []string{`{effect: Evict}`, `{effect: noexecute}`, `{effect: ""}`}, `supported values: "NoExecute", "NoSchedule", "PreferNoSchedule"`},
	{"spec.taintKey required", nil, []string{`{taintKey: null}`}, "spec.taintKey: Required value"},
	{"spec.taintKey minLength", []string{`{taintKey: x}`}, []string{`{taintKey: ""}`}, "spec.taintKey in body should be at least 1 chars long"},
	{"spec.taintKey maxLength", []string{`{taintKey: ` + longKey(317) + `}`}, []string{`{taintKey: ` + longKey(318) + `}`}, "spec.taintKey: Too long"},
	{"spec.conditions required", nil, []string{`{conditions: null}`}, "spec.conditions: Required value"},
	{"spec.conditions minProperties", nil, []string{`{conditions: {}}`}, "spec.conditions in body should have at least 1 properties"},
	{"spec.conditions maxProperties", []string{`{conditions: {` + many(16, "C#: {status: true}") + `}}`}, []string{`{conditions: {` + many(17, "C#: {status: true}") + `}}`}, "spec.conditions: Too many: 17: must have at most 16 items"},
	{"spec.conditions rule 1", []string{`{conditions: {x: {status: true}}}`}, []string{`{conditions: {"": {status: true}}}`, `{conditions: {"": {status: true}, KubeletUnhealthy: {status: true}}}`}, "a node condition type can't be empty; name one, such as KernelDeadlock"},
	{"spec.conditions rule 2", []string{`{conditions: {` + long(316) + `: {status: true}}}`}, []string{`{conditions: {` + long(317) + `: {status: true}}}`}, "a node condition type has at most 316 characters"},
	{"spec.conditions.*.status required", nil, []string{`{conditions: {A: {}}}`, `{conditions: {A: {status: null}}}`}, "spec.conditions.A.status: Required value"},
	{
		"spec.conditions.*.status enum",
		[]string{`{conditions: {A: {status: true}, B: {status: false}, C: {status: "True"}, D: {status: "False"}, E: {status: "Unknown"}, F: {status: "true"}, G: {status: "false"}, H: {status: unknown}}}`},
		[]string{`{conditions: {A: {status: TRUE!}}}`, `{conditions: {A: {status: ""}}}`, `{conditions: {A: {status: 1}}}`, `{conditions: {A: {status: [true]}}}`, `{conditions: {A: {status: {is: true}}}}`, `{conditions: {A: {status: UNKNOWN}}}`},
		"spec.conditions.A.status: Unsupported value:",
	},
	{"spec rule", []string{`{effect: NoExecute, evictAfter: 5m}`}, []string{`{effect: NoSchedule, evictAfter: 5m}`}, "evictAfter delays NoExecute and needs effect NoExecute; remove evictAfter or set effect: NoExecute"},
	{"spec.mode enum", []string{`{mode: Enforce}`, `{mode: Observe}`}, []string{`{mode: DryRun}`}, `supported values: "Enforce", "Observe"`},
	{
		"spec.maxNodes rule", []string{`{maxNodes: 1}`, `{maxNodes: 100000}`, `{maxNodes: 1%}`, `{maxNodes: 100%}`},
		[]string{`{maxNodes: -1}`, `{maxNodes: 100001}`, `{maxNodes: 101%}`, `{maxNodes: "5"}`, `{maxNodes: 5.5%}`, `{maxNodes: -5%}`, `{maxNodes: ""}`},
		"must be a number from 0 to 100000 or a percentage from 0% to 100%",
	},
	{"spec.nodeSelector.matchLabels maxProperties", []string{`{nodeSelector: {matchLabels: {` + many(16, "l#: v") + `}}}`}, []string{`{nodeSelector: {matchLabels: {` + many(17, "l#: v") + `}}}`}, "matchLabels: Too many: 17"},
	{
		"spec.nodeSelector.matchLabels rule", []string{`{nodeSelector: {matchLabels: {` + longKey(317) + `: ` + long(63) + `}}}`},
		[]string{`{nodeSelector: {matchLabels: {` + longKey(318) + `: v}}}`, `{nodeSelector: {matchLabels: {l: ` + long(64) + `}}}`}, "a label key has at most 317 characters, a value at most 63",
	},
	{"spec.nodeSelector.matchExpressions maxItems", []string{expressions(many(16, "{key: k#, operator: Exists}"))}, []string{expressions(many(17, "{key: k#, operator: Exists}"))}, "matchExpressions: Too many: 17"},
	{
		"spec.nodeSelector.matchExpressions[] rule",
		[]string{expressions(`{key: k, operator: In, values: [a]}, {key: k, operator: NotIn, values: [b]}, {key: k, operator: Exists}, {key: k, operator: DoesNotExist, values: []}`)},
		[]string{expressions(`{key: k, operator: In}`), expressions(`{key: k, operator: NotIn, values: []}`), expressions(`{key: k, operator: Exists, values: [a]}`), expressions(`{key: k, operator: DoesNotExist, values: [a]}`)},
		"operators In and NotIn need values; Exists and DoesNotExist take none",
	},
	{"spec.nodeSelector.matchExpressions[].key required", nil, []string{expressions(`{operator: Exists}`)}, "key: Required value"},
	{"spec.nodeSelector.matchExpressions[].key minLength", []string{expressions(`{key: k, operator: Exists}`)}, []string{expressions(`{key: "", operator: Exists}`)}, "should be at least 1 chars long"},
	{"spec.nodeSelector.matchExpressions[].key maxLength", []string{expressions(`{key: ` + longKey(317) + `, operator: Exists}`)}, []string{expressions(`{key: ` + longKey(318) + `, operator: Exists}`)}, "key: Too long"},
	{"spec.nodeSelector.matchExpressions[].operator required", nil, []string{expressions(`{key: k}`)}, "operator: Required value"},
	{"spec.nodeSelector.matchExpressions[].operator enum", nil, []string{expressions(`{key: k, operator: Gt, values: ["1"]}`)}, `supported values: "In", "NotIn", "Exists", "DoesNotExist"`},
	{"spec.nodeSelector.matchExpressions[].values maxItems", []string{expressions(`{key: k, operator: In, values: [` + many(64, "v#") + `]}`)}, []string{expressions(`{key: k, operator: In, values: [` + many(65, "v#") + `]}`)}, "values: Too many: 65"},
	{"spec.nodeSelector.matchExpressions[].values[] maxLength", []string{expressions(`{key: k, operator: In, values: [` + long(63) + `]}`)}, []string{expressions(`{key: k, operator: In, values: [` + long(64) + `]}`)}, "values[0]: Too long"},
}, durationBounds("for"), durationBounds("recoverAfter"), durationBounds("staleAfter"), durationBounds("evictAfter"))

// longKey is a valid label or taint key: up to 317 characters are a DNS name of 253, a slash and a name of 63.
func longKey(n int) string {
	label := long(61) + "."
	return strings.Repeat(label, 4) + long(253-4*len(label)) + "/" + long(n-254)
}

func expressions(list string) string { return `{nodeSelector: {matchExpressions: [` + list + `]}}` }

func durationBounds(field string) []bound {
	value := func(texts ...string) (values []string) {
		for _, text := range texts {
			values = append(values, fmt.Sprintf("{%s: %q}", field, text))
		}
		return values
	}
	path := "spec." + field
	return []bound{
		{path + " rule 1", value("90s", "5m", "1h30m", "1.5h", "2500ms"), value("", "5", "5 minutes", "-5m", "5d", "1us", "m", "5m ", "1x5m"), "write a duration such as 30s, 10m or 1h30m"},
		{path + " maxLength", value(strings.Repeat("0", 30)+"9s", "1m"), value(strings.Repeat("0", 32) + "s"), path + ": Too long: may not be more than 32 bytes"},
		{path + " rule 2", value("8760h"), value("8760h1s", "9000h", "9999999999999h"), "must be at most 8760h"},
	}
}

var statusBounds = []bound{
	{"status.conditions maxItems", []string{`{conditions: [` + many(16, anyCondition) + `]}`}, []string{`{conditions: [` + many(17, anyCondition) + `]}`}, "status.conditions: Too many: 17"},
	{"status.sampleNodes maxItems", []string{`{sampleNodes: [` + many(20, "n#") + `]}`}, []string{`{sampleNodes: [` + many(21, "n#") + `]}`}, "status.sampleNodes: Too many: 21"},
	{"status.taintKeys maxItems", []string{`{taintKeys: [` + many(16, "k#") + `]}`}, []string{`{taintKeys: [` + many(17, "k#") + `]}`}, "status.taintKeys: Too many: 17"},
	{"status.breaker.id required", nil, []string{`{breaker: {openedAt: "2030-01-01T00:00:00Z"}}`}, "status.breaker.id: Required value"},
	{"status.breaker.id maxLength", []string{`{breaker: {openedAt: "2030-01-01T00:00:00Z", id: ` + long(63) + `}}`}, []string{`{breaker: {openedAt: "2030-01-01T00:00:00Z", id: ` + long(64) + `}}`}, "status.breaker.id: Too long"},
	{"status.breaker.openedAt required", nil, []string{`{breaker: {id: a}}`}, "status.breaker.openedAt: Required value"},
}

const anyCondition = `{type: C#, status: "True", reason: R, message: m, lastTransitionTime: "2030-01-01T00:00:00Z"}`

var _ = Describe("The CRD's schema", Label("versions"), func() {
	It("has a case on either side of each of its bounds", func() {
		var stated, tested []string
		schema := embeddedSchema()
		for _, name := range []string{"spec", "status"} {
			property := schema.Properties[name]
			walk(name, &property, func(path string, s *apiextensionsv1.JSONSchemaProps) { stated = append(stated, boundsOf(path, s)...) })
		}
		// What a condition of status looks like is Kubernetes' own metav1.Condition.
		stated = slices.DeleteFunc(stated, func(name string) bool { return strings.HasPrefix(name, "status.conditions[]") })
		for _, b := range slices.Concat(specBounds, statusBounds) {
			tested = append(tested, b.name)
		}
		Expect(tested).To(ConsistOf(stated))
	})

	for _, b := range specBounds {
		It("bounds "+b.name, func(ctx SpecContext) {
			for _, overlay := range b.fits {
				Expect(h.Client.Create(ctx, overlaid(base, overlay), client.DryRunAll)).To(Succeed(), overlay)
			}
			for _, overlay := range b.breaks {
				Expect(h.Client.Create(ctx, overlaid(base, overlay), client.DryRunAll)).To(MatchError(ContainSubstring(b.says)), overlay)
			}
		}, NodeTimeout(specTime))
	}

	It("asks for a spec", func(ctx SpecContext) {
		set := object("bounds", base)
		unstructured.RemoveNestedField(set.Object, "spec")
		Expect(h.Client.Create(ctx, set, client.DryRunAll)).To(MatchError(ContainSubstring("spec: Required value")))
	}, NodeTimeout(specTime))

	It("bounds status", func(ctx SpecContext) {
		create(ctx, "bounds", base)
		Eventually(ctx, conditionOf("bounds", "Ready")).Should(HavePrefix("True"))
		for _, b := range statusBounds {
			for _, overlay := range b.fits {
				Expect(updateStatus(ctx, overlay)).To(Succeed(), overlay)
			}
			for _, overlay := range b.breaks {
				Expect(updateStatus(ctx, overlay)).To(MatchError(ContainSubstring(b.says)), overlay)
			}
		}
	}, NodeTimeout(specTime))
})

// boundsOf names the bounds that a schema states for a path; what is required is named after the field that is.
func boundsOf(path string, s *apiextensionsv1.JSONSchemaProps) []string {
	var names []string
	for keyword, stated := range map[string]bool{
		"minLength": s.MinLength != nil, "maxLength": s.MaxLength != nil, "pattern": s.Pattern != "", "enum": len(s.Enum) > 0,
		"minItems": s.MinItems != nil, "maxItems": s.MaxItems != nil, "minProperties": s.MinProperties != nil, "maxProperties": s.MaxProperties != nil,
		"minimum": s.Minimum != nil, "maximum": s.Maximum != nil, "rule": len(s.XValidations) == 1,
	} {
		if stated {
			names = append(names, path+" "+keyword)
		}
	}
	if len(s.XValidations) > 1 { // numbered, because each has a message of its own
		for i := range s.XValidations {
			names = append(names, fmt.Sprintf("%s rule %d", path, i+1))
		}
	}
	for _, field := range s.Required {
		names = append(names, path+"."+field+" required")
	}
	return names
}

// overlaid is a set whose spec is changed in the fields of a YAML mapping; null takes one away.
func overlaid(spec, overlay string) *unstructured.Unstructured {
	GinkgoHelper()
	set := object("bounds", spec)
	fields := set.Object["spec"].(map[string]any)
	maps.Copy(fields, object("overlay", overlay).Object["spec"].(map[string]any))
	for name, value := range fields {
		if value == nil {
			delete(fields, name)
		}
	}
	return set
}

func updateStatus(ctx context.Context, overlay string) error {
	set, err := get(ctx, "bounds")
	if err != nil {
		return err
	}
	set.Object["status"] = object("overlay", overlay).Object["spec"]
	return h.Client.Status().Update(ctx, set, client.DryRunAll)
}
