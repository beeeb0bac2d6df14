package healthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// shootOf has these nodes, one a letter: r is Ready, c Ready and cordoned, b broke, s starts.
func shootOf(nodes string, funcs interceptor.Funcs) theShoot {
	built := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithInterceptorFuncs(funcs)
	for i, state := range nodes {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(rune('1' + i)), CreationTimestamp: metav1.NewTime(dawn)}}
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(dawn.Add(time.Hour))}
		switch state {
		case 'c':
			n.Spec.Unschedulable = true
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

// nodesOf is what the check of nodes says of Worker t with this spec; "" for none.
func nodesOf(t *testing.T, spec string, shoot theShoot) health.Result {
	t.Helper()
	seed := fake.NewClientBuilder()
	if spec != "" {
		w := untyped(worker)
		if err := json.Unmarshal([]byte(`{"apiVersion": "extensions.gardener.cloud/v1alpha1", "kind": "Worker", "metadata": {"name": "t"}, "spec": `+spec+`}`), w); err != nil {
			t.Fatal(err)
		}
		seed = seed.WithObjects(w)
	}
	r := &runner{timeout: time.Minute, seed: seed.Build(), shoots: shoot}
	return outcomes(r, check{"X", "nodes", SufficientNodesAvailable()})["nodes"]
}

func TestAWorkerHasAsManyNodesAsItsPoolsNeed(t *testing.T) {
	for name, tt := range map[string]struct {
		spec, nodes string
		want        health.Status
		detail      string
	}{
		"as many":                       {`{"pools": [{"minimum": 2}]}`, "rr", "True", ""},
		"more, of which one broke":      {`{"pools": [{"minimum": 2, "maximum": 5}]}`, "rrb", "True", ""},
		"one of several pools' is gone": {`{"pools": [{"minimum": 1}, {"minimum": 2}]}`, "rr", "Progressing", "2 of at least 3 nodes are available; 1 haven't registered"},
		"one starts":                    {`{"pools": [{"minimum": 2}]}`, "rs", "Progressing", "1 of at least 2 nodes are available; 1 are starting"},
		"one broke":                     {`{"pools": [{"minimum": 2}]}`, "rb", "False", "1 of at least 2 nodes are available; not ready: 2"},
		"one is cordoned":               {`{"pools": [{"minimum": 2}]}`, "rc", "False", "1 of at least 2 nodes are available; cordoned: 2"},
		"none came":                     {`{"pools": [{"minimum": 1}]}`, "", "Progressing", "0 of at least 1 nodes are available; 1 haven't registered"},
		"no pools":                      {`{"type": "aws"}`, "", "True", ""},
		"an empty list of pools":        {`{"pools": []}`, "b", "True", ""},
		"a pool without a minimum":      {`{"pools": [{"name": "a"}, {"minimum": 1}]}`, "r", "True", ""},
		"a pool that may be empty":      {`{"pools": [{"minimum": 0, "maximum": 3}]}`, "", "True", ""},
		"no spec":                       {`null`, "", "True", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := nodesOf(t, tt.spec, shootOf(tt.nodes, interceptor.Funcs{}))
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
	for name, tt := range map[string]struct{ spec, detail string }{
		"a minimum that is text":   {`{"pools": [{"minimum": 1}, {"minimum": "2"}]}`, "read a pool's minimum: "},
		"a minimum of half a node": {`{"pools": [{"minimum": 1.5}]}`, "read a pool's minimum: "},
		"a minimum that is null":   {`{"pools": [{"minimum": null}]}`, "read a pool's minimum: "},
		"a pool that is a name":    {`{"pools": ["a"]}`, "read the Worker's pools: one is a string"},
		"pools that are no list":   {`{"pools": {"a": {"minimum": 1}}}`, "read the Worker's pools: "},
		"no Worker":                {"", "read the Worker: "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nodesOf(t, tt.spec, shootOf("rr", interceptor.Funcs{})); got.Status != "Unknown" || !strings.HasPrefix(got.Detail, tt.detail) {
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
	got := nodesOf(t, `{"pools": []}`, shoot)
	if version != "0" {
		t.Errorf("they are listed as of version %q", version)
	}
	if got.Status != "Unknown" || got.Detail != "list the shoot's nodes: no" {
		t.Errorf("without an answer: %s %q", got.Status, got.Detail)
	}
}
