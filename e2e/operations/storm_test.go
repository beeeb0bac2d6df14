package operations

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
)

// storm is sick nodes that sets are about or aren't, which flips all the time, and sets that taint, untaint and evict for it.
type storm struct {
	broken, dead        corev1.NodeConditionType
	repelKey, evictKey  string
	repelling, evicting string
	nodes               []string
	stop                func()
}

// startStorm begins to flip; it ends with the spec, or by stop.
func startStorm(ctx context.Context, name string) *storm {
	GinkgoHelper()
	lower := strings.ToLower(name)
	s := &storm{
		broken: corev1.NodeConditionType(name + "Broken"), dead: corev1.NodeConditionType(name + "Dead"),
		repelKey: w.Key(lower), evictKey: w.Key(lower), repelling: lower + "-repel", evicting: lower + "-evict",
	}
	s.nodes = w.AddNodesInOwnZones(ctx, 8, lower)
	for condition, set := range map[corev1.NodeConditionType]*v1alpha1.ConditionSet{
		s.broken: fixture.NewSet(s.repelling, s.repelKey, repel, s.broken), s.dead: fixture.NewSet(s.evicting, s.evictKey, evict, s.dead),
	} {
		set.Spec.NodeSelector = fixture.Without(string(condition))
		w.Create(ctx, set)
		for _, node := range s.nodes {
			w.Report(ctx, node, condition, corev1.ConditionTrue)
		}
	}
	flipping, end := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	for i, condition := range []corev1.NodeConditionType{s.broken, s.dead} {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), uint64(i)))
		running.Go(func() {
			for flipping.Err() == nil {
				// not the condition, which would be damped as flapping: whether the set is about the node
				_ = w.Label(flipping, s.nodes[random.IntN(len(s.nodes))], string(condition), []string{"", "no"}[random.IntN(2)])
			}
		})
	}
	s.stop = sync.OnceFunc(func() {
		end()
		running.Wait()
	})
	DeferCleanup(s.stop)
	return s
}

// taints are what the storm's sets did to its nodes, as it is now.
func (s *storm) taints(ctx context.Context) map[string][2]corev1.TaintEffect {
	GinkgoHelper()
	all := map[string][2]corev1.TaintEffect{}
	for _, name := range s.nodes {
		node := w.Node(ctx, name)
		all[name] = [2]corev1.TaintEffect{fixture.EffectOn(node, s.repelKey), fixture.EffectOn(node, s.evictKey)}
	}
	return all
}

// blows waits until the storm has taints come and go.
func (s *storm) blows(ctx context.Context) {
	GinkgoHelper()
	for range 3 {
		was := s.taints(ctx)
		Eventually(func() any { return s.taints(ctx) }).WithTimeout(10 * time.Second).ShouldNot(Equal(was))
	}
}
