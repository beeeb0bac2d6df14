//go:build linux

package envoygateway

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

const (
	// system is Envoy Gateway's namespace.
	system = "envoy-gateway-system"
	// program is Envoy Gateway's name among the cluster's.
	program cluster.Component = "envoy-gateway"
)

// patches says whether Envoy Gateway is configured to take EnvoyPatchPolicies.
const (
	patches   = true
	noPatches = false
)

// configuration is Envoy Gateway's. An Envoy has the ports 19000 and 19001, which are Envoy Gateway's own by default, since their pods are two.
const configuration = `
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyGateway
gateway: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
provider:
  type: Kubernetes
  kubernetes:
    leaderElection: {disable: true}
    proxyTopologyInjector: {disabled: true}
extensionApis: {enableEnvoyPatchPolicy: %t}
admin: {address: {host: 127.0.0.1, port: 19100}}
telemetry: {metrics: {prometheus: {disable: true}}}
logging: {level: {default: info}}
`

// gateway is Envoy Gateway as a process beside the cluster. It reads its certificates from /certs, so that root is what it takes for all files.
type gateway struct{ root string }

// install puts all into the cluster that Envoy Gateway's charts would, but for what runs it.
func install(ctx context.Context) *gateway {
	GinkgoHelper()
	_, err := h.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(h.BinDir, "envoygateway-crds.yaml"))
	Expect(err).NotTo(HaveOccurred())
	_, err = h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred())
	apply(ctx, "{apiVersion: v1, kind: Namespace, metadata: {name: "+system+"}}")

	certgen := exec.CommandContext(ctx, filepath.Join(h.BinDir, string(program)), "certgen", "--disable-topology-injector")
	certgen.Env = append(os.Environ(), "KUBECONFIG="+h.Kubeconfig)
	said, err := certgen.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(said))

	g := &gateway{root: filepath.Join(h.Dir, string(program))}
	writeSecret(ctx, "envoy-gateway", filepath.Join(g.root, "certs"))
	Expect(os.Mkdir(filepath.Join(g.root, "tmp"), 0o700)).To(Succeed())
	copyFile(filepath.Join(h.BinDir, string(program)), filepath.Join(g.root, string(program)), 0o700)
	copyFile(h.Kubeconfig, filepath.Join(g.root, "kubeconfig"), 0o600)
	apply(ctx, `{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: eg}, spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}}`)
	return g
}

// start Envoy Gateway, again where it was stopped.
func (g *gateway) start(ctx context.Context, patches bool) {
	GinkgoHelper()
	Expect(os.WriteFile(filepath.Join(g.root, "config.yaml"), fmt.Appendf(nil, configuration, patches), 0o600)).To(Succeed())
	env, err := exec.LookPath("env")
	Expect(err).NotTo(HaveOccurred())
	chroot, err := exec.LookPath("chroot")
	Expect(err).NotTo(HaveOccurred())
	Expect(h.AddProgram(program, env, []string{
		"KUBECONFIG=/kubeconfig", "ENVOY_GATEWAY_NAMESPACE=" + system, "HOME=/tmp",
		chroot, g.root, "/" + string(program), "server", "--config-path=/config.yaml",
	}, cluster.HTTPReady("http://127.0.0.1:8081/readyz"))).To(Succeed())
	Expect(h.StartComponent(ctx, program)).To(Succeed())
}

// writeSecret as a pod has it that mounts it.
func writeSecret(ctx context.Context, name, dir string) {
	GinkgoHelper()
	var secret corev1.Secret
	Expect(h.Client.Get(ctx, client.ObjectKey{Namespace: system, Name: name}, &secret)).To(Succeed())
	Expect(os.MkdirAll(dir, 0o700)).To(Succeed())
	for file, content := range secret.Data {
		Expect(os.WriteFile(filepath.Join(dir, file), content, 0o600)).To(Succeed())
	}
}

func copyFile(from, to string, mode os.FileMode) {
	GinkgoHelper()
	source, err := os.Open(from)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	Expect(err).NotTo(HaveOccurred())
	_, err = io.Copy(target, source)
	Expect(err).NotTo(HaveOccurred())
	Expect(target.Close()).To(Succeed())
}

func apply(ctx context.Context, manifest string) {
	GinkgoHelper()
	_, err := h.KubectlWithInput(ctx, strings.NewReader(manifest), "apply", "-f", "-")
	Expect(err).NotTo(HaveOccurred())
}
