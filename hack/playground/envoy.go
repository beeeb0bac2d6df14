package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// envoy shows what an OutlierPolicy does, with a real Envoy and real backends. kwok's pods have no network.
func (t *tour) envoy(ctx context.Context) error {
	binary := filepath.Join(t.BinDir, "envoy")
	if _, err := os.Stat(binary); err != nil {
		say("OutlierPolicies are left out: they need an Envoy, and there is none in %s (make envoy)", fromHere(binary))
		return nil
	}
	ip := hostIP()
	if ip == "" {
		say("OutlierPolicies are left out: this machine has no IPv4 address but loopback's, which EndpointSlices may not have")
		return nil
	}
	say("An OutlierPolicy: an Envoy, which gets its clusters from Autohealer, takes a host that keeps failing out of the way. Service checkout has one that answers 200, and one that answers 503")
	manifest := "{apiVersion: v1, kind: Service, metadata: {name: checkout}, spec: {ports: [{name: http, port: 80}]}}\n"
	for i, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		port, stop, err := answer(ctx, ip, status)
		if err != nil {
			return err
		}
		defer stop()
		manifest += fmt.Sprintf(endpointSlice, i, port, ip)
	}
	if _, err := t.Apply(ctx, manifest); err != nil {
		return err
	}
	policy := t.sample("outlierpolicy-1.yaml")
	if err := t.showAll(ctx, []string{"apply", "-f", policy}, []string{"wait", "--for=condition=Ready", "--timeout=30s", "outlierpolicy/outlierpolicy-1"}); err != nil {
		return err
	}
	admin, listener := cluster.FreeAddress(), cluster.FreeAddress()
	if err := t.startEnvoy(ctx, binary, admin, listener); err != nil {
		return err
	}
	defer func() { _ = t.StopComponent("envoy") }()
	if err := t.request(ctx, listener); err != nil {
		return err
	}
	return t.showAll(ctx,
		[]string{"get", "outlierpolicies"},
		[]string{"delete", "-f", policy},
		[]string{"delete", "service,endpointslice", "checkout", "checkout-0", "checkout-1", "--ignore-not-found"},
	)
}

const endpointSlice = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: checkout-%d, labels: {kubernetes.io/service-name: checkout}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]
`

// envoyListener is what envoy-bootstrap leaves to who runs the Envoy.
const envoyListener = `
  address: {socket_address: {address: 127.0.0.1, port_value: %s}}
  filter_chains:
  - filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: checkout
        http_filters: [{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}]
        route_config:
          validate_clusters: false
          virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: default/checkout/80}}]}]
`

// startEnvoy starts an Envoy in front of Service checkout.
func (t *tour) startEnvoy(ctx context.Context, binary, admin, listener string) error {
	_, adminPort, _ := net.SplitHostPort(admin)
	_, port, _ := net.SplitHostPort(listener)
	args := []string{"autohealer", "envoy-bootstrap", "--server=" + t.xds, "--plaintext", "--admin-port=" + adminPort, "--ejection-log-path=" + filepath.Join(t.Dir, "ejections.json")}
	fmt.Printf("$ kubectl %s > envoy.yaml\n", strings.Join(args, " "))
	bootstrap, err := t.Kubectl(ctx, args...)
	if err != nil {
		return err
	}
	config := filepath.Join(t.Dir, "envoy.yaml")
	if err := writeEnvoyConfig(config, bootstrap, fmt.Sprintf(envoyListener, port)); err != nil {
		return err
	}
	ready := func(ctx context.Context) error {
		_, err := get(ctx, "http://"+admin+"/ready")
		return err
	}
	if err := t.AddProgram("envoy", binary, []string{"--config-path", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"}, ready); err != nil {
		return err
	}
	return t.StartComponent(ctx, "envoy")
}

func writeEnvoyConfig(file, bootstrap, listener string) error {
	var config, added map[string]any
	if err := errors.Join(yaml.Unmarshal([]byte(bootstrap), &config), yaml.Unmarshal([]byte(listener), &added)); err != nil {
		return err
	}
	if err := unstructured.SetNestedSlice(config, []any{added}, "static_resources", "listeners"); err != nil {
		return err
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o600)
}

// request shows who answers until Envoy has ejected the host that fails.
func (t *tour) request(ctx context.Context, listener string) error {
	var answers []string
	if err := t.until(ctx, "ten answers in a row that are 200", func() (bool, error) {
		for range 10 {
			status, err := get(ctx, "http://"+listener)
			if status == 0 {
				return false, err
			}
			answers = append(answers, fmt.Sprint(status))
		}
		last := strings.Join(answers[len(answers)-10:], " ")
		return last == strings.TrimSpace(strings.Repeat("200 ", 10)), nil
	}); err != nil {
		return err
	}
	fmt.Println("answers:", strings.Join(answers, " "))
	ejections, err := os.ReadFile(filepath.Join(t.Dir, "ejections.json"))
	fmt.Printf("Envoy's log of ejections: %s", ejections)
	return err
}

// get gives the status of an answer, and an error for any but 200.
func get(ctx context.Context, address string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, err
	}
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, fmt.Errorf("%s: %s", address, response.Status)
	}
	return response.StatusCode, nil
}

// answer serves one status, whatever is asked.
func answer(ctx context.Context, ip string, status int) (port int, stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return 0, nil, err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }), ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }() // it fails when it is closed
	return listener.Addr().(*net.TCPAddr).Port, func() { _ = server.Close() }, nil
}

// hostIP is an address of this machine's that EndpointSlices may have.
func hostIP() string {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return ""
}
