package health_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

type nodeOption func(*corev1.Node)

func node(name string, options ...nodeOption) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(start)}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: "True", LastTransitionTime: metav1.NewTime(start.Add(20 * time.Second))}}
	for _, o := range options {
		o(n)
	}
	return n
}

func notReadySince(after time.Duration) nodeOption {
	return func(n *corev1.Node) {
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = "False", metav1.NewTime(start.Add(after))
	}
}

func silent(n *corev1.Node) {
	n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = "Unknown", metav1.NewTime(start.Add(time.Hour))
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func unschedulable(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"}}
}

func tainted(key string) nodeOption {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: "NoSchedule"})
	}
}

func terminating(status corev1.ConditionStatus) nodeOption {
	return func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Terminating", Status: status})
	}
}

func leaving(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: start} }

func unmanaged(value string) nodeOption {
	return func(n *corev1.Node) {
		n.Annotations = map[string]string{"node.machine.sapcloud.io/not-managed-by-mcm": value}
	}
}

func bare(n *corev1.Node) { n.Status.Conditions = nil }

// ten are ten nodes, of which the first so many are Ready, and the others like this.
func ten(ready int, others nodeOption) (nodes []*corev1.Node) {
	for i := range 10 {
		var options []nodeOption
		if i >= ready {
			options = append(options, others)
		}
		nodes = append(nodes, node(string(rune('a'+i)), options...))
	}
	return nodes
}

func TestNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes  []*corev1.Node
		least  int
		want   health.Status
		detail string
	}{
		"enough":                          {[]*corev1.Node{node("a"), node("b")}, 2, "True", ""},
		"more than enough":                {[]*corev1.Node{node("a"), node("b"), node("c")}, 2, "True", ""},
		"none are needed":                 {nil, 0, "True", ""},
		"all but one of ten don't report": {ten(1, silent), 1, "False", "1 of at least 1 nodes are available; not ready: b, c, d, e, f and 4 more"},
		"one of ten broke, and one does":  {ten(9, notReadySince(time.Hour)), 1, "False", "9 of at least 1 nodes are available; not ready: j"},
		"all but one of ten start":        {ten(1, notReadySince(0)), 1, "Progressing", "1 of at least 1 nodes are available; starting: b, c, d, e, f and 4 more"},
		"all but one of ten are removed":  {ten(1, leaving), 1, "True", ""},
		"one broke":                       {[]*corev1.Node{node("a"), node("b", notReadySince(time.Hour))}, 2, "False", "1 of at least 2 nodes are available; not ready: b"},
		"one doesn't report":              {[]*corev1.Node{node("a"), node("b", silent)}, 2, "False", "1 of at least 2 nodes are available; not ready: b"},
		"one too many broke":              {[]*corev1.Node{node("a"), node("b"), node("c", silent)}, 2, "False", "2 of at least 2 nodes are available; not ready: c"},
		"one is cordoned":                 {[]*corev1.Node{node("a"), node("b", cordoned)}, 2, "Progressing", "1 of at least 2 nodes are available; cordoned: b"},
		"one too many is cordoned":        {[]*corev1.Node{node("a"), node("b", cordoned)}, 1, "True", ""},
		"one has the taint alone":         {[]*corev1.Node{node("a"), node("b", unschedulable)}, 2, "Progressing", "1 of at least 2 nodes are available; cordoned: b"},
		"one is cordoned, one missing":    {[]*corev1.Node{node("a"), node("b", cordoned)}, 3, "Progressing", "1 of at least 3 nodes are available; cordoned: b; not registered: 1"},
		"one is cordoned and broke":       {[]*corev1.Node{node("a"), node("b", cordoned, silent)}, 1, "False", "1 of at least 1 nodes are available; not ready: b"},
		"one is drained to go":            {[]*corev1.Node{node("a"), node("b", cordoned, terminating("True"))}, 2, "Progressing", "1 of at least 2 nodes are available; being removed: b; not registered: 1"},
		"one went on after all":           {[]*corev1.Node{node("a"), node("b", terminating("False"))}, 2, "True", ""},
		"one is scaled down":              {[]*corev1.Node{node("a"), node("b", tainted("ToBeDeletedByClusterAutoscaler"))}, 2, "Progressing", "1 of at least 2 nodes are available; being removed: b; not registered: 1"},
		"one is disrupted":                {[]*corev1.Node{node("a"), node("b", silent, tainted("karpenter.sh/disrupted"))}, 2, "Progressing", "1 of at least 2 nodes are available; being removed: b; not registered: 1"},
		"one is tainted otherwise":        {[]*corev1.Node{node("a"), node("b", tainted("example.org/gpu"))}, 2, "True", ""},
		"one is missing":                  {[]*corev1.Node{node("a")}, 2, "Progressing", "1 of at least 2 nodes are available; not registered: 1"},
		"one is missing, one broke":       {[]*corev1.Node{node("a", silent)}, 2, "False", "0 of at least 2 nodes are available; not ready: a; not registered: 1"},
		"one leaves":                      {[]*corev1.Node{node("a"), node("b", leaving)}, 2, "Progressing", "1 of at least 2 nodes are available; being removed: b; not registered: 1"},
		"one leaves that isn't needed":    {[]*corev1.Node{node("a"), node("b", leaving, silent)}, 1, "True", ""},
		"one joins":                       {[]*corev1.Node{node("a"), node("b", notReadySince(0))}, 2, "Progressing", "1 of at least 2 nodes are available; starting: b"},
		"one has no condition yet":        {[]*corev1.Node{node("a"), node("b", bare)}, 2, "Progressing", "1 of at least 2 nodes are available; starting: b"},
		"one too many joins":              {[]*corev1.Node{node("a"), node("b", bare)}, 1, "Progressing", "1 of at least 1 nodes are available; starting: b"},
		"many broke":                      {ten(4, silent), 10, "False", "4 of at least 10 nodes are available; not ready: e, f, g, h, i and 1 more"},
		"one joins, one is cordoned":      {[]*corev1.Node{node("a", notReadySince(0)), node("b", cordoned)}, 2, "Progressing", "0 of at least 2 nodes are available; cordoned: b; starting: a"},
		"an unmanaged one broke":          {[]*corev1.Node{node("a"), node("b", silent, unmanaged("1"))}, 1, "True", ""},
		"an unmanaged one is there":       {[]*corev1.Node{node("a"), node("b", unmanaged("1"))}, 2, "Progressing", "1 of at least 2 nodes are available; not registered: 1"},
		"one is managed after all":        {[]*corev1.Node{node("a"), node("b", silent, unmanaged("0"))}, 1, "False", "1 of at least 1 nodes are available; not ready: b"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := health.Nodes(tt.nodes, tt.least); r.Status != tt.want || r.Detail != tt.detail {
				t.Errorf("%s %q", r.Status, r.Detail)
			}
			for _, n := range tt.nodes {
				health.TrimNode(n)
			}
			if r := health.Nodes(tt.nodes, tt.least); r.Status != tt.want || r.Detail != tt.detail {
				t.Errorf("of what is kept of them: %s %q", r.Status, r.Detail)
			}
		})
	}
}
