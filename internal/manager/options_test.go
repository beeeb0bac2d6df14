package manager

import (
	"flag"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/xds"
)

func parseFor(t *testing.T, args ...string) (options, error) {
	t.Helper()
	t.Setenv("POD_NAMESPACE", "")
	flags := flag.NewFlagSet("manager", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return parse(flags, args)
}

func TestOptionsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"outside a cluster the namespace is needed":  {nil, "--namespace is required outside a cluster, for example --namespace=autohealer-system"},
		"a namespace that can't be":                  {[]string{"--namespace=A_b"}, "--namespace=A_b is no name of a namespace"},
		"a lease's namespace that can't be":          {[]string{"--namespace=a", "--leader-elect-namespace=B"}, "--leader-elect-namespace=B is no name of a namespace"},
		"an address without a port":                  {[]string{"--namespace=a", "--metrics-bind-address=localhost"}, "--metrics-bind-address=localhost must be host:port, or 0 for off"},
		"profiles for the whole network":             {[]string{"--namespace=a", "--pprof-bind-address=:6060"}, "--pprof-bind-address=:6060 must be on loopback"},
		"profiles on another address":                {[]string{"--namespace=a", "--pprof-bind-address=10.0.0.1:6060"}, "must be on loopback"},
		"a port that can't be":                       {[]string{"--namespace=a", "--webhook-port=70000"}, "--webhook-port=70000 must be from 1 to 65535"},
		"a host that can't be":                       {[]string{"--namespace=a", "--webhook-host=a,b_c"}, `"b_c" is neither a DNS name nor an IP address`},
		"an unknown provider":                        {[]string{"--namespace=a", "--cert-provider=acme"}, "--cert-provider=acme must be self-signed, cert-manager or files"},
		"files without a directory":                  {[]string{"--namespace=a", "--cert-provider=files"}, "--cert-provider=files needs --cert-dir"},
		"a directory that would be ignored":          {[]string{"--namespace=a", "--cert-dir=/certs"}, "--cert-dir is for --cert-provider=files"},
		"an issuer of a kind that can't be":          {[]string{"--namespace=a", "--cert-provider=cert-manager", "--cert-manager-issuer=Vault/a"}, "must be an Issuer or a ClusterIssuer"},
		"an issuer with a name that can't be":        {[]string{"--namespace=a", "--cert-provider=cert-manager", "--cert-manager-issuer=A"}, `"A" is no name of an issuer`},
		"an issuer that would be ignored":            {[]string{"--namespace=a", "--cert-manager-issuer=a"}, "--cert-manager-issuer is for --cert-provider=cert-manager"},
		"a directory that cert-manager would ignore": {[]string{"--namespace=a", "--cert-provider=cert-manager", "--cert-dir=/certs"}, "--cert-dir is for --cert-provider=files"},
		"CAs that sign before they are trusted":      {[]string{"--namespace=a", "--cert-settle=0s"}, "--cert-settle=0s must be more than nothing"},
		"a Secret that can't be":                     {[]string{"--namespace=a", "--cert-secret=A"}, "--cert-secret=A is no name of a Secret"},
		"an unknown log format":                      {[]string{"--namespace=a", "--log-format=xml"}, "--log-format=xml must be json or text"},
		"too much to log":                            {[]string{"--namespace=a", "--v=10"}, "--v=10 must be from 0 to 9"},
		"Envoys that can't be anybody":               {[]string{"--namespace=a", "--xds-bind-address=:1", "--xds-client-ca=ca.crt"}, "--xds-client-ca needs --xds-client"},
		"Envoys that nobody can tell apart":          {[]string{"--namespace=a", "--xds-bind-address=:1", "--xds-client=a=*"}, "--xds-client needs --xds-client-ca"},
		"Envoys that aren't served":                  {[]string{"--namespace=a", "--xds-client=a=*"}, "are for --xds-bind-address"},
		"plaintext with certificates":                {[]string{"--namespace=a", "--xds-bind-address=:1", "--xds-client-ca=a", "--xds-client=a=*", "--xds-plaintext"}, "exclude each other"},
		"an Envoy without namespaces":                {[]string{"--namespace=a", "--xds-client=spiffe://a"}, `"spiffe://a" is not NAME=NAMESPACE`},
		"an Envoy of a namespace that can't be":      {[]string{"--namespace=a", "--xds-client=a=shop,B"}, `"B" is neither a namespace's name nor *`},
		"an Envoy that is there twice":               {[]string{"--namespace=a", "--xds-client=a=shop", "--xds-client=a=*"}, "a is there twice"},
		"an xDS address without a port":              {[]string{"--namespace=a", "--xds-bind-address=localhost"}, "--xds-bind-address=localhost must be host:port"},
		"an argument that is no flag":                {[]string{"--namespace=a", "start"}, `unexpected argument "start"`},
		"everything wrong is listed at once":         {[]string{"--namespace=A", "--webhook-port=0"}, "--webhook-port=0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseFor(t, test.args...)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.says)))
		})
	}
}

func TestDefaults(t *testing.T) {
	g := NewWithT(t)
	o, err := parseFor(t, "--namespace=autohealer-system", "--webhook-host=127.0.0.1", "--webhook-host=a.example.org,::1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.leaderElect).To(BeTrue())
	g.Expect(o.leaderElectNamespace).To(Equal("autohealer-system"))
	g.Expect(o.metricsAddress).To(Equal(":8443"))
	g.Expect(o.pprofAddress).To(BeEmpty(), "profiles are off unless asked for")
	g.Expect(o.webhookHosts).To(ConsistOf("127.0.0.1", "a.example.org", "::1"))
}

func TestWhoMaySeeWhichNamespaces(t *testing.T) {
	g := NewWithT(t)
	o, err := parseFor(t, "--namespace=a", "--xds-bind-address=:18000", "--xds-client-ca=ca.crt",
		"--xds-client=spiffe://example.org/edge?x=y=*", "--xds-client=envoy.shop.example.org=shop,bank")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(o.envoys.clients).To(Equal(map[string]xds.Scope{
		"spiffe://example.org/edge?x=y": {All: true, Namespaces: map[string]bool{}},
		"envoy.shop.example.org":        {Namespaces: map[string]bool{"shop": true, "bank": true}},
	}))
}

func TestAnIssuerIsNamedWithOrWithoutItsKind(t *testing.T) {
	for text, want := range map[string]string{"a": "Issuer/a", "Issuer/a.b": "Issuer/a.b", "ClusterIssuer/vault": "ClusterIssuer/vault"} {
		o, err := parseFor(t, "--namespace=a", "--cert-provider=cert-manager", "--cert-manager-issuer="+text)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(o.certIssuer.Kind + "/" + o.certIssuer.Name).To(Equal(want))
	}
}

func TestThePodTellsTheNamespace(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "healing")
	o, err := parse(flag.NewFlagSet("manager", flag.ContinueOnError), nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(o.namespace).To(Equal("healing"))
}

func TestLogsAreJSONUpToTheVerbosityAskedFor(t *testing.T) {
	g := NewWithT(t)
	var out strings.Builder
	log := logr.FromSlogHandler(logHandler(options{logFormat: "json", verbosity: 1}, &out))
	log.V(1).Info("Held back", "node", "n")
	log.V(2).Info("Not shown")
	g.Expect(out.String()).To(MatchRegexp(`^{"time":"[^"]+","level":"DEBUG\+3","msg":"Held back","node":"n"}\n$`))
	slog.New(logHandler(options{logFormat: "text"}, &out)).Info("plain")
	g.Expect(out.String()).To(HaveSuffix("msg=plain\n"))
}

func TestAManagerOfTestsWorksOnThisMachineOnly(t *testing.T) {
	short := options{timings: timing.Divided(3)}
	for server, allowed := range map[string]bool{
		"https://127.0.0.1:6443": true, "https://[::1]:6443": true, "https://10.96.0.1": false, "https://api.example.com": false, "https://localhost:6443": false,
	} {
		if err := short.validateTimings(server); (err == nil) != allowed {
			t.Errorf("%s: %v", server, err)
		}
		if err := (options{}).validateTimings(server); err != nil {
			t.Errorf("%s with production's timings: %v", server, err)
		}
	}
}
