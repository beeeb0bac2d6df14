package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const day = 24 * time.Hour

var began = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// world is an API server with a webhook configuration in it, a clock, and the CA that cert-manager signs with.
type world struct {
	client    client.WithWatch
	clock     *testclock.FakePassiveClock
	authority signer
	// injectorDown: nothing copies what is handed to the cainjector.
	injectorDown bool
}

func newWorld() *world {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "autohealer"},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "a.example.org"}, {Name: "b.example.org"}},
	}
	scheme := runtime.NewScheme()
	// No more than that: the fake client makes tables of all that it knows, each time.
	if err := errors.Join(corev1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme), cmv1.AddToScheme(scheme)); err != nil {
		panic(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).Build()
	w := &world{clock: testclock.NewFakePassiveClock(began), authority: newSigner("first", began)}
	w.client = interceptor.NewClient(c, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			return errors.Join(c.Create(ctx, object, opts...), w.inject(ctx, c, object))
		},
		Update: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.UpdateOption) error {
			return errors.Join(c.Update(ctx, object, opts...), w.inject(ctx, c, object))
		},
	})
	return w
}

// inject does what the cainjector does once its Secret is written.
func (w *world) inject(ctx context.Context, c client.Client, object client.Object) error {
	secret, ok := object.(*corev1.Secret)
	if !ok || w.injectorDown || secret.Name != "autohealer-webhook-cert-bundle" || secret.Annotations["cert-manager.io/allow-direct-injection"] != "true" {
		return nil
	}
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: "autohealer"}, config); err != nil {
		return err
	}
	for i := range config.Webhooks {
		config.Webhooks[i].ClientConfig.CABundle = secret.Data["ca.crt"]
	}
	return c.Update(ctx, config)
}

// replica is one more manager in this world.
func (w *world) replica(hosts ...string) *SelfSigned {
	if len(hosts) == 0 {
		hosts = []string{"autohealer-webhook.autohealer-system.svc", "127.0.0.1"}
	}
	s := NewSelfSigned(Options{
		Namespace: "autohealer-system", SecretName: "autohealer-webhook-cert", WebhookConfiguration: "autohealer",
		Hosts: hosts, Clock: w.clock,
	})
	s.client, s.reader = w.client, w.client
	return s
}

func (w *world) wait(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func (w *world) config(g Gomega) *admissionregistrationv1.ValidatingWebhookConfiguration {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	g.Expect(w.client.Get(context.Background(), client.ObjectKey{Name: "autohealer"}, config)).To(Succeed())
	return config
}

func (w *world) bundle(g Gomega) []byte { return w.config(g).Webhooks[0].ClientConfig.CABundle }

func (w *world) secret(g Gomega) *corev1.Secret {
	secret := &corev1.Secret{}
	g.Expect(w.client.Get(context.Background(), client.ObjectKey{Namespace: "autohealer-system", Name: "autohealer-webhook-cert"}, secret)).To(Succeed())
	return secret
}

// reconcileOnce reconciles, and once more where the cainjector may have changed the configuration: that is an event.
func reconcileOnce(r reconcile.Reconciler) error {
	_, err := r.Reconcile(context.Background(), reconcile.Request{})
	injected := false
	switch m := r.(type) {
	case *CertManager:
		injected = true
	case member:
		injected = m.injector
	}
	if injected && err == nil {
		_, err = r.Reconcile(context.Background(), reconcile.Request{})
	}
	return err
}

// verify does what an API server does with the certificate that it is shown.
func verify(serving *tls.Certificate, bundle []byte, now time.Time) error {
	roots, err := cert.NewPoolFromBytes(bundle)
	if err != nil {
		return err
	}
	_, err = serving.Leaf.Verify(x509.VerifyOptions{
		DNSName: "autohealer-webhook.autohealer-system.svc", Roots: roots, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}

func authorities(g Gomega, bundle []byte) []string {
	parsed, err := cert.ParseCertsPEM(bundle)
	g.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, c := range parsed {
		names = append(names, c.Subject.CommonName)
	}
	slices.Sort(names)
	return names
}
