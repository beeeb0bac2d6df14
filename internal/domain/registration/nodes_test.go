package registration

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// scaled finds these MachineDeployments, and nodes of which so many are Ready and so many broke.
type scaled struct {
	deployments         []*unstructured.Unstructured
	errObjects, errNode error
	ready, broken       int
}

// Objects gives the MachineDeployments.
func (s *scaled) Objects(*Check, Ref) ([]*unstructured.Unstructured, error) {
	return s.deployments, s.errObjects
}

// Resolve leaves it where it is.
func (s *scaled) Resolve(_ *Check, ref Ref) Ref { return ref }

// Nodes gives the nodes.
func (s *scaled) Nodes() ([]*corev1.Node, error) {
	var nodes []*corev1.Node
	for i := range s.ready + s.broken {
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: "True", LastTransitionTime: metav1.NewTime(rollout.Add(time.Hour))}
		if i >= s.ready {
			ready.Status = "False"
		}
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i)), CreationTimestamp: metav1.NewTime(rollout)},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}},
		})
	}
	return nodes, s.errNode
}

// ofMachines is a check of nodes, of which MachineDeployments say how many there are to be.
func ofMachines(nodes, more string) string {
	return "shootKubeconfig: {secretName: s}\n" + one("{name: a, conditionType: X, "+more+"object: {apiVersion: machine.sapcloud.io/v1alpha1, kind: MachineDeployment, selector: {}}, evaluate: {nodes: "+nodes+"}}")
}

const ofReplicas = "{desired: object.spec.replicas}"

func TestNodesAreComparedWithWhatIsDesired(t *testing.T) {
	const (
		six  = "{metadata: {name: six}, spec: {replicas: 6}}"
		four = "{metadata: {name: four}, spec: {replicas: 4}}"
		goes = "{metadata: {name: goes, deletionTimestamp: '2026-03-01T00:00:00Z'}, spec: {replicas: 5}}"
		zero = "{metadata: {name: zero}, spec: {}}"
		text = "{metadata: {name: text}, spec: {replicas: '3'}}"
		less = "{metadata: {name: less}, spec: {replicas: -1}}"
	)
	refused := errors.New("machinedeployments.machine.sapcloud.io is forbidden")
	for name, c := range map[string]struct {
		check       string
		deployments []string
		there       scaled
		status      health.Status
		detail      string
	}{
		"as many as all want together":       {ofMachines(ofReplicas, ""), []string{six, four}, scaled{ready: 10}, "True", ""},
		"more":                               {ofMachines(ofReplicas, ""), []string{six}, scaled{ready: 10}, "True", ""},
		"one of ten":                         {ofMachines(ofReplicas, ""), []string{six, four}, scaled{ready: 1, broken: 9}, "False", "1 of at least 10 nodes are available; not ready: b, c, d, e, f and 4 more"},
		"some haven't come":                  {ofMachines(ofReplicas, ""), []string{six, four}, scaled{ready: 7}, "Progressing", "7 of at least 10 nodes are available; not registered: 3"},
		"what is being deleted wants none":   {ofMachines(ofReplicas, ""), []string{four, goes}, scaled{ready: 4}, "True", ""},
		"all are being deleted":              {ofMachines(ofReplicas, ""), []string{goes}, scaled{}, "Progressing", "every MachineDeployment in namespace shoot--a is being deleted"},
		"a zero that is left out":            {ofMachines("{desired: 'object.spec.?replicas.orValue(0)'}", ""), []string{four, zero}, scaled{ready: 4}, "True", ""},
		"each wants one":                     {ofMachines("{desired: '1'}", ""), []string{six, four}, scaled{ready: 1}, "Progressing", "1 of at least 2 nodes are available; not registered: 1"},
		"by the target":                      {ofMachines("{desired: 'object.spec.replicas + size(target.spec.pools)'}", ""), []string{four}, scaled{ready: 4}, "Progressing", "4 of at least 6 nodes are available; not registered: 2"},
		"the target alone":                   {"shootKubeconfig: {secretName: s}\n" + one("{name: a, conditionType: X, evaluate: {nodes: {min: 'target.spec.pools.map(p, p.minimum).sum()'}}}"), nil, scaled{ready: 2}, "Progressing", "2 of at least 3 nodes are available; not registered: 1"},
		"the target doesn't say how many":    {"shootKubeconfig: {secretName: s}\n" + one("{name: a, conditionType: X, evaluate: {nodes: {min: target.spec.nothing}}}"), nil, scaled{broken: 6}, "Unknown", "evaluate nodes.min: there is no nothing where the expression reads it; let it ask by has() or .? whether there is"},
		"a number":                           {"shootKubeconfig: {secretName: s}\n" + one("{name: a, conditionType: X, evaluate: {nodes: {min: 0}}}"), nil, scaled{ready: 1, broken: 1}, "False", "1 of at least 0 nodes are available; not ready: b"},
		"none is desired, as in hibernation": {ofMachines("{desired: 'object.spec.?replicas.orValue(0)'}", ""), []string{zero}, scaled{errNode: refused}, "True", ""},
		"a number alone, which isn't enough": {"shootKubeconfig: {secretName: s}\n" + one("{name: a, conditionType: X, evaluate: {nodes: {min: 1}}}"), nil, scaled{ready: 1, broken: 9}, "False", "1 of at least 1 nodes are available; not ready: b, c, d, e, f and 4 more"},
		"there is none":                      {ofMachines(ofReplicas, ""), nil, scaled{ready: 9}, "False", "there is no MachineDeployment in namespace shoot--a"},
		"there is none yet":                  {ofMachines(ofReplicas, "onMissing: Progressing, "), nil, scaled{ready: 9}, "Progressing", "there is no MachineDeployment in namespace shoot--a"},
		"one doesn't say how many":           {ofMachines(ofReplicas, ""), []string{six, zero}, scaled{ready: 10}, "Unknown", "evaluate nodes.desired of MachineDeployment zero: there is no replicas where the expression reads it; let it ask by has() or .? whether there is"},
		"one says it in text":                {ofMachines(ofReplicas, ""), []string{six, text}, scaled{ready: 10}, "Unknown", "evaluate nodes.desired of MachineDeployment text: it gave a string, not a int64"},
		"one wants less than none":           {ofMachines(ofReplicas, ""), []string{six, less}, scaled{ready: 10}, "Unknown", "evaluate nodes.desired of MachineDeployment less: it gave -1"},
		"they may not be read":               {ofMachines(ofReplicas, ""), nil, scaled{ready: 10, errObjects: refused}, "Unknown", "read every MachineDeployment in namespace shoot--a: " + refused.Error()},
		"nodes may not be read":              {ofMachines(ofReplicas, ""), []string{four}, scaled{errNode: refused}, "Unknown", refused.Error()},
		"nodes aren't asked for":             {ofMachines(ofReplicas, ""), []string{zero}, scaled{errNode: refused}, "Unknown", "evaluate nodes.desired of MachineDeployment zero: there is no replicas where the expression reads it; let it ask by has() or .? whether there is"},
		"this target has no nodes":           {ofMachines("{desired: object.spec.replicas}", "when: size(target.spec.pools) > 5, "), nil, scaled{broken: 3}, "True", ""},
	} {
		t.Run(name, func(t *testing.T) {
			check := read(t, c.check).Checks[0]
			for _, text := range c.deployments {
				o := object(t, text)
				o.SetGroupVersionKind(check.Kind)
				c.there.deployments = append(c.there.deployments, o)
			}
			got, err := check.Result(object(t, worker), &c.there, rollout)
			if err != nil {
				got = check.Failed(err)
			}
			if got.Status != c.status || got.Detail != c.detail || got.Check != "a" || got.Status == health.Progressing && got.Timeout != 5*time.Minute {
				t.Errorf("it is %s for %s: %q, not %s: %q", got.Status, got.Timeout, got.Detail, c.status, c.detail)
			}
		})
	}
}

func TestTheObjectOfNodesIsReadAsOthersAre(t *testing.T) {
	r := read(t, ofMachines("{desired: object.spec.replicas}", ""))
	if kinds := r.Kinds(); !slices.Contains(kinds, r.Checks[0].Kind) {
		t.Errorf("it isn't among %s", kinds)
	}
	f := Fields{}
	if f.Add(r); !f[r.Checks[0].Kind].Has("spec.replicas") {
		t.Errorf("of it %v is kept", f)
	}
	if at := r.Checks[0].at(object(t, worker), &scaled{}); at != "the nodes in the shoot and every MachineDeployment in namespace shoot--a" {
		t.Errorf("it is at %q", at)
	}
	alone := read(t, "shootKubeconfig: {secretName: s}\n"+one("{name: a, conditionType: X, evaluate: {nodes: {min: 1}}}"))
	if kinds := alone.Kinds(); len(kinds) != 1 {
		t.Errorf("without an object it reads %s", kinds)
	}
	if at := alone.Checks[0].at(object(t, worker), &scaled{}); at != "the nodes in the shoot" {
		t.Errorf("without an object it is at %q", at)
	}
	circular := read(t, ofMachines("{desired: 'size(object.status.conditions)'}", ""))
	if kinds := circular.readKinds(); len(kinds) != 1 {
		t.Errorf("by its conditions it depends on %s", kinds)
	}
}
