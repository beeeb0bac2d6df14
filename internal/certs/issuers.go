package certs

import (
	"fmt"
	"net"
	"strings"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmapply "github.com/cert-manager/cert-manager/pkg/client/applyconfigurations/certmanager/v1"
	cmmetaapply "github.com/cert-manager/cert-manager/pkg/client/applyconfigurations/meta/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
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
