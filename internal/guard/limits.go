package guard

import (
	decl "k8s.io/apiserver/pkg/cel"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// limitsType declares what rules see as limits: those in force, Guardrails' included. A cap is a share and a number, of
// which both hold; one that nobody set is 100 percent, and 2147483647 nodes.
func limitsType() *decl.DeclType {
	whole := func(name string) *decl.DeclField { return decl.NewDeclField(name, decl.IntType, true, nil, nil) }
	capType := decl.NewObjectType("Cap", map[string]*decl.DeclField{"percent": whole("percent"), "nodes": whole("nodes")})
	return decl.NewObjectType("Limits", map[string]*decl.DeclField{
		"maxTaintedNodes":          decl.NewDeclField("maxTaintedNodes", capType, true, nil, nil),
		"maxEvictingNodes":         decl.NewDeclField("maxEvictingNodes", capType, true, nil, nil),
		"maxPodDeletionsPerMinute": whole("maxPodDeletionsPerMinute"),
		"maxScaledDownTargets":     decl.NewDeclField("maxScaledDownTargets", capType, true, nil, nil),
		"breakerPercent":           whole("breakerPercent"),
		"breakerMin":               whole("breakerMin"),
	})
}

// limitsValue gives the limits to CEL.
func limitsValue(l limit.Limits) map[string]any {
	return map[string]any{
		"maxTaintedNodes":          capValue(l.MaxTaintedNodes),
		"maxEvictingNodes":         capValue(l.MaxEvictingNodes),
		"maxPodDeletionsPerMinute": int64(l.MaxPodDeletionsPerMinute),
		"maxScaledDownTargets":     capValue(l.MaxScaledDownTargets),
		"breakerPercent":           int64(l.BreakerPercent),
		"breakerMin":               int64(l.BreakerMin),
	}
}

func capValue(c limit.Cap) map[string]any {
	percent, nodes := c.Strictest()
	return map[string]any{"percent": int64(percent), "nodes": int64(nodes)}
}
