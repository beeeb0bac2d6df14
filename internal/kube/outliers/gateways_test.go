package outliers

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func described(name string, labels, annotations map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"namespace": "edge", "name": name, "uid": "uid-of-" + name, "labels": labels, "annotations": annotations}}
}

func TestGatewaysAreThoseThatMayBePatchedAndThoseThatAre(t *testing.T) {
	g := NewWithT(t)
	all := Gateways{UIDs: map[types.NamespacedName]types.UID{}}
	record := map[string]any{"autohealer.resourcestack.com/patched-for": "{}"}
	g.Expect(all.addPatchPolicy(described("autohealer.patched", nil, record))).To(Succeed())
	g.Expect(all.addPatchPolicy(described("autohealer.gone", nil, record))).To(Succeed())
	g.Expect(all.addPatchPolicy(described("autohealer.foreign", nil, nil))).To(Succeed())
	g.Expect(all.addPatchPolicy(described("copied", nil, record))).To(Succeed())
	for name, labels := range map[string]map[string]any{
		"labeled": {"autohealer.resourcestack.com/envoy-patches": "true"}, "patched": nil, "foreign": nil, "copied": nil, "other": {"autohealer.resourcestack.com/envoy-patches": "no"},
	} {
		g.Expect(all.addGateway(described(name, labels, nil))).To(Succeed())
	}
	at := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "edge", Name: name} }
	g.Expect(all.UIDs).To(Equal(map[types.NamespacedName]types.UID{at("labeled"): "uid-of-labeled", at("patched"): "uid-of-patched", at("gone"): ""}))
	g.Expect(all.Objects.Gateways).To(ConsistOf(HaveField("NamespacedName", at("labeled"))), "which alone may have something new")
}
