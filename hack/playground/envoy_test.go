package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/internal/cli/envoy"
)

func TestTheToursEnvoyHasTheListenersOfItsBootstrapToo(t *testing.T) {
	bootstrap, err := envoy.Bootstrap(envoy.Options{
		Server: "127.0.0.1:18000", AdminPort: 9901, EjectionsPort: 9902, EjectionsAddress: "10.0.0.1",
		TLS: envoy.TLS{CertFile: "/certs/tls.crt", KeyFile: "/certs/tls.key", CAFile: "/certs/ca.crt"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := envoy.YAML(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := writeEnvoyConfig(file, string(text), fmt.Sprintf(envoyListener, 8080)); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(written)
	if err != nil {
		t.Fatal(err)
	}
	read := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(asJSON, read); err != nil {
		t.Fatal(err)
	}
	if err := read.ValidateAll(); err != nil {
		t.Error(err)
	}
	ports := map[string]uint32{}
	for _, l := range read.GetStaticResources().GetListeners() {
		ports[l.GetName()] = l.GetAddress().GetSocketAddress().GetPortValue()
	}
	if len(ports) != 2 || ports["autohealer_ejections"] != 9902 || ports["checkout"] != 8080 {
		t.Errorf("listeners are %v", ports)
	}
}
