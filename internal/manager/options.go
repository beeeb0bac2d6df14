package manager

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/resourcestack/autohealer/internal/certs"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// namespaceFile is where Kubernetes tells a pod its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

type options struct {
	namespace string

	leaderElect          bool
	leaderElectNamespace string

	metricsAddress, probeAddress, pprofAddress string

	webhookBindHost string
	webhookPort     int
	webhookHosts    []string

	probeLoopback bool

	envoys envoyOptions

	certProvider, certDir, certSecret string
	certIssuer                        certs.Issuer
	certSettle                        time.Duration

	logFormat string
	verbosity int

	version bool
	// built is the version of this program.
	built string
	// timings are what it waits by itself.
	timings timing.Timings
}

// addWebhookHosts reads hosts with commas between them.
func (o *options) addWebhookHosts(value string) error {
	for host := range strings.SplitSeq(value, ",") {
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
			return fmt.Errorf("%q is neither a DNS name nor an IP address", host)
		}
		o.webhookHosts = append(o.webhookHosts, host)
	}
	return nil
}

// parse reads the command line and checks that it makes sense.
func parse(flags *flag.FlagSet, args []string) (options, error) {
	var o options
	flags.StringVar(&o.namespace, "namespace", ownNamespace(),
		"Autohealer's own namespace. Default: the pod's, from POD_NAMESPACE or its service account.")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "Act only as the elected leader. The webhook is served either way.")
	flags.StringVar(&o.leaderElectNamespace, "leader-elect-namespace", "", "Namespace of the leader's Lease. Default: --namespace.")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8443",
		"Where to serve metrics, over HTTPS, to who may get /metrics; 0 for nowhere.")
	flags.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "Where to serve /livez and /readyz.")
	flags.StringVar(&o.pprofAddress, "pprof-bind-address", "", "Where to serve profiles, on loopback only. Default: nowhere.")
	flags.StringVar(&o.webhookBindHost, "webhook-bind-host", "", "Address to serve the webhook on. Default: all.")
	flags.IntVar(&o.webhookPort, "webhook-port", 9443, "Port to serve the webhook on.")
	flags.Func("webhook-host",
		"Further host (DNS name or IP address) under which API servers call the webhook, for a manager outside the cluster. Repeatable.",
		o.addWebhookHosts)
	flags.BoolVar(&o.probeLoopback, "probe-loopback", false,
		"Let ProbeConfigs probe API servers on this machine's loopback addresses, for tests. In a pod, tenants could reach what listens there.")
	addEnvoyFlags(flags, &o.envoys)
	addCertificateFlags(flags, &o)
	flags.BoolVar(&o.version, "version", false, "Print the version and exit.")
	flags.StringVar(&o.logFormat, "log-format", "json", "json or text.")
	flags.IntVar(&o.verbosity, "v", 0, "How much to log: 0 what changes, 1 also why nothing does, up to 9.")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.leaderElectNamespace == "" {
		o.leaderElectNamespace = o.namespace
	}
	return o, o.validate()
}

func addCertificateFlags(flags *flag.FlagSet, o *options) {
	flags.StringVar(&o.certProvider, "cert-provider", selfSigned,
		"Where the serving certificate comes from: self-signed (made, published and rotated by the managers), "+
			"cert-manager (issued by it, published by the managers) or files.")
	flags.StringVar(&o.certDir, "cert-dir", "", "Directory with tls.crt and tls.key, for --cert-provider=files.")
	flags.StringVar(&o.certSecret, "cert-secret", "autohealer-webhook-cert",
		"Secret in --namespace with the certificate that is served and the CAs to trust, unless --cert-provider=files. "+
			"Cert-manager puts its own beside it, into a Secret with -issued behind this name.")
	flags.DurationVar(&o.certSettle, "cert-settle", 2*time.Minute,
		"How long a new CA is published before anything is served that it signed: longer than API servers take to notice.")
	flags.Func("cert-manager-issuer",
		"[ClusterIssuer/|Issuer/]name of an issuer that exists, for --cert-provider=cert-manager. Default: one of its own, with a CA.",
		func(value string) (err error) {
			o.certIssuer, err = certs.ParseIssuer(value)
			return err
		})
}

// ownNamespace is "" outside a cluster.
func ownNamespace() string {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	text, err := os.ReadFile(namespaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// validate lists everything that is wrong.
func (o options) validate() error {
	if o.version {
		return nil
	}
	return errors.Join(o.validateNamespaces(), o.validateAddresses(), o.validateCertificate(), o.envoys.validate(), o.validateLogs())
}

// validateTimings: what tests wait for less long than production is no manager for a cluster.
func (o options) validateTimings(server string) error {
	if o.timings.Production() {
		return nil
	}
	at, err := url.Parse(server)
	if err != nil {
		return fmt.Errorf("read the API server's address: %w", err)
	}
	if ip := net.ParseIP(at.Hostname()); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("this manager waits for less long than is safe, for tests, and works with API servers at loopback addresses only; %s is none", at.Host)
	}
	return nil
}

func (o options) validateNamespaces() error {
	if o.namespace == "" {
		return errors.New("--namespace is required outside a cluster, for example --namespace=autohealer-system")
	}
	if len(validation.IsDNS1123Label(o.namespace)) > 0 {
		return fmt.Errorf("--namespace=%s is no name of a namespace", o.namespace)
	}
	if len(validation.IsDNS1123Label(o.leaderElectNamespace)) > 0 {
		return fmt.Errorf("--leader-elect-namespace=%s is no name of a namespace", o.leaderElectNamespace)
	}
	return nil
}

func (o options) validateAddresses() error {
	var errs []error
	for name, value := range map[string]string{
		"metrics-bind-address": o.metricsAddress, "health-probe-bind-address": o.probeAddress, "pprof-bind-address": o.pprofAddress,
	} {
		if value == "" || value == "0" {
			continue
		}
		if _, _, err := net.SplitHostPort(value); err != nil {
			errs = append(errs, fmt.Errorf("--%s=%s must be host:port, or 0 for off", name, value))
		}
	}
	if host, _, err := net.SplitHostPort(o.pprofAddress); err == nil && host != "localhost" && !net.ParseIP(host).IsLoopback() {
		errs = append(errs, fmt.Errorf("--pprof-bind-address=%s must be on loopback: profiles show what is in memory", o.pprofAddress))
	}
	if o.webhookPort < 1 || o.webhookPort > 65535 {
		errs = append(errs, fmt.Errorf("--webhook-port=%d must be from 1 to 65535", o.webhookPort))
	}
	return errors.Join(errs...)
}

func (o options) validateCertificate() error {
	if !slices.Contains([]string{selfSigned, certManager, files}, o.certProvider) {
		return fmt.Errorf("--cert-provider=%s must be self-signed, cert-manager or files", o.certProvider)
	}
	if o.certIssuer.Name != "" && o.certProvider != certManager {
		return errors.New("--cert-manager-issuer is for --cert-provider=cert-manager")
	}
	if o.certProvider == files {
		if o.certDir == "" {
			return errors.New("--cert-provider=files needs --cert-dir")
		}
		return nil
	}
	if o.certDir != "" {
		return errors.New("--cert-dir is for --cert-provider=files")
	}
	if len(validation.IsDNS1123Subdomain(o.certSecret)) > 0 {
		return fmt.Errorf("--cert-secret=%s is no name of a Secret", o.certSecret)
	}
	if o.certSettle <= 0 {
		return fmt.Errorf("--cert-settle=%s must be more than nothing", o.certSettle)
	}
	return nil
}

func (o options) validateLogs() error {
	if o.logFormat != "json" && o.logFormat != "text" {
		return fmt.Errorf("--log-format=%s must be json or text", o.logFormat)
	}
	if o.verbosity < 0 || o.verbosity > 9 {
		return fmt.Errorf("--v=%d must be from 0 to 9", o.verbosity)
	}
	return nil
}
