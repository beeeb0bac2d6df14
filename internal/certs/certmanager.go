package certs

import (
	"context"
	"errors"
	"fmt"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// retryIssue is how often a certificate that doesn't come is looked for. The Secret's events come sooner.
	retryIssue = 5 * time.Second
	// reapply is how often the objects are applied again. Rarely, because two versions that want different hosts would have
	// the certificate issued anew each time.
	reapply = time.Hour
)

var errNoCertManager = errors.New("cert-manager's API isn't there (cert-manager.io/v1, kind Certificate): " +
	"install cert-manager, https://cert-manager.io/docs/installation/, or run with --cert-provider=self-signed")

// CertManager has cert-manager issue the certificate, and takes it over into the record: a certificate of a new CA is
// served only once that CA has been published, which cert-manager itself doesn't wait for. Its cainjector publishes.
type CertManager struct {
	keeper
	issuer Issuer
	mapper meta.RESTMapper

	appliedAt time.Time // needs no lock: Reconcile never runs twice at once
}

// NewCertManager gives a provider that does nothing before SetupWithManager. The zero issuer means one of its own, with a
// CA that cert-manager makes.
func NewCertManager(o Options, issuer Issuer) *CertManager {
	return &CertManager{keeper: keeper{options: o.withDefaults(), section: certManagerSection, injector: true}, issuer: issuer}
}

// IssuedSecret is the Secret that cert-manager puts the certificate into. The manager reads it.
func (m *CertManager) IssuedSecret() string { return m.options.SecretName + "-issued" }

// Reconcile takes over what cert-manager has issued, step by step, serves what the record holds and publishes its CAs.
// What is in the way of a new certificate is no reason to stop serving the present one.
func (m *CertManager) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	issued, problem := m.issued(ctx)
	m.fail(ctx, problem)
	result, err := m.keep(ctx, func(state, decisionInput) (*offer, error) { return issued, nil })
	if problem != nil {
		result.RequeueAfter = min(result.RequeueAfter, retryIssue)
	}
	return result, err
}

// issued is the certificate that cert-manager issued last.
func (m *CertManager) issued(ctx context.Context) (*offer, error) {
	if err := m.apply(ctx); err != nil {
		return nil, err
	}
	secret := &corev1.Secret{}
	err := m.reader.Get(ctx, client.ObjectKey{Namespace: m.options.Namespace, Name: m.IssuedSecret()}, secret)
	if apierrors.IsNotFound(err) {
		return nil, m.unissued(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", m.options.Namespace, m.IssuedSecret(), err)
	}
	if len(secret.Data[cmmeta.TLSCAKey]) == 0 {
		return nil, fmt.Errorf("find the CA: Secret %s/%s has no %s; the issuer must say which CA signs, as those of type CA and Vault do",
			secret.Namespace, secret.Name, cmmeta.TLSCAKey)
	}
	issued, err := read(secret)
	if err == nil {
		err = issued.acceptable(m.options.Hosts, m.options.Clock.Now())
	}
	if err != nil {
		return nil, fmt.Errorf("use the certificate in Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return issued, nil
}

// read parses what cert-manager issued.
func read(secret *corev1.Secret) (*offer, error) {
	leaf, err := readPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey], true)
	if err != nil {
		return nil, fmt.Errorf("read certificate and key: %w", err)
	}
	ca, err := readPair(secret.Data[cmmeta.TLSCAKey], nil, false)
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	return &offer{leaf: leaf, ca: ca}, nil
}

// apply applies Issuers and Certificates when that is due.
func (m *CertManager) apply(ctx context.Context) error {
	now := m.options.Clock.Now()
	if !m.appliedAt.IsZero() && now.Sub(m.appliedAt) < reapply {
		return nil
	}
	_, err := m.mapper.RESTMapping(cmv1.SchemeGroupVersion.WithKind(cmv1.CertificateKind).GroupKind(), cmv1.SchemeGroupVersion.Version)
	if meta.IsNoMatchError(err) {
		return errNoCertManager
	}
	if err != nil {
		return fmt.Errorf("look for cert-manager's API: %w", err)
	}
	for _, object := range m.objects() {
		if err := m.client.Apply(ctx, object, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", *object.GetKind(), *object.GetName(), err)
		}
	}
	m.appliedAt = now
	return nil
}

// unissued says why there is no certificate yet, in cert-manager's words.
func (m *CertManager) unissued(ctx context.Context) error {
	certificate := &cmv1.Certificate{}
	key := client.ObjectKey{Namespace: m.options.Namespace, Name: leafName}
	if err := m.reader.Get(ctx, key, certificate); err != nil {
		if apierrors.IsNotFound(err) {
			m.appliedAt = time.Time{} // somebody deleted it
		}
		return fmt.Errorf("read Certificate %s: %w", key, err)
	}
	for _, wanted := range []cmv1.CertificateConditionType{cmv1.CertificateConditionIssuing, cmv1.CertificateConditionReady} {
		for _, condition := range certificate.Status.Conditions {
			if condition.Type == wanted && condition.Message != "" {
				return fmt.Errorf("wait for Certificate %s: %s=%s, %s: %s", key, wanted, condition.Status, condition.Reason, condition.Message)
			}
		}
	}
	return fmt.Errorf("wait for Certificate %s: cert-manager hasn't said anything about it; is its controller running?", key)
}
