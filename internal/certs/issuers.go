package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmapply "github.com/cert-manager/cert-manager/pkg/client/applyconfigurations/certmanager/v1"
	cmmetaapply "github.com/cert-manager/cert-manager/pkg/client/applyconfigurations/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Names of the objects in config/certmanager's rules.
const (
	fieldOwner = "autohealer-certificates"
	// bootstrapName is the Issuer that signs the CA.
	bootstrapName = "autohealer-webhook-bootstrap"
	// caName is the CA's Certificate and Secret, and the Issuer that signs with it.
	caName = "autohealer-webhook-ca"
	// leafName is the serving certificate's Certificate.
	leafName = "autohealer-webhook"
)

// labels mark what is ours. Nothing owns the objects: a certificate must outlive the Deployment that is replaced.
var labels = map[string]string{"app.kubernetes.io/name": "autohealer", "app.kubernetes.io/managed-by": "autohealer-manager"}

// Issuer is one that exists, to sign the serving certificate.
type Issuer struct {
	// Kind is Issuer or ClusterIssuer.
	Kind string
	// Name of the issuer; an Issuer's in Autohealer's own namespace.
	Name string
}

// ParseIssuer reads [ClusterIssuer/|Issuer/]name.
func ParseIssuer(text string) (Issuer, error) {
	kind, name, ok := strings.Cut(text, "/")
	if !ok {
		kind, name = cmv1.IssuerKind, text
	}
	if kind != cmv1.IssuerKind && kind != cmv1.ClusterIssuerKind {
		return Issuer{}, fmt.Errorf("%q must be an Issuer or a ClusterIssuer, as in ClusterIssuer/name", text)
	}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return Issuer{}, fmt.Errorf("%q is no name of an issuer", name)
	}
	return Issuer{Kind: kind, Name: name}, nil
}

// applied is what can be applied and named in an error.
type applied interface {
	runtime.ApplyConfiguration
	GetKind() *string
	GetName() *string
}

// objects are what cert-manager is asked for: a certificate, and unless somebody else's issuer signs it, a CA of our own.
func (m *CertManager) objects() []applied {
	if m.issuer.Name != "" {
		return []applied{m.leaf(m.issuer)}
	}
	namespace := m.options.Namespace
	bootstrap := cmapply.Issuer(bootstrapName, namespace).WithLabels(labels).
		WithSpec(cmapply.IssuerSpec().WithSelfSigned(cmapply.SelfSignedIssuer()))
	ca := cmapply.Certificate(caName, namespace).WithLabels(labels).WithSpec(
		certificate(caName, m.options.CALife, Issuer{Kind: cmv1.IssuerKind, Name: bootstrapName}).
			WithIsCA(true).WithCommonName(caName))
	issuer := cmapply.Issuer(caName, namespace).WithLabels(labels).
		WithSpec(cmapply.IssuerSpec().WithCA(cmapply.CAIssuer().WithSecretName(caName)))
	return []applied{bootstrap, ca, issuer, m.leaf(Issuer{Kind: cmv1.IssuerKind, Name: caName})}
}

func (m *CertManager) leaf(issuer Issuer) *cmapply.CertificateApplyConfiguration {
	spec := certificate(m.IssuedSecret(), m.options.LeafLife, issuer).WithUsages(cmv1.UsageDigitalSignature, cmv1.UsageServerAuth, cmv1.UsageClientAuth)
	for _, host := range m.options.Hosts {
		if net.ParseIP(host) != nil {
			spec.WithIPAddresses(host)
		} else {
			spec.WithDNSNames(host)
		}
	}
	return cmapply.Certificate(leafName, m.options.Namespace).WithLabels(labels).WithSpec(spec)
}

// certificate is what both have in common. Like our own, they are renewed at two thirds of their life, each time with a
// new key.
func certificate(secret string, life time.Duration, issuer Issuer) *cmapply.CertificateSpecApplyConfiguration {
	return cmapply.CertificateSpec().
		WithSecretName(secret).
		WithSecretTemplate(cmapply.CertificateSecretTemplate().WithLabels(labels)).
		WithDuration(metav1.Duration{Duration: life}).WithRenewBefore(metav1.Duration{Duration: life / 3}).
		WithPrivateKey(cmapply.CertificatePrivateKey().
			WithAlgorithm(cmv1.ECDSAKeyAlgorithm).WithSize(256).WithRotationPolicy(cmv1.RotationPolicyAlways)).
		WithIssuerRef(cmmetaapply.IssuerReference().WithGroup(cmv1.SchemeGroupVersion.Group).WithKind(issuer.Kind).WithName(issuer.Name))
}

// retryLoad is how often missing or broken files are looked at again before the first good pair.
const retryLoad = time.Second

// Files serves tls.crt and tls.key of a directory and follows changes. A pair that can't be read is logged, and the last
// good one stays. Publishing the CA is up to whoever writes the files.
type Files struct {
	dir     string
	watcher atomic.Pointer[certwatcher.CertWatcher]
}

// NewFiles gives a provider that does nothing before SetupWithManager.
func NewFiles(dir string) *Files { return &Files{dir: dir} }

// SetupWithManager runs the provider on every replica.
func (f *Files) SetupWithManager(mgr ctrl.Manager) error {
	if err := registerMetrics(); err != nil {
		return err
	}
	return mgr.Add(f)
}

// NeedLeaderElection is false: every replica serves.
func (f *Files) NeedLeaderElection() bool { return false }

// Start loads the files as soon as they are there and follows them until ctx ends.
func (f *Files) Start(ctx context.Context) error {
	watcher, err := f.load(ctx)
	if err != nil {
		return nil //nolint:nilerr // only the end of ctx ends the attempts
	}
	watcher.RegisterCallback(func(c tls.Certificate) { expiry.Set(float64(c.Leaf.NotAfter.Unix())) })
	f.watcher.Store(watcher)
	if err := watcher.Start(ctx); err != nil {
		return fmt.Errorf("follow the certificate in %s: %w", f.dir, err)
	}
	return nil
}

// load tries until it succeeds or ctx ends. The manager comes up meanwhile, unready, and its controllers may act.
func (f *Files) load(ctx context.Context) (*certwatcher.CertWatcher, error) {
	var watcher *certwatcher.CertWatcher
	var logged string
	err := wait.PollUntilContextCancel(ctx, retryLoad, true, func(ctx context.Context) (bool, error) {
		var err error
		watcher, err = certwatcher.New(filepath.Join(f.dir, "tls.crt"), filepath.Join(f.dir, "tls.key"))
		if err != nil && err.Error() != logged {
			logged = err.Error()
			log.FromContext(ctx).Error(err, "Can't load the serving certificate, retrying", "dir", f.dir)
		}
		return err == nil, nil
	})
	return watcher, err
}

// TLSConfig lets a server serve the current certificate; for the webhook server's TLSOpts.
func (f *Files) TLSConfig(c *tls.Config) {
	c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if watcher := f.watcher.Load(); watcher != nil {
			return watcher.GetCertificate(hello)
		}
		return nil, errNothingServed
	}
}

// Ready is a readiness check: a pair was loaded.
func (f *Files) Ready(*http.Request) error {
	if f.watcher.Load() == nil {
		return fmt.Errorf("%w in %s", errNothingServed, f.dir)
	}
	return nil
}

// SelfSigned keeps a CA and a serving certificate in the record, publishes the CA in the webhook's configuration, and
// rotates both: at two thirds of their life, which leaves a third for somebody to notice that rotation fails.
//
// Deleting the Secret renews everything at once. It is meant for a leaked key, and so doesn't keep the old CA trusted:
// admission may be refused for the seconds until every replica has the new certificate.
type SelfSigned struct{ keeper }

// NewSelfSigned gives a provider that does nothing before SetupWithManager.
func NewSelfSigned(o Options) *SelfSigned {
	return &SelfSigned{keeper{options: o.withDefaults(), section: selfSignedSection}}
}

// Reconcile takes the rotation step that is due, serves what the record holds and publishes its CAs.
func (s *SelfSigned) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return s.keep(ctx, s.sign)
}

// sign makes what should be served in place of what is; nil when that will do. The CA to come signs once it may be served.
func (s *SelfSigned) sign(is state, c decisionInput) (*offer, error) {
	ca, hosts := is.ca, s.options.Hosts
	over := is.over(c.now)
	switch {
	case is.next != nil && (c.settled || over):
		ca = is.next
	case is.next == nil && (over || is.usable(c.now) && ca.due(c.now, s.options.CALife)):
		var err error
		if ca, err = newAuthority(c.now, s.options.CALife); err != nil {
			return nil, err
		}
	case is.leaf.due(c.now, s.options.LeafLife) && ca.notAfter().After(is.leaf.notAfter()):
	case is.leaf.covers(hosts) != nil:
		// The present hosts stay in until the next renewal: replicas of two versions would overwrite each other for ever.
		hosts = slices.Concat(hosts, is.leaf.hosts())
		slices.Sort(hosts)
		hosts = slices.Compact(hosts)
	default:
		return nil, nil
	}
	return ca.issue(c.now, s.options.LeafLife, hosts)
}
