package condition_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// cluster is what an API server does to nodes: it counts versions and refuses a patch whose tests fail.
type cluster struct {
	nodes map[string]*corev1.Node
	rv    int
}

var errMismatch = errors.New("the node isn't what the patch tests")

func newCluster(nodes ...*corev1.Node) *cluster {
	c := &cluster{nodes: map[string]*corev1.Node{}, rv: 100}
	for _, n := range nodes {
		c.put(n)
	}
	return c
}

// put stores a node and gives what a watch would show.
func (c *cluster) put(n *corev1.Node) *corev1.Node {
	c.rv++
	stored := n.DeepCopy()
	stored.ResourceVersion = strconv.Itoa(c.rv)
	c.nodes[n.Name] = stored
	return stored
}

// update changes a node in place, as kubelets and people do.
func (c *cluster) update(name string, options ...nodeOption) *corev1.Node {
	n := c.nodes[name].DeepCopy()
	for _, o := range options {
		o(n)
	}
	return c.put(n)
}

// patch carries out a plan against the node as it is now.
func (c *cluster) patch(plan condition.Plan) (*corev1.Node, error) {
	n, ok := c.nodes[plan.Node.Name]
	if !ok || n.UID != plan.Node.UID || !equality.Semantic.DeepEqual(n.Spec.Taints, plan.Node.Taints) {
		return nil, errMismatch
	}
	before, had := plan.Node.Record()
	if record, has := n.Annotations[recordAnnotation]; has != had || record != before {
		return nil, errMismatch
	}
	after := n.DeepCopy()
	after.Spec.Taints = plan.Taints
	delete(after.Annotations, recordAnnotation)
	if text := plan.Owned.String(); text != "" {
		after.Annotations[recordAnnotation] = text
	}
	return c.put(after), nil
}

// calm are limits without a breaker, where it isn't what a test is about.
func calm(tainted, evicting string) limit.Limits {
	l := limit.Builtin()
	l.MaxTaintedNodes, l.MaxEvictingNodes = limit.CapOf(intOrPercent(tainted)), limit.CapOf(intOrPercent(evicting))
	l.BreakerMin = 1 << 30
	return l
}

// workers are n nodes w00, w01, …, each with these options.
func workers(n int, options ...nodeOption) []*corev1.Node {
	var nodes []*corev1.Node
	for i := range n {
		nodes = append(nodes, newNode(fmt.Sprintf("w%02d", i), options...))
	}
	return nodes
}

// manager is a fleet together with the cluster that it acts on, at a moment.
type manager struct {
	t     testing.TB
	fleet *condition.Fleet
	api   *cluster
	now   time.Time
}

// manage starts a fleet over nodes, with these sets active.
func manage(t testing.TB, limits limit.Limits, nodes []*corev1.Node, sets ...*condition.Set) *manager {
	m := &manager{t: t, fleet: condition.NewFleet(limits), api: newCluster(nodes...), now: noon}
	for _, n := range m.api.nodes {
		m.fleet.ObserveNode(n, moment(noon))
	}
	for _, s := range sets {
		m.fleet.ObserveSet(s, lifecycle.Active, nil, "", moment(noon))
	}
	m.fleet.MarkSynced(moment(noon))
	return m
}

// see changes a node and shows it to the fleet.
func (m *manager) see(name string, options ...nodeOption) (changed bool) {
	return m.fleet.ObserveNode(m.api.update(name, options...), moment(m.now))
}

// woken are the nodes that an act lets go on.
func (m *manager) woken(act func()) []string {
	m.fleet.DrainRequeues()
	act()
	return m.fleet.DrainRequeues()
}

// decide plans a node with evidence of no system pods.
func (m *manager) decide(name string) (condition.Plan, condition.Next) {
	return m.fleet.Decide(name, moment(m.now), &condition.Evidence{})
}

// settle plans a node, writes, and lets the fleet see the write. It says whether something was written.
func (m *manager) settle(name string) (wrote bool) {
	m.t.Helper()
	plan, next := m.decide(name)
	if next != condition.Write {
		return false
	}
	n, err := m.api.patch(plan)
	if err != nil {
		m.t.Fatalf("write %s: %v", name, err)
	}
	m.fleet.Written(name, n.ResourceVersion)
	m.fleet.ObserveNode(n, moment(m.now))
	return true
}

// tainted names the nodes that carry the key.
func (m *manager) tainted(key string) []string {
	var names []string
	for _, name := range m.fleet.Nodes() {
		for _, t := range m.api.nodes[name].Spec.Taints {
			if t.Key == key {
				names = append(names, name)
			}
		}
	}
	return names
}
