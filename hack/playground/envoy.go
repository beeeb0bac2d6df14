package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	// envoyIdentity is in the Envoy's certificate.
	envoyIdentity = "spiffe://cluster.local/ns/default/sa/envoy"
	// xdsName is in the manager's certificate.
	xdsName = "autohealer-xds." + harness.Namespace + ".svc"
)

// startManager starts it so that it serves Envoys, and asks those behind Service envoys whom they have ejected. Who they are is said by the
// control plane's CA.
func (t *tour) startManager(ctx context.Context) error {
	ca := filepath.Join(t.Dir, "envoys.crt")
	if err := os.WriteFile(ca, t.CACert, 0o600); err != nil {
		return err
	}
	return t.StartManager(ctx, "--xds-bind-address="+t.xds, "--xds-client-ca="+ca, "--xds-client="+envoyIdentity+"=*", "--ejections-from=default/envoys/ejections")
}

// envoy shows what an OutlierPolicy does, with a real Envoy and real backends.
func (t *tour) envoy(ctx context.Context) error {
	binary := filepath.Join(t.BinDir, "envoy")
	if _, err := os.Stat(binary); err != nil {
		say("OutlierPolicies are left out: they need an Envoy, and there is none in %s (make envoy puts one there)", fromHere(t.BinDir))
		return nil
	}
	ip, err := cluster.HostIP()
	if err != nil {
		return err
	}
	if ip == "" {
		say("OutlierPolicies are left out: this machine has no IPv4 address but loopback's, which EndpointSlices may not have")
		return nil
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	say("An OutlierPolicy has Envoy take a pod that keeps failing out of the way. Of Service checkout's two pods checkout-1 answers 503")
	sick, err := t.checkout(ctx, ip)
	if err != nil {
		return err
	}
	policy := t.sample("outlierpolicy-1.yaml")
	if err := t.showAll(ctx, []string{"apply", "-f", policy}, []string{"wait", "--for=condition=Ready", "--timeout=30s", "outlierpolicy/outlierpolicy-1"}); err != nil {
		return err
	}
	say("An Envoy gets its clusters from Autohealer, and tells it whom it ejects")
	listener, err := t.startEnvoy(ctx, binary, ip)
	if err != nil {
		return err
	}
	defer func() { _ = t.StopComponent("envoy") }()
	if err := t.show(ctx, ejected(0)...); err != nil { // it answers Autohealer; an ejection is short
		return err
	}
	if err := t.request(ctx, listener); err != nil {
		return err
	}
	if err := t.showAll(ctx, ejected(1), []string{"get", "outlierpolicies"}, []string{"autohealer", "explain", "pod/checkout-1"}); err != nil {
		return err
	}
	say("It is mended. Envoy takes it back at its first sweep after 30 seconds; sweeps are 10 seconds apart")
	sick.Store(http.StatusOK)
	return t.showAll(ctx,
		ejected(0),
		[]string{"get", "events", "--field-selector=involvedObject.name=outlierpolicy-1", "-o", "custom-columns=REASON:.reason,MESSAGE:.message"},
		[]string{"delete", "-f", policy},
		[]string{"delete", "service,endpointslice,pod", "-l", "app in (checkout, envoys)"},
	)
}

// ejected waits until Autohealer knows of that many.
func ejected(hosts int) []string {
	return []string{"wait", fmt.Sprintf("--for=jsonpath={.status.ejected}=%d", hosts), "--timeout=120s", "outlierpolicy/outlierpolicy-1"}
}

// checkout is a Service of two pods that answer until the context ends: the first with 200, the second with what sick says.
func (t *tour) checkout(ctx context.Context, ip string) (sick *atomic.Int64, err error) {
	var statuses [2]atomic.Int64
	statuses[0].Store(http.StatusOK)
	statuses[1].Store(http.StatusServiceUnavailable)
	var ports [len(statuses)]int
	for i := range statuses {
		if ports[i], err = answer(ctx, ip, &statuses[i]); err != nil {
			return nil, err
		}
	}
	return &statuses[1], t.putService(ctx, "checkout", "http", ip, ports[:]...)
}

// endpoint is a pod behind a Service. kwok's pods have no network, so it is reached at a port of this machine's.
const endpoint = `---
{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, labels: {app: %[2]s}}, spec: {containers: [{name: %[2]s, image: %[2]s}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {app: %[2]s, kubernetes.io/service-name: %[2]s}}
addressType: IPv4
ports: [{name: %[3]s, port: %[4]d}]
endpoints: [{addresses: [%[5]s], conditions: {ready: true}, targetRef: {kind: Pod, name: %[1]s, namespace: default}}]
`

// putService makes a Service with a pod for each of the machine's ports.
func (t *tour) putService(ctx context.Context, name, portName, ip string, ports ...int) error {
	manifest := fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %[1]s, labels: {app: %[1]s}}, spec: {ports: [{name: %[2]s, port: 80}]}}\n", name, portName)
	for i, port := range ports {
		manifest += fmt.Sprintf(endpoint, fmt.Sprintf("%s-%d", name, i), name, portName, port, ip)
	}
	_, err := t.Apply(ctx, manifest)
	return err
}

// envoyListener is what envoy-bootstrap leaves to who runs the Envoy. /ready is the Envoy's own answer, once it passes requests on.
const envoyListener = `
  name: checkout
  address: {socket_address: {address: 127.0.0.1, port_value: %d}}
  filter_chains:
  - filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: checkout
        http_filters: [{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
        route_config:
          validate_clusters: false
          virtual_hosts:
          - name: all
            domains: ["*"]
            routes:
            - {match: {path: /ready}, direct_response: {status: 200}}
            - {match: {prefix: /}, route: {cluster: default/checkout/80}}
`

// startEnvoy starts an Envoy in front of Service checkout, and gives its address.
func (t *tour) startEnvoy(ctx context.Context, binary, ip string) (listener string, err error) {
	var ports [3]int
	for i := range ports {
		if ports[i], err = cluster.FreePort(); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(t.Dir, "envoy")
	if err := t.putCertificates(ctx, dir); err != nil {
		return "", err
	}
	args := []string{
		"autohealer", "envoy-bootstrap", "--server=" + t.xds, "--server-name=" + xdsName, "--resources-dir=" + dir,
		"--cert=" + filepath.Join(dir, "tls.crt"), "--key=" + filepath.Join(dir, "tls.key"), "--ca=" + filepath.Join(dir, "ca.crt"),
		fmt.Sprintf("--admin-port=%d", ports[0]), fmt.Sprintf("--ejections-port=%d", ports[1]), "--ejections-address=" + ip, "--ejection-log=false",
	}
	fmt.Printf("$ kubectl %s > envoy.yaml\n", strings.Join(args, " "))
	bootstrap, err := t.Kubectl(ctx, args...)
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "envoy.yaml")
	if err := writeEnvoyConfig(config, bootstrap, fmt.Sprintf(envoyListener, ports[2])); err != nil {
		return "", err
	}
	listener = fmt.Sprintf("http://127.0.0.1:%d/", ports[2])
	// One worker: the pods take their turns.
	flags := []string{"--config-path", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"}
	if err := t.AddProgram("envoy", binary, flags, cluster.HTTPReady(listener+"ready")); err != nil {
		return "", err
	}
	if err := t.StartComponent(ctx, "envoy"); err != nil {
		return "", err
	}
	return listener, t.putService(ctx, "envoys", "ejections", ip, ports[1])
}

// putCertificates writes the Envoy's certificate, and the CA of the manager's, which is that of its webhook.
func (t *tour) putCertificates(ctx context.Context, dir string) error {
	if err := t.ClientCertificate(dir, envoyIdentity); err != nil {
		return err
	}
	webhook := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := t.Client.Get(ctx, types.NamespacedName{Name: "autohealer"}, webhook); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "ca.crt"), webhook.Webhooks[0].ClientConfig.CABundle, 0o600)
}

// writeEnvoyConfig writes a bootstrap with one listener more.
func writeEnvoyConfig(file, bootstrap, listener string) error {
	var config, added map[string]any
	if err := errors.Join(yaml.Unmarshal([]byte(bootstrap), &config), yaml.Unmarshal([]byte(listener), &added)); err != nil {
		return err
	}
	listeners, _, err := unstructured.NestedSlice(config, "static_resources", "listeners")
	if err != nil {
		return err
	}
	if err := unstructured.SetNestedSlice(config, append(listeners, added), "static_resources", "listeners"); err != nil {
		return err
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// request shows the answers until Envoy has ejected the pod that fails.
func (t *tour) request(ctx context.Context, address string) error {
	const together = 10
	var answers []string
	if err := t.until(ctx, "ten answers in a row that are 200", func() (bool, error) {
		well := 0
		for range together {
			status, err := get(ctx, address)
			if err != nil {
				return false, err
			}
			if status == http.StatusOK {
				well++
			}
			answers = append(answers, fmt.Sprint(status))
		}
		return well == together, nil
	}); err != nil {
		return err
	}
	fmt.Println("answers:", strings.Join(answers, " "))
	return nil
}

// get gives the status of an answer.
func get(ctx context.Context, address string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// answer all requests with a status, which may change, until the context ends.
func answer(ctx context.Context, ip string, status *atomic.Int64) (port int, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return 0, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(status.Load())) }), ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }() // it fails when it is closed
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return listener.Addr().(*net.TCPAddr).Port, nil
}
