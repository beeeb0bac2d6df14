package healthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// theShoot is one that can be reached.
type theShoot struct{ client.Client }

// Of gives its client.
func (s theShoot) Of(context.Context, string) (client.Client, error) { return s.Client, nil }

// Forget does nothing.
func (theShoot) Forget(string) {}

// shootOf has these nodes, one a letter: r is Ready, c Ready and cordoned, b broke, s starts, u broke and isn't managed.
func shootOf(nodes string, funcs interceptor.Funcs) theShoot {
	built := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(funcs)
	for i, state := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i + 1), CreationTimestamp: metav1.NewTime(dawn)}}
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(dawn.Add(time.Hour))}
		switch state {
		case 'c':
			n.Spec.Unschedulable = true
		case 'u':
			n.Annotations = map[string]string{"node.machine.sapcloud.io/not-managed-by-mcm": "1"}
			ready.Status = corev1.ConditionFalse
		case 'b':
			ready.Status = corev1.ConditionFalse
		case 's':
			ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, n.CreationTimestamp
		}
		n.Status.Conditions = []corev1.NodeCondition{ready}
		built = built.WithObjects(n)
	}
	return theShoot{built.Build()}
}

// wanting are MachineDeployments, each with these replicas.
func wanting(replicas ...int) (deployments []string) {
	for i, n := range replicas {
		deployments = append(deployments, fmt.Sprintf(`{"metadata": {"name": "%c"}, "spec": {"replicas": %d}}`, 'a'+i, n))
	}
	return deployments
}

// nodesOf is what the check of nodes says of Worker t with this spec, "" for none, and these MachineDeployments.
func nodesOf(t *testing.T, spec string, deployments []string, shoot theShoot, seedFuncs interceptor.Funcs) health.Result {
	t.Helper()
	seed := fake.NewClientBuilder().WithInterceptorFuncs(seedFuncs)
	put := func(kind schema.GroupVersionKind, text string) {
		o := untyped(kind)
		if err := json.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetGroupVersionKind(kind)
		seed = seed.WithObjects(o)
	}
	if spec != "" {
		put(worker, `{"metadata": {"name": "t"}, "spec": `+spec+`}`)
	}
	for _, text := range deployments {
		put(machineDeployment, text)
	}
	r := &runner{timeout: time.Minute, seed: seed.Build(), shoots: shoot}
	return outcomes(r, check{"X", "nodes", SufficientNodesAvailable()})["nodes"]
}

func TestAWorkerHasAsManyNodesAsItsMachineDeploymentsWant(t *testing.T) {
	const (
		onePool = `{"pools": [{"minimum": 1, "maximum": 20}]}`
		goes    = `{"metadata": {"name": "goes", "deletionTimestamp": "2026-03-01T00:00:00Z", "finalizers": ["machine.sapcloud.io/machine-controller-manager"]}, "spec": {"replicas": 5}}`
		zero    = `{"metadata": {"name": "zero"}, "spec": {}}`
	)
	for name, tt := range map[string]struct {
		spec        string
		deployments []string
		nodes       string
		want        health.Status
		detail      string
	}{
		"as many":                          {onePool, wanting(2), "rr", "True", ""},
		"as many as several want":          {onePool, wanting(1, 2), "rrr", "True", ""},
		"one of ten":                       {onePool, wanting(10), "rbbbbbbbbb", "False", "1 of at least 10 nodes are available; not ready: 10, 2, 3, 4, 5 and 4 more"},
		"more, of which one broke":         {onePool, wanting(2), "rrb", "False", "2 of at least 2 nodes are available; not ready: 3"},
		"more, of which one isn't managed": {onePool, wanting(2), "rru", "True", ""},
		"one of several is gone":           {onePool, wanting(1, 2), "rr", "Progressing", "2 of at least 3 nodes are available; not registered: 1"},
		"one starts":                       {onePool, wanting(2), "rs", "Progressing", "1 of at least 2 nodes are available; starting: 2"},
		"one is cordoned":                  {onePool, wanting(2), "rc", "Progressing", "1 of at least 2 nodes are available; cordoned: 2"},
		"none came":                        {onePool, wanting(1), "", "Progressing", "0 of at least 1 nodes are available; not registered: 1"},
		"one MachineDeployment goes":       {onePool, append(wanting(2), goes), "rr", "True", ""},
		"none is wanted any more":          {onePool, wanting(0), "b", "True", ""},
		"one leaves its zero out":          {onePool, append(wanting(2), zero), "rr", "True", ""},
		"a pool that is empty":             {`{"pools": [{"minimum": 0, "maximum": 3}]}`, wanting(0), "", "True", ""},
		"no MachineDeployment yet":         {onePool, nil, "r", "Progressing", "there is no MachineDeployment beside the Worker that stays"},
		"all MachineDeployments go":        {onePool, []string{goes}, "r", "Progressing", "there is no MachineDeployment beside the Worker that stays"},
		"no pools":                         {`{"type": "aws"}`, nil, "", "True", ""},
		"an empty list of pools":           {`{"pools": []}`, nil, "", "True", ""},
		"no spec":                          {`null`, nil, "", "True", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := nodesOf(t, tt.spec, tt.deployments, shootOf(tt.nodes, interceptor.Funcs{}), interceptor.Funcs{})
			if got.Status != tt.want || got.Detail != tt.detail {
				t.Errorf("%s %q", got.Status, got.Detail)
			}
			if progresses := tt.want == "Progressing"; (got.Timeout == 5*time.Minute) != progresses || (got.Timeout == 0) == progresses {
				t.Errorf("%s is believed for %s", got.Status, got.Timeout)
			}
		})
	}
}

func TestOfAWorkerThatCantBeReadNothingIsKnown(t *testing.T) {
	forbidden := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("no right")
	}}
	for name, tt := range map[string]struct {
		spec        string
		deployments []string
		seed        interceptor.Funcs
		detail      string
	}{
		"pools that are no list":        {`{"pools": {"a": {"minimum": 1}}}`, wanting(1), interceptor.Funcs{}, "read the Worker's pools: "},
		"replicas that are text":        {`{"pools": [{"minimum": 1}]}`, []string{`{"metadata": {"name": "m"}, "spec": {"replicas": "1"}}`}, interceptor.Funcs{}, "read the replicas of MachineDeployment m: "},
		"MachineDeployments are secret": {`{"pools": [{"minimum": 1}]}`, wanting(1), forbidden, "list the MachineDeployments: no right"},
		"no Worker":                     {"", wanting(1), interceptor.Funcs{}, "read the Worker: "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nodesOf(t, tt.spec, tt.deployments, shootOf("rr", interceptor.Funcs{}), tt.seed); got.Status != "Unknown" || !strings.HasPrefix(got.Detail, tt.detail) {
				t.Errorf("%s %q", got.Status, got.Detail)
			}
		})
	}
}

func TestNodesAreListedFromTheAPIServersMemory(t *testing.T) {
	version := "none"
	shoot := shootOf("", interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, options ...client.ListOption) error {
		if raw := (&client.ListOptions{}).ApplyOptions(options).Raw; raw != nil {
			version = raw.ResourceVersion
		}
		return errors.New("no")
	}})
	got := nodesOf(t, `{"pools": [{}]}`, wanting(1), shoot, interceptor.Funcs{})
	if version != "0" {
		t.Errorf("they are listed as of version %q", version)
	}
	if got.Status != "Unknown" || got.Detail != "list the shoot's nodes: no" {
		t.Errorf("without an answer: %s %q", got.Status, got.Detail)
	}
}
