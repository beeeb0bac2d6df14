package conditionset

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

var _ = Describe("A taint of somebody else", func() {
	It("is never lost in thousands of concurrent writes", func(ctx SpecContext) {
		const writesEach = 300
		key := w.Key("foreign")
		nodes := w.AddNodes(ctx, 8, cluster.NodeOptions{Prefix: "foreign"})
		set := fixture.NewSet("beside-foreign", key, repel, "ForeignBroken")
		set.Spec.NodeSelector = fixture.Without("beside")
		w.Create(ctx, set)
		for _, node := range nodes {
			w.Report(ctx, node, "ForeignBroken", corev1.ConditionTrue)
		}
		history := w.Remember(ctx)

		var foreign []*tainter
		var tainting sync.WaitGroup
		for _, node := range nodes {
			t := &tainter{node: node, key: "foreign.example.com/" + node}
			foreign = append(foreign, t)
			tainting.Go(func() {
				defer GinkgoRecover()
				t.run(ctx, writesEach)
			})
		}
		var over atomic.Bool
		var flipping sync.WaitGroup
		flipping.Go(func() {
			defer GinkgoRecover()
			for n := 0; !over.Load(); n++ {
				// not its condition, which would be damped as flapping
				Expect(w.Label(ctx, nodes[n%len(nodes)], "beside", []string{"", "no"}[n/len(nodes)%2])).To(Succeed())
			}
		})
		tainting.Wait()
		over.Store(true)
		flipping.Wait()

		acts, conflicts := len(w.Acts("beside-foreign")), 0
		for _, t := range foreign {
			conflicts += t.conflicts
		}
		GinkgoWriter.Printf("%d foreign writes, %d of them again after a conflict, beside %d acts\n", len(foreign)*writesEach, conflicts, acts)
		Expect(acts).To(BeNumerically(">", 50), "there should have been a race")
		for _, t := range foreign {
			t.expectNothingLost(history.Of(ctx, t.node))
		}
		for _, node := range nodes {
			Expect(w.Label(ctx, node, "beside", "")).To(Succeed())
		}
		for _, node := range nodes {
			Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel))
		}
		for _, t := range foreign {
			t.expectNothingLost(history.Of(ctx, t.node))
		}
	})

	It("isn't stripped by a forged record", func(ctx SpecContext) {
		key := w.Key("forged")
		node := w.AddNodes(ctx, 1, cluster.NodeOptions{Prefix: "forged"})[0]
		set := w.Create(ctx, fixture.NewSet("forged", key, repel, "ForgedBroken"))
		foreign := []corev1.Taint{
			{Key: "foreign.example.com/forged", Effect: corev1.TaintEffectNoSchedule},
			{Key: "foreign.example.com/of-nobody", Effect: corev1.TaintEffectNoSchedule},
			{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule},
			{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoSchedule},
		}
		w.Change(ctx, node, func(n *corev1.Node) { n.Spec.Taints = foreign })
		history := w.Remember(ctx)

		By("asking who may write the record: not who merely may write nodes")
		claims := forgery(set, foreign)
		for _, resource := range []string{"", "status"} {
			Expect(annotateAs(ctx, "node-writer", resource, node, claims)).To(MatchError(ContainSubstring("only Autohealer changes the annotation")))
		}

		By("forging it with all rights")
		Expect(annotateAs(ctx, "", "", node, claims)).To(Succeed())
		w.Report(ctx, node, "ForgedBroken", corev1.ConditionTrue)
		Eventually(w.Effect(ctx, node, key)).Should(BeEquivalentTo(repel))
		w.Report(ctx, node, "ForgedBroken", corev1.ConditionFalse)
		Eventually(w.Effect(ctx, node, key)).Should(BeEmpty())
		w.Discard(ctx, set)
		for _, revision := range history.Of(ctx, node) {
			for _, taint := range foreign {
				Expect(revision.Spec.Taints).To(ContainElement(taint), "version %s", revision.ResourceVersion)
			}
		}
	})
})

// forgery claims taints for a set that exists, and one of them for a set that never did.
func forgery(set *v1alpha1.ConditionSet, taints []corev1.Taint) string {
	GinkgoHelper()
	var record fixture.Record
	for _, taint := range taints {
		claim := fixture.Claim{Key: taint.Key, Effect: taint.Effect, Set: set.UID, Name: set.Name, Generation: 1, Since: metav1.Now()}
		if taint.Key == "foreign.example.com/of-nobody" {
			claim.Set, claim.Name = "ffffffff-ffff-4fff-8fff-ffffffffffff", "nobody"
		}
		record.Taints = append(record.Taints, claim)
	}
	text, err := json.Marshal(record)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// annotateAs writes a node's record as somebody who may patch nodes and no more, or as the admin ("").
func annotateAs(ctx context.Context, user, subresource, node, record string) error {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{fixture.RecordAnnotation: record}}})
	Expect(err).NotTo(HaveOccurred())
	args := []string{"patch", "node", node, "--type=merge", "-p", string(patch)}
	if subresource != "" {
		args = append(args, "--subresource="+subresource)
	}
	if user != "" {
		mayPatchNodes(ctx, user)
		args = append(args, "--as="+user)
	}
	_, err = w.Kubectl(ctx, args...)
	return err
}

func mayPatchNodes(ctx context.Context, user string) {
	GinkgoHelper()
	_, err := w.Apply(ctx, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: `+user+`}
rules: [{apiGroups: [""], resources: [nodes, nodes/status], verbs: [get, patch, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: `+user+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: `+user+`}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: `+user+`}]
`)
	Expect(err).NotTo(HaveOccurred())
}

// tainter adds and removes one taint of its own with a proper read-modify-write, as any well-behaved controller does.
type tainter struct {
	node, key string
	conflicts int
	// believes says from which version on the taint is there, or isn't.
	believes []belief
}

type belief struct {
	version uint64
	there   bool
}

func (t *tainter) run(ctx context.Context, writes int) {
	for n := range writes {
		wanted := n%2 == 0 || n == writes-1 // it is there in the end
		for !t.write(ctx, wanted) {
			t.conflicts++
		}
	}
}

func (t *tainter) write(ctx context.Context, wanted bool) bool {
	var node corev1.Node
	Expect(w.Client.Get(ctx, types.NamespacedName{Name: t.node}, &node)).To(Succeed())
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == t.key })
	if wanted {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: t.key, Effect: corev1.TaintEffectPreferNoSchedule})
	}
	err := w.Client.Update(ctx, &node)
	if apierrors.IsConflict(err) {
		return false
	}
	Expect(err).NotTo(HaveOccurred())
	t.believes = append(t.believes, belief{fixture.Version(&node), wanted})
	return true
}

// expectNothingLost compares what the tainter believes with every revision of its node.
func (t *tainter) expectNothingLost(revisions []*corev1.Node) {
	GinkgoHelper()
	for _, revision := range revisions {
		i, exact := slices.BinarySearchFunc(t.believes, fixture.Version(revision), func(b belief, version uint64) int {
			return int(int64(b.version) - int64(version))
		})
		if !exact {
			i--
		}
		if i < 0 {
			continue // before its first write
		}
		if there := fixture.EffectOn(revision, t.key) != none; there != t.believes[i].there {
			Fail(fmt.Sprintf("at version %s of node %s, taint %s is there: %t; its owner wrote %t at version %d",
				revision.ResourceVersion, t.node, t.key, there, t.believes[i].there, t.believes[i].version))
		}
	}
	last := t.believes[len(t.believes)-1]
	Expect(last.there).To(BeTrue())
	Expect(fixture.EffectOn(revisions[len(revisions)-1], t.key)).To(BeEquivalentTo(prefer))
}
