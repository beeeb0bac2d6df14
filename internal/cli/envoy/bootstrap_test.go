package envoy

import (
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	. "github.com/onsi/gomega"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, o Options) *bootstrapv3.Bootstrap {
	t.Helper()
	b, err := Bootstrap(o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := YAML(b)
	if err != nil {
		t.Fatal(err)
	}
	text, err = yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	again := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(text, again); err != nil {
		t.Fatal(err)
	}
	return again
}

var files = TLS{CertFile: "/c/tls.crt", KeyFile: "/c/tls.key", CAFile: "/c/ca.crt"}

func TestTheAdminPageIsOnLoopback(t *testing.T) {
	b := read(t, Options{Server: "xds.test:18000", AdminPort: 9901, TLS: files, NodeID: "n", NodeCluster: "c"})
	if a := b.GetAdmin().GetAddress().GetSocketAddress(); a.GetAddress() != "127.0.0.1" || a.GetPortValue() != 9901 {
		t.Errorf("it is on %v", a)
	}
}

func TestEjectionsAreLoggedWhereToldTo(t *testing.T) {
	g := NewWithT(t)
	b := read(t, Options{Server: "xds.test:18000", TLS: files, EjectionLog: "/dev/stdout", NodeID: "n", NodeCluster: "c"})
	g.Expect(b.GetClusterManager().GetOutlierDetection().GetEventLogPath()).To(Equal("/dev/stdout"))
	b = read(t, Options{Server: "xds.test:18000", TLS: files, NodeID: "n", NodeCluster: "c"})
	g.Expect(b.GetClusterManager()).To(BeNil())
}

func TestAnAddressOrANameLeadsToTheServer(t *testing.T) {
	for address, want := range map[string]string{"10.0.0.1:1": "STATIC", "[::1]:1": "STATIC", "xds.test:1": "STRICT_DNS"} {
		if got := read(t, Options{Server: address, TLS: files, NodeID: "n", NodeCluster: "c"}).GetStaticResources().GetClusters()[0].GetType().String(); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
	for _, address := range []string{"", "xds.test", "xds.test:", ":1", "xds.test:http", "xds.test:70000", "xds.test:0"} {
		if _, err := Bootstrap(Options{Server: address, TLS: files}); err == nil {
			t.Errorf("%q is taken", address)
		}
	}
}

func TestTheServerMustShowItsName(t *testing.T) {
	for _, o := range []Options{
		{Server: "xds.test:1", TLS: files},
		{Server: "10.0.0.1:1", TLS: TLS{CertFile: "/c/tls.crt", KeyFile: "/c/tls.key", CAFile: "/c/ca.crt", ServerName: "xds.test"}},
		{Server: "xds.test:1", TLS: TLS{CertFile: "/c/tls.crt", KeyFile: "/c/tls.key", CAFile: "/c/ca.crt", ResourcesDir: "/r"}},
	} {
		b, err := Bootstrap(o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := YAML(b)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"exact: xds.test", "sni: xds.test", "san_type: DNS", "tls_maximum_protocol_version: TLSv1_3"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%+v lacks %s:\n%s", o, want, text)
			}
		}
	}
}

func TestTLSNeedsFiles(t *testing.T) {
	if _, err := Bootstrap(Options{Server: "xds.test:1", TLS: TLS{CertFile: "/c/tls.crt"}}); err == nil {
		t.Error("it does without")
	}
}

func TestSecretsFollowTheirDirectories(t *testing.T) {
	g := NewWithT(t)
	o := files
	o.ResourcesDir = "/r"
	secrets, err := Secrets(o)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(secrets).To(HaveLen(2))
	for _, name := range []string{"/r/autohealer-xds-certificate.yaml", "/r/autohealer-xds-ca.yaml"} {
		g.Expect(string(secrets[name])).To(MatchRegexp(`watched_directory:\n +path: /c\n`), name)
	}
}

func TestEjectionsAreToldAtAnAddressOfEitherFamily(t *testing.T) {
	o := Options{Server: "xds.test:18000", AdminPort: 9901, TLS: files, EjectionsPort: 9902, NodeID: "n", NodeCluster: "c"}
	for address, both := range map[string]bool{"0.0.0.0": false, "::": true, "fd00::1": false} {
		o.EjectionsAddress = address
		got := read(t, o).GetStaticResources().GetListeners()[0].GetAddress().GetSocketAddress()
		if got.GetAddress() != address || got.GetPortValue() != 9902 || got.GetIpv4Compat() != both {
			t.Errorf("%s: %v", address, got)
		}
	}
	o.EjectionsAddress = "envoy.test"
	if _, err := Bootstrap(o); err == nil {
		t.Error("a name is taken")
	}
}
