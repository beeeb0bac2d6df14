package conditionset

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/resourcestack/autohealer/bench/testbed"
)

// bareLoop is the reference: the manager's own patches, byte by byte as the audit log has them, sent with the manager's rights, and with
// nothing to decide, watch or report.
type bareLoop struct {
	bench   *Bench
	clients kubernetes.Interface
	patches map[bool]map[string][]byte // by whether they taint, and by node
}

// newBareLoop takes the patches from writes that first tainted and then untainted every node.
func (b *Bench) newBareLoop(ctx context.Context, since int64) (*bareLoop, error) {
	writes, err := b.Writes(since)
	if err != nil {
		return nil, err
	}
	clients, err := b.AsManager(ctx)
	if err != nil {
		return nil, err
	}
	l := &bareLoop{b, clients, map[bool]map[string][]byte{true: {}, false: {}}}
	var bytes int
	patches := toNodes(writes)
	for _, w := range patches {
		taints := l.patches[true][w.Name] == nil
		l.patches[taints][w.Name] = w.Body
		bytes += len(w.Body)
	}
	b.Say("  the manager made %d writes to nodes of %d bytes on average, and %d others", len(patches), bytes/max(1, len(patches)), len(writes)-len(patches))
	if taint, untaint := len(l.patches[true]), len(l.patches[false]); taint != b.Nodes || untaint != b.Nodes {
		return nil, fmt.Errorf("the audit log has %d patches that taint and %d that untaint, want %d of each", taint, untaint, b.Nodes)
	}
	return l, nil
}

// foreign is the same loop with taints and records of somebody else, which a manager that watches leaves alone.
func (l *bareLoop) foreign() *bareLoop {
	f := &bareLoop{l.bench, l.clients, map[bool]map[string][]byte{true: {}, false: {}}}
	theirs := strings.NewReplacer("autohealer.resourcestack.com~1owned-taints", "foreign-loop.example.com~1owned-taints",
		"autohealer.resourcestack.com/owned-taints", "foreign-loop.example.com/owned-taints")
	for taint, patches := range l.patches {
		for node, patch := range patches {
			f.patches[taint][node] = []byte(theirs.Replace(string(patch)))
		}
	}
	return f
}

// toNodes are those of the writes that are to nodes.
func toNodes(writes []testbed.Write) (nodes []testbed.Write) {
	for _, w := range writes {
		if w.Resource == "nodes" {
			nodes = append(nodes, w)
		}
	}
	return nodes
}

// patch taints or untaints a node. The answer is never decoded.
func (l *bareLoop) patch(ctx context.Context, node int, taint bool) error {
	name := nodeName(node)
	err := l.clients.CoreV1().RESTClient().Patch(types.JSONPatchType).Resource("nodes").Name(name).Param("fieldManager", "autohealer").
		Body(l.patches[taint][name]).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("patch node %s: %w", name, err)
	}
	return nil
}

func (l *bareLoop) patchAll(ctx context.Context, taint bool) error {
	return testbed.Each(ctx, l.bench.Nodes, func(ctx context.Context, i int) error { return l.patch(ctx, i, taint) })
}

// flipAndPatch flips n nodes, and hands each to a second loop that patches it.
func (l *bareLoop) flipAndPatch(ctx context.Context, n int, problem bool) error {
	flipped, failed := make(chan int, n), make(chan error, 1)
	go func() {
		failed <- testbed.Each(ctx, n, func(ctx context.Context, _ int) error {
			select {
			case i := <-flipped:
				return l.patch(ctx, i, problem)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	err := testbed.Each(ctx, n, func(ctx context.Context, i int) error {
		if err := l.bench.flip(ctx, i, problem); err != nil {
			return err
		}
		flipped <- i
		return nil
	})
	if err != nil {
		return err // the other loop ends with the benchmark's context
	}
	return <-failed
}
