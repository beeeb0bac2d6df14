package main

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// raw is the reference: the manager's own patches, byte by byte as the audit log has them, sent by a bare loop with the
// manager's rights, and with nothing to decide, watch or tell.
type raw struct {
	nodes          []string
	taint, untaint map[string][]byte
	client         *rest.RESTClient
}

// newRaw takes the patches from writes that first tainted and then untainted every node.
func (b *bench) newRaw(ctx context.Context, writes []write) (*raw, error) {
	r := &raw{nodes: b.nodes, taint: map[string][]byte{}, untaint: map[string][]byte{}}
	for _, w := range nodeWrites(writes) {
		if r.taint[w.name] == nil {
			r.taint[w.name] = w.body
		} else {
			r.untaint[w.name] = w.body
		}
	}
	if len(r.taint) != len(b.nodes) || len(r.untaint) != len(b.nodes) {
		return nil, fmt.Errorf("the audit log has %d patches that taint and %d that untaint, want %d of each", len(r.taint), len(r.untaint), len(b.nodes))
	}
	kubeconfig, err := b.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the manager's kubeconfig: %w", err)
	}
	config.QPS = -1
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf // the answer is never decoded; this is what costs the API server least
	if r.client, err = rest.RESTClientFor(config); err != nil {
		return nil, fmt.Errorf("make a bare client: %w", err)
	}
	return r, nil
}

func (r *raw) patch(ctx context.Context, node string, patch []byte) error {
	err := r.client.Patch(types.JSONPatchType).Resource("nodes").Name(node).Param("fieldManager", "autohealer").Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("patch node %s: %w", node, err)
	}
	return nil
}

func (r *raw) all(ctx context.Context, patches map[string][]byte) error {
	return each(ctx, len(r.nodes), func(ctx context.Context, i int) error {
		return r.patch(ctx, r.nodes[i], patches[r.nodes[i]])
	})
}
