package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

// churn is three sets, two of which share a key, and sick nodes that the sets select or don't, which keeps flipping. Flipping conditions would
// be damped.
type churn struct {
	name, shared, own string
	nodes             []string
	random            *rand.Rand
	stop              func()
}

// states that a node may have: for each there is a set that selects by a label of its name, and a condition.
var states = []struct {
	name   string
	effect corev1.TaintEffect
}{{"worn", prefer}, {"broken", repel}, {"dead", evict}}

// seeded gives a random source by Ginkgo's seed, which it prints.
func seeded() *rand.Rand { return rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0)) }

// startChurn begins to flip conditions; requests may fail, for that is what the specs are about.
func startChurn(ctx context.Context, name string) *churn {
	GinkgoHelper()
	c := &churn{name: name, shared: w.Key("shared"), own: w.Key("own"), random: seeded()}
	c.nodes = w.AddNodesInOwnZones(ctx, 8, strings.ToLower(name))
	for _, state := range states {
		key := map[bool]string{true: c.own, false: c.shared}[state.effect == evict]
		set := fixture.NewSet("churn-"+state.name, key, state.effect, corev1.NodeConditionType(name))
		set.Spec.NodeSelector = fixture.Without(state.name)
		w.Create(ctx, set)
	}
	for _, node := range c.nodes {
		w.Report(ctx, node, corev1.NodeConditionType(name), corev1.ConditionTrue)
	}

	flipping, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for i, state := range states {
		random := rand.New(rand.NewPCG(c.random.Uint64(), uint64(i)))
		running.Go(func() {
			for flipping.Err() == nil {
				_ = w.Label(flipping, c.nodes[random.IntN(len(c.nodes))], state.name, []string{"no", ""}[random.IntN(2)])
				pause(flipping, time.Duration(random.IntN(20))*time.Millisecond)
			}
		})
	}
	c.stop = func() {
		end()
		running.Wait()
	}
	DeferCleanup(c.stop)
	return c
}

// expectConvergence ends the churn in a state that is known, and waits until every node is as it must be then.
func (c *churn) expectConvergence(ctx context.Context) {
	GinkgoHelper()
	c.stop()
	wanted := map[string]func(g Gomega, shared, own corev1.TaintEffect){}
	for _, node := range c.nodes {
		worn, broken, dead := c.random.IntN(2) == 1, c.random.IntN(2) == 1, c.random.IntN(2) == 1
		for state, is := range map[string]bool{"worn": worn, "broken": broken, "dead": dead} {
			Expect(w.Label(ctx, node, state, map[bool]string{false: "no"}[is])).To(Succeed())
		}
		highest := none
		if worn {
			highest = prefer
		}
		if broken {
			highest = repel
		}
		what := fmt.Sprintf("node %s, worn: %t, broken: %t, dead: %t", node, worn, broken, dead)
		wanted[node] = func(g Gomega, shared, own corev1.TaintEffect) {
			g.Expect(shared).To(BeEquivalentTo(highest), what)
			if !dead {
				g.Expect(own).To(BeEmpty(), what)
				return
			}
			g.Expect(own).To(BeElementOf(corev1.TaintEffect(repel), corev1.TaintEffect(evict)), what) // the limits of eviction leave both
		}
	}
	Eventually(func(g Gomega) {
		for node, expect := range wanted {
			n := w.Node(ctx, node)
			expect(g, fixture.EffectOn(n, c.shared), fixture.EffectOn(n, c.own))
		}
	}).Should(Succeed())
}
