package outlierpolicy

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/cli"
)

// ask gives the arguments with which an Envoy is to be started, and what has the manager ask it then, behind Service edge/envoys:
// why an Envoy is silent is told of the first time, and that shouldn't be that it isn't there yet.
func ask(ctx context.Context) (bootstrap []string, begin func()) {
	GinkgoHelper()
	_, port, err := net.SplitHostPort(cluster.FreeAddress())
	Expect(err).NotTo(HaveOccurred())
	_, admin, err := net.SplitHostPort(cluster.FreeAddress())
	Expect(err).NotTo(HaveOccurred())
	begin = func() {
		GinkgoHelper()
		apply(ctx, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: edge}
---
apiVersion: v1
kind: Service
metadata: {name: envoys, namespace: edge}
spec: {clusterIP: None, ports: [{name: ejections, port: 9902}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: envoys, namespace: edge, labels: {kubernetes.io/service-name: envoys}}
addressType: IPv4
ports: [{name: ejections, port: %s}]
endpoints: [{addresses: [%s], conditions: {ready: true}, targetRef: {kind: Pod, name: envoy-0, namespace: edge}}]
`, port, hostIP))
		DeferCleanup(func(ctx SpecContext) {
			_, err := h.Kubectl(ctx, "delete", "-n", "edge", "service/envoys", "endpointslice/envoys")
			Expect(err).NotTo(HaveOccurred())
		})
	}
	return []string{"--ejections-port=" + port, "--admin-port=" + admin}, begin
}

// pods stand behind the Service's endpoints: web-0, web-1 and so on.
func (s *service) pods(ctx context.Context) {
	GinkgoHelper()
	for i := range s.backends {
		apply(ctx, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: web-%d, namespace: %s}, spec: {containers: [{name: web, image: web}]}}", i, s.namespace))
		_, err := h.Kubectl(ctx, "-n", s.namespace, "patch", "endpointslice", fmt.Sprintf("web-%d", i), "--type=json",
			"-p", fmt.Sprintf(`[{"op": "add", "path": "/endpoints/0/targetRef", "value": {"kind": "Pod", "name": "web-%d", "namespace": %q}}]`, i, s.namespace))
		Expect(err).NotTo(HaveOccurred())
	}
}

// seen is who is ejected by the policy's status: pods by name, or why that isn't known.
func (s *service) seen(ctx context.Context) func() string {
	return func() string {
		op, err := policyOf(ctx, s.namespace, "web")
		if err != nil {
			return err.Error()
		}
		if c := meta.FindStatusCondition(op.Status.Conditions, "EjectionsUnknown"); c != nil {
			if op.Status.Ejected != nil || op.Status.Ejections != nil || op.Status.Ancestors[0].Ejected != nil {
				return "a claim of what isn't known"
			}
			return c.Reason + ": " + c.Message
		}
		if op.Status.Ejected == nil || op.Status.Ancestors[0].Ejected == nil || *op.Status.Ejected != *op.Status.Ancestors[0].Ejected {
			return "no count, or two"
		}
		pods := []string{}
		for _, x := range op.Status.Ejections {
			pods = append(pods, fmt.Sprintf("%s by %d", x.Pod, x.Envoys))
		}
		return fmt.Sprintf("%d: %s", *op.Status.Ejected, strings.Join(pods, ", "))
	}
}

// told are the notes of the Events of a reason about an object.
func told(ctx context.Context, namespace, kind, reason string) func() (string, error) {
	return func() (string, error) {
		return h.Kubectl(ctx, "-n", namespace, "get", "events", "--field-selector=involvedObject.kind="+kind+",reason="+reason, "-o", `jsonpath={range .items[*]}{.type} {.message}{"\n"}{end}`)
	}
}

func plugin(ctx context.Context, args ...string) string {
	GinkgoHelper()
	streams, _, out, problems := genericiooptions.NewTestIOStreams()
	Expect(cli.Run(ctx, &cli.App{IOStreams: streams}, append(args, "--kubeconfig="+h.Kubeconfig))).To(BeZero(), problems.String())
	return out.String()
}

var _ = Describe("Whom Envoys have ejected", func() {
	It("is in the status, in Events with the pod's name, and in explain; and isn't claimed once an Envoy is silent", func(ctx SpecContext) {
		s := serve(ctx, "live", 3)
		s.pods(ctx)
		s.detect(ctx, "consecutiveServerErrors: 3, maxEjectionPercent: 50, interval: 1s, baseEjectionTime: 40s, maxEjectionTime: 40s")
		args, begin := ask(ctx)
		e := proxyWith(ctx, edge, clients, args, s.cluster())
		begin()
		Eventually(func() []envoy.Host { return e.Hosts(s.cluster()) }).Should(HaveLen(3))
		Eventually(s.seen(ctx)).Should(Equal("0: "))
		Expect(plugin(ctx, "explain", "-n", s.namespace, "pod/web-1")).To(ContainSubstring("pod/web-1 (" + s.backends[1].Address + "): not ejected\n"))

		By("telling who is ejected")
		s.backends[1].Answer(500)
		Expect(e.Statuses(s.cluster(), 9)).To(Equal(map[int]int{200: 6, 500: 3}))
		Eventually(s.seen(ctx)).Should(Equal("1: web-1 by 1"))
		note := "pod web-1 (" + s.backends[1].Address + ") of live/web/80"
		Eventually(told(ctx, s.namespace, "OutlierPolicy", "HostsEjected")).Should(Equal("Warning Envoys ejected 1 host: " + note + ", by 1 Envoy.\n"))
		Eventually(told(ctx, s.namespace, "Service", "HostsEjected")).Should(Equal("Warning Envoys ejected 1 host: " + note + ", by 1 Envoy.\n"))
		Expect(plugin(ctx, "explain", "-n", s.namespace, "pod/web-1")).To(MatchRegexp(`
  OutlierPolicy web, Envoy cluster live/web/80: Envoy ejects hosts that keep failing
    A host is ejected after 3 consecutive 5xx, failures of Envoy's own among them
    It stays so for 40s, each further time as much more, at most 40s; it ends at the first sweep after, every 1s
    At most 1 of 3 hosts may be ejected at once by one Envoy; 1 now
    pod/web-1 \(%s\): ejected by 1 Envoy since \S+ \(\d+s\); back at \S+ \(in \d+s\) or so, if it is its first time
$`, regexp.QuoteMeta(s.backends[1].Address)))
		Expect(h.Kubectl(ctx, "-n", s.namespace, "get", "outlierpolicy", "web", "--no-headers")).To(MatchRegexp(`^web +True +True +\S+ +1 +3 +1 `))

		By("telling who is back")
		s.backends[1].Answer(200)
		Eventually(s.seen(ctx), 2*harness.Within).Should(Equal("0: "))
		Eventually(told(ctx, s.namespace, "OutlierPolicy", "HostsReturned")).Should(Equal("Normal Envoys took back 1 host: " + note + ".\n"))

		By("not claiming what an Envoy that isn't asked doesn't say")
		unasked := proxy(ctx, edge, clients)
		Eventually(s.seen(ctx), 2*harness.Within).Should(HavePrefix("EnvoysNotAsked: 1 Envoys get clusters of namespace live and aren't asked whom they have ejected"))
		unasked.Stop()
		Eventually(s.seen(ctx), 2*harness.Within).Should(Equal("0: "))

		By("not claiming what a silent Envoy doesn't say")
		e.Stop()
		Eventually(s.seen(ctx)).Should(HavePrefix("EnvoysNotAnswering: 1 of 1 Envoys don't say whom they have ejected, and so it isn't known: edge/envoy-0: "))
		Expect(plugin(ctx, "explain", "-n", s.namespace, "pod/web-1")).To(ContainSubstring("whether it is ejected isn't known: 1 of 1 Envoys"))
	}, NodeTimeout(6*harness.Within))

	It("is believed of nobody who shows no Envoy's certificate", func(ctx SpecContext) {
		s := serve(ctx, "impostor", 1)
		s.detect(ctx, "consecutiveServerErrors: 3")
		args, begin := ask(ctx)
		proxyWith(ctx, nobody, clients, args)
		begin()
		Eventually(s.seen(ctx)).Should(And(HavePrefix("EnvoysNotAnswering: "), ContainSubstring(`none of the names in its certificate is an Envoy's: ["spiffe://example.org/ns/other/sa/envoy"]`)))
	}, NodeTimeout(3*harness.Within))
})
