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

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

// churn is three sets, two of which share a key, and nodes whose conditions keep flipping.
type churn struct {
	name, shared, own string
	nodes             []string
	random            *rand.Rand
	stop              func()
}

// Conditions of the sets.
func (c *churn) worn() corev1.NodeConditionType   { return corev1.NodeConditionType(c.name + "Worn") }
func (c *churn) broken() corev1.NodeConditionType { return corev1.NodeConditionType(c.name + "Broken") }
func (c *churn) dead() corev1.NodeConditionType   { return corev1.NodeConditionType(c.name + "Dead") }

// seeded gives a random source by Ginkgo's seed, which it prints.
func seeded() *rand.Rand { return rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0)) }

// startChurn begins to flip conditions; requests may fail, for that is what the specs are about.
func startChurn(ctx context.Context, name string) *churn {
	GinkgoHelper()
	c := &churn{name: name, shared: w.Key("shared"), own: w.Key("own"), random: seeded()}
	c.nodes = w.AddNodesInOwnZones(ctx, 8, strings.ToLower(name))
	w.Create(ctx, fixture.NewSet("churn-prefer", c.shared, prefer, c.worn()))
	w.Create(ctx, fixture.NewSet("churn-repel", c.shared, repel, c.broken()))
	w.Create(ctx, fixture.NewSet("churn-evict", c.own, evict, c.dead()))

	flipping, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for i, condition := range []corev1.NodeConditionType{c.worn(), c.broken(), c.dead()} {
		random := rand.New(rand.NewPCG(c.random.Uint64(), uint64(i)))
		running.Go(func() {
			for flipping.Err() == nil {
				status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[random.IntN(2)]
				_ = w.SetCondition(flipping, c.nodes[random.IntN(len(c.nodes))], condition, status, cluster.ConditionOptions{})
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
		for condition, is := range map[corev1.NodeConditionType]bool{c.worn(): worn, c.broken(): broken, c.dead(): dead} {
			status := corev1.ConditionFalse
			if is {
				status = corev1.ConditionTrue
			}
			w.Report(ctx, node, condition, status)
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
