package registration

import (
	"slices"
	"testing"
)

// over is a registration on a kind with one check.
func over(t *testing.T, name, kind, more, check string) *Registration {
	t.Helper()
	r := read(t, "target: {apiVersion: e.org/v1, kind: "+kind+"}\n"+more+"checks: ["+check+"]")
	r.Name = name
	return r
}

func byStatus(kind string) string {
	return "{name: a, conditionType: X, object: {apiVersion: e.org/v1, kind: " + kind + ", name: \"'o'\"}, evaluate: {status: {}}}"
}

func byCEL(kind, healthy string) string {
	return "{name: a, conditionType: X, object: {apiVersion: e.org/v1, kind: " + kind + ", name: \"'o'\"}, evaluate: {cel: {healthy: \"" + healthy + "\"}}}"
}

func where(kind, where string) string {
	return "{name: a, conditionType: X, object: {apiVersion: e.org/v1, kind: " + kind + ", selector: {}, where: \"" + where + "\"}, evaluate: {cel: {healthy: object.spec.x > 0}}}"
}

func TestCycles(t *testing.T) {
	for name, c := range map[string]struct {
		check  string
		others []*Registration
		want   []string
	}{
		"none":                      {byStatus("B"), []*Registration{over(t, "b", "B", "", byStatus("C"))}, nil},
		"itself":                    {byStatus("A"), nil, []string{"A → A"}},
		"by another":                {byStatus("B"), []*Registration{over(t, "b", "B", "", byStatus("A"))}, []string{"A → B → A"}},
		"by two, the shortest":      {byStatus("B"), []*Registration{over(t, "b", "B", "", byStatus("C")), over(t, "c", "C", "", byStatus("A")), over(t, "d", "C", "", byStatus("B"))}, []string{"A → B → C → A"}},
		"a ring beside it":          {byStatus("B"), []*Registration{over(t, "b", "B", "", byStatus("C")), over(t, "c", "C", "", byStatus("B"))}, nil},
		"by one that observes":      {byStatus("B"), []*Registration{over(t, "b", "B", "mode: Observe\n", byStatus("A"))}, nil},
		"by one that writes none":   {byStatus("B"), []*Registration{over(t, "b", "B", "output: RegistrationOnly\n", byStatus("A"))}, nil},
		"CEL over conditions":       {byCEL("B", "object.status.conditions.exists(c, c.type == 'X')"), []*Registration{over(t, "b", "B", "", byStatus("A"))}, []string{"A → B → A"}},
		"CEL over the whole status": {byCEL("B", "size(object.status) > 0"), []*Registration{over(t, "b", "B", "", byStatus("A"))}, []string{"A → B → A"}},
		"a choice by conditions":    {where("B", "object.status.conditions.exists(c, c.type == 'X')"), []*Registration{over(t, "b", "B", "", byStatus("A"))}, []string{"A → B → A"}},
		"a choice by its spec":      {where("B", "object.spec.x > 0"), []*Registration{over(t, "b", "B", "", byStatus("A"))}, nil},
		"CEL over something else":   {byCEL("B", "object.status.phase == 'Up' && object.spec.x > 0"), []*Registration{over(t, "b", "B", "", byStatus("A"))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if got := over(t, "a", "A", "", c.check).Cycles(c.others); !slices.Equal(got, c.want) {
				t.Errorf("cycles are %q, not %q", got, c.want)
			}
		})
	}
	if got := over(t, "a", "A", "output: RegistrationOnly\n", byStatus("A")).Cycles(nil); len(got) > 0 {
		t.Errorf("what writes no condition is in a ring: %q", got)
	}
}

func TestOtherShapes(t *testing.T) {
	gardener := over(t, "g", "A", "output: Gardener\n", byStatus("B"))
	typed := read(t, "target: {apiVersion: e.org/v1, kind: A, type: aws}\noutput: Gardener\nchecks: ["+byStatus("B")+"]")
	for name, c := range map[string]struct {
		of   *Registration
		want []string
	}{
		"another":            {over(t, "c", "A", "output: Conditions\n", byStatus("B")), []string{"X (g: Gardener)"}},
		"the same":           {over(t, "c", "A", "output: Gardener\n", byStatus("B")), nil},
		"that of the kind":   {over(t, "c", "A", "", byStatus("B")), nil},
		"of another kind":    {over(t, "c", "C", "output: Conditions\n", byStatus("B")), nil},
		"of no object":       {over(t, "c", "A", "output: RegistrationOnly\n", byStatus("B")), nil},
		"of another's types": {read(t, "target: {apiVersion: e.org/v1, kind: A, type: azure}\noutput: Conditions\nchecks: ["+byStatus("B")+"]"), []string{"X (g: Gardener)"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.of.OtherShapes([]*Registration{gardener, typed}); len(c.want) > 0 && !slices.Contains(got, c.want[0]) || len(c.want) == 0 && len(got) > 0 {
				t.Errorf("other shapes are %q, not %q", got, c.want)
			}
		})
	}
	azure := read(t, "target: {apiVersion: e.org/v1, kind: A, type: azure}\noutput: Conditions\nchecks: ["+byStatus("B")+"]")
	if got := azure.OtherShapes([]*Registration{typed}); len(got) > 0 {
		t.Errorf("what no object is both is told: %q", got)
	}
}

func TestWhatAnExpressionReads(t *testing.T) {
	for text, want := range map[string][]string{
		"target.spec.pools.map(p, p.minimum).sum() > 1":            {"target.spec.pools"},
		"has(target.spec.x) && target.spec['y'].z == 1":            {"target.spec.x", "target.spec.y.z"},
		"size(target.status.?conditions2.orValue([])) > 0":         {"target.status.conditions2"},
		"target.metadata.labels.all(k, k != target.metadata.name)": {"target.metadata.labels", "target.metadata.name"},
		"target.spec == null || target.spec.a == 1":                {"target.spec", "target.spec.a"},
		"target.spec.list[size(target.spec.other)] == 1 || 1 > 2":  {"target.spec.list", "target.spec.other"},
	} {
		t.Run(text, func(t *testing.T) {
			r := read(t, "suspendWhen: \""+text+"\"\n"+one(byStatus("B")))
			var got []string
			for _, path := range r.suspended.reads {
				joined := path[0]
				for _, field := range path[1:] {
					joined += "." + field
				}
				got = append(got, joined)
			}
			if !slices.Equal(got, want) {
				t.Errorf("it reads %q, not %q", got, want)
			}
		})
	}
}
