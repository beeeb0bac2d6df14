package world

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
)

func (w *World) proxy() *faultproxy.Proxy {
	ginkgo.GinkgoHelper()
	p, err := faultproxy.Start(strings.TrimPrefix(w.URL, "https://"))
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(func() { gomega.Expect(p.Stop()).To(gomega.Succeed()) })
	return p
}

func (w *World) kubeconfigBy(p *faultproxy.Proxy) []byte {
	ginkgo.GinkgoHelper()
	config, err := clientcmd.LoadFromFile(w.Kubeconfig)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	for _, c := range config.Clusters {
		c.Server = "https://" + p.Addr()
	}
	text, err := clientcmd.Write(*config)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return text
}

// Sick are a node that is tainted, and one that is evicted.
func (w *World) Sick() (repelled, evicted string) { return w.Nodes[0], w.Nodes[1] }

// Done is all that was done, as node key:effect, workload=replicas and condition=status.
func (w *World) Done(ctx context.Context) ([]string, error) {
	var found []string
	for _, name := range w.Nodes {
		var node corev1.Node
		if err := w.Client.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return nil, err
		}
		for _, key := range []string{RepelKey, EvictKey} {
			if effect := fixture.EffectOn(&node, key); effect != "" {
				found = append(found, fmt.Sprintf("%s %s:%s", name, key, effect))
			}
		}
	}
	var deployment appsv1.Deployment
	var state appsv1.StatefulSet
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "kcm"}, &deployment); err != nil {
		return nil, err
	}
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "ca"}, &state); err != nil {
		return nil, err
	}
	found = append(found, fmt.Sprintf("kcm=%d", *deployment.Spec.Replicas), fmt.Sprintf("ca=%d", *state.Spec.Replicas))
	dialled, err := w.dialled(ctx)
	if err != nil || dialled == "" {
		return found, err
	}
	return append(found, "Dialled="+dialled), nil
}

// Everything is what policies do to what is sick; Nothing is what there is without them.
func (w *World) Everything() []string {
	repelled, evicted := w.Sick()
	return []string{repelled + " " + RepelKey + ":NoSchedule", evicted + " " + EvictKey + ":NoExecute", "kcm=0", "ca=0", "Dialled=False"}
}

// Nothing is what there is without policies.
func (*World) Nothing() []string { return []string{"kcm=2", "ca=1"} }

// Records are the objects with an annotation that tells what was done.
func (w *World) Records(ctx context.Context) ([]string, error) {
	var found []string
	for _, kind := range []string{"nodes", "deployments", "statefulsets", "replicasets", "gadgets"} {
		out, err := w.Kubectl(ctx, "get", kind, "-A", "-o", `go-template={{range .items}}{{.kind}}/{{.metadata.name}}{{range $key, $_ := .metadata.annotations}} {{$key}}{{end}}{{"\n"}}{{end}}`)
		if err != nil {
			return nil, err
		}
		found = append(found, strings.Split(strings.TrimSpace(out), "\n")...)
	}
	return slices.DeleteFunc(found, func(line string) bool {
		return !strings.Contains(line, "owned-taints") && !strings.Contains(line, "original-replicas") && !strings.Contains(line, "owned-conditions")
	}), nil
}

// Report makes nodes sick or well.
func (w *World) Report(ctx context.Context, status corev1.ConditionStatus) {
	ginkgo.GinkgoHelper()
	repelled, evicted := w.Sick()
	gomega.Expect(w.SetCondition(ctx, repelled, "Broken", status, cluster.ConditionOptions{})).To(gomega.Succeed())
	gomega.Expect(w.SetCondition(ctx, evicted, "Dead", status, cluster.ConditionOptions{})).To(gomega.Succeed())
}

// Sicken makes everything sick.
func (w *World) Sicken(ctx context.Context) {
	ginkgo.GinkgoHelper()
	w.Report(ctx, corev1.ConditionTrue)
	w.External.BreakNew(faultproxy.Reset)
	w.External.BreakOpen(faultproxy.Reset)
	w.Dial(ctx, "Down")
}

// Break makes everything sick, and returns when all was done that is done then.
func (w *World) Break(ctx context.Context) {
	ginkgo.GinkgoHelper()
	w.Sicken(ctx)
	gomega.Eventually(w.Done).WithContext(ctx).WithTimeout(2 * harness.Within).Should(gomega.Equal(w.Everything()))
}

// Mend makes everything well.
func (w *World) Mend(ctx context.Context) {
	ginkgo.GinkgoHelper()
	w.Report(ctx, corev1.ConditionFalse)
	w.External.BreakNew(faultproxy.None)
}
