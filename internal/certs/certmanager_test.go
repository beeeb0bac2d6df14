package certs

import (
	"context"
	"crypto/x509"
	"testing"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func serial(m *CertManager) string {
	if leaf := m.serving.Load(); leaf != nil {
		return leaf.Leaf.SerialNumber.String()
	}
	return "none"
}

func TestTheFirstCertificateIsServedAndItsCAPublished(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	m := w.asker()
	leaf := w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(serial(m)).To(Equal(leaf.cert.SerialNumber.String()))
	g.Expect(m.Ready(nil)).To(Succeed())
	g.Expect(verify(m.serving.Load(), w.bundle(g), w.clock.Now())).To(Succeed())
	g.Expect(w.config(g).Webhooks[1].ClientConfig.CABundle).To(Equal(w.bundle(g)))

	secret, config := w.secret(g).ResourceVersion, w.config(g).ResourceVersion
	w.wait(day)
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(w.secret(g).ResourceVersion).To(Equal(secret), "nothing is due")
	g.Expect(w.config(g).ResourceVersion).To(Equal(config))
}

func TestWhatIsAskedOfCertManager(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	g.Expect(reconcileOnce(w.asker())).To(Succeed())
	get := func(name string, object client.Object) {
		g.Expect(w.client.Get(context.Background(), types.NamespacedName{Namespace: "autohealer-system", Name: name}, object)).To(Succeed())
		g.Expect(object.GetLabels()).To(HaveKeyWithValue("app.kubernetes.io/name", "autohealer"))
		g.Expect(object.GetOwnerReferences()).To(BeEmpty())
	}
	var bootstrap, issuer cmv1.Issuer
	var ca, leaf cmv1.Certificate
	get("autohealer-webhook-bootstrap", &bootstrap)
	get("autohealer-webhook-ca", &issuer)
	get("autohealer-webhook-ca", &ca)
	get("autohealer-webhook", &leaf)
	g.Expect(bootstrap.Spec.SelfSigned).NotTo(BeNil())
	g.Expect(ca.Spec.IsCA).To(BeTrue())
	g.Expect(ca.Spec.IssuerRef).To(Equal(cmmeta.IssuerReference{Group: "cert-manager.io", Kind: "Issuer", Name: "autohealer-webhook-bootstrap"}))
	g.Expect(issuer.Spec.CA.SecretName).To(Equal(ca.Spec.SecretName))
	g.Expect(leaf.Spec.IssuerRef.Name).To(Equal("autohealer-webhook-ca"))
	g.Expect(leaf.Spec.SecretName).To(Equal("autohealer-webhook-cert-issued"))
	g.Expect(leaf.Spec.DNSNames).To(ConsistOf(webhookHost))
	g.Expect(leaf.Spec.Duration.Duration).To(Equal(90 * day))
	g.Expect(leaf.Spec.RenewBefore.Duration).To(Equal(30 * day))
}

func TestAnIssuerThatExistsNeedsNoneOfOurs(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	m := w.asker()
	m.issuer = Issuer{Kind: "ClusterIssuer", Name: "vault"}
	g.Expect(reconcileOnce(m)).To(Succeed())
	var issuers cmv1.IssuerList
	var certificates cmv1.CertificateList
	g.Expect(w.client.List(context.Background(), &issuers)).To(Succeed())
	g.Expect(w.client.List(context.Background(), &certificates)).To(Succeed())
	g.Expect(issuers.Items).To(BeEmpty())
	g.Expect(certificates.Items).To(HaveLen(1))
	g.Expect(certificates.Items[0].Spec.IssuerRef).To(Equal(cmmeta.IssuerReference{Group: "cert-manager.io", Kind: "ClusterIssuer", Name: "vault"}))
}

func TestWithoutCertManagerItSaysWhatToDoAndTriesOn(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	m := w.asker()
	m.mapper = installed(false)
	logged.reset()
	for range 2 {
		result, err := m.Reconcile(context.Background(), reconcile.Request{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(result.RequeueAfter).To(Equal(5 * time.Second))
	}
	g.Expect(m.Ready(nil)).To(MatchError(And(
		ContainSubstring("no serving certificate yet"), ContainSubstring("install cert-manager"), ContainSubstring("--cert-provider=self-signed"))))
	g.Expect(logged.count("Can't get a new serving certificate")).To(Equal(1), "said once")

	m.mapper = installed(true)
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(m.Ready(nil)).To(MatchError(ContainSubstring("is its controller running?")))
	w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(m.Ready(nil)).To(Succeed())
}

func TestWhyCertManagerDoesNotIssueIsPassedOn(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	m := w.asker()
	g.Expect(reconcileOnce(m)).To(Succeed())
	certificate := &cmv1.Certificate{}
	g.Expect(w.client.Get(context.Background(), types.NamespacedName{Namespace: "autohealer-system", Name: "autohealer-webhook"}, certificate)).To(Succeed())
	certificate.Status.Conditions = []cmv1.CertificateCondition{
		{Type: "Ready", Status: "False", Reason: "DoesNotExist", Message: "Issuing certificate as Secret does not exist"},
		{Type: "Issuing", Status: "False", Reason: "Denied", Message: "not on my watch"},
	}
	g.Expect(w.client.Update(context.Background(), certificate)).To(Succeed())
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(m.Ready(nil)).To(MatchError(ContainSubstring("Issuing=False, Denied: not on my watch")))

	g.Expect(w.client.Delete(context.Background(), certificate)).To(Succeed())
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(w.client.Get(context.Background(), client.ObjectKeyFromObject(certificate), certificate)).To(Succeed(), "a deleted one is applied again")
}

func TestACAThatItsIssuerGivesUpIsForgotten(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	m := w.asker()
	w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	first := w.authority
	w.authority = newSigner("second", w.clock.Now())
	w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(authorities(g, w.bundle(g))).To(HaveLen(2), "it is published")
	w.authority = first
	renewed := w.issue()
	w.wait(2 * time.Minute)
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(serial(m)).To(Equal(renewed.cert.SerialNumber.String()))
	g.Expect(authorities(g, w.bundle(g))).To(HaveLen(1), "what signed nothing isn't trusted")
}

func TestHowFarClocksDifferIsForPeopleToSay(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	m := w.asker()
	m.options.Settle = 15 * time.Minute
	first := w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	w.wait(60 * day)
	second := w.issue()
	for _, c := range []struct {
		wait time.Duration
		want signer
	}{{14 * time.Minute, first}, {time.Minute, second}} {
		w.wait(c.wait)
		g.Expect(reconcileOnce(m)).To(Succeed())
		g.Expect(serial(m)).To(Equal(c.want.cert.SerialNumber.String()))
	}
}

func TestARenewedCertificateIsServedOnceNoClockRefusesIt(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	m := w.asker()
	first := w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	w.wait(60 * day)
	second := w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	w.wait(2*time.Minute - time.Second)
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(serial(m)).To(Equal(first.cert.SerialNumber.String()))
	w.wait(time.Second)
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(serial(m)).To(Equal(second.cert.SerialNumber.String()))
	g.Expect(authorities(g, w.bundle(g))).To(ConsistOf("first"))
}

func TestACertificateOfANewCAWaitsUntilThatIsTrusted(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	m := w.asker()
	first := w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	w.wait(30 * day)
	w.renewAuthority("second")
	second := w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(authorities(g, w.bundle(g))).To(ConsistOf("first", "second"))
	g.Expect(serial(m)).To(Equal(first.cert.SerialNumber.String()))

	restarted := w.asker()
	g.Expect(reconcileOnce(restarted)).To(Succeed())
	g.Expect(restarted.Ready(nil)).To(Succeed(), "a restart in the midst of it")
	g.Expect(serial(restarted)).To(Equal(first.cert.SerialNumber.String()))

	g.Expect(reconcileOnce(m)).To(Succeed())
	w.wait(2*time.Minute - time.Second)
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(serial(m)).To(Equal(first.cert.SerialNumber.String()))
	w.wait(time.Second)
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(serial(m)).To(Equal(second.cert.SerialNumber.String()))
	g.Expect(reconcileOnce(restarted)).To(Succeed())
	g.Expect(serial(restarted)).To(Equal(second.cert.SerialNumber.String()), "the other follows the record")

	g.Expect(authorities(g, w.bundle(g))).To(ConsistOf("first", "second"), "the old CA may still be needed")
	w.clock.SetTime(began.Add(365 * day))
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(authorities(g, w.bundle(g))).To(ConsistOf("second"))
}

func TestACertificateThatAPIServersWouldRefuseIsNotTaken(t *testing.T) {
	later := began.Add(90 * day)
	other := newSigner("other", began)
	for name, test := range map[string]struct {
		data func(w *world) map[string][]byte
		says string
	}{
		"no CA": {func(w *world) map[string][]byte {
			d := w.authority.leaf(later).data(w.authority.cert)
			delete(d, "ca.crt")
			return d
		}, "has no ca.crt"},
		"not by that CA": {func(w *world) map[string][]byte { return w.authority.leaf(later).data(other.cert) }, "signed by unknown authority"},
		"for another host": {func(w *world) map[string][]byte {
			return w.authority.leaf(later, "a.example.org").data(w.authority.cert)
		}, "not " + webhookHost},
		"expired": {func(w *world) map[string][]byte { return w.authority.leaf(began.Add(-day)).data(w.authority.cert) }, "expired"},
		"another's key": {func(w *world) map[string][]byte {
			d := w.authority.leaf(later).data(w.authority.cert)
			d["tls.key"] = other.data(other.cert)["tls.key"]
			return d
		}, "private key does not match public key"},
		"not PEM": {func(*world) map[string][]byte {
			return map[string][]byte{"tls.crt": []byte("x"), "tls.key": []byte("y"), "ca.crt": []byte("z")}
		}, "failed to find any PEM data"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			m := w.asker()
			w.clock.SetTime(later.Add(-day))
			first := w.issue()
			g.Expect(reconcileOnce(m)).To(Succeed())
			w.clock.SetTime(later)
			w.putIssued(test.data(w))
			logged.reset()
			g.Expect(reconcileOnce(m)).To(Succeed())
			g.Expect(serial(m)).To(Equal(first.cert.SerialNumber.String()))
			g.Expect(m.Ready(nil)).To(Succeed(), "what is served is good")
			g.Expect(logged.text()).To(ContainSubstring(test.says))
			g.Expect(authorities(g, w.bundle(g))).To(ConsistOf("first"))
		})
	}
}

func TestAnIntermediateCAIsServedAlong(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	m := w.asker()
	intermediate := w.authority.sign(x509.Certificate{
		NotBefore: began, NotAfter: began.Add(365 * day), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	data := intermediate.leaf(began).data(w.authority.cert)
	chain, err := cert.EncodeCertificates(intermediate.cert)
	g.Expect(err).NotTo(HaveOccurred())
	data["tls.crt"] = append(data["tls.crt"], chain...)
	w.putIssued(data)
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(m.Ready(nil)).To(Succeed())
	g.Expect(m.serving.Load().Certificate).To(HaveLen(2))
	g.Expect(authorities(g, w.bundle(g))).To(ConsistOf("first"))
}

func TestTheManagerOnlyHandsTheBundleToTheCainjector(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	w.injectorDown = true
	m := w.asker()
	w.issue()
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(w.bundle(g)).To(BeEmpty())
	g.Expect(m.Ready(nil)).To(MatchError(ContainSubstring(
		"cert-manager's cainjector must run, and that must have the annotation cert-manager.io/inject-ca-from-secret: autohealer-system/autohealer-webhook-cert-bundle")))

	var handed corev1.Secret
	key := client.ObjectKey{Namespace: "autohealer-system", Name: "autohealer-webhook-cert-bundle"}
	g.Expect(w.client.Get(context.Background(), key, &handed)).To(Succeed())
	g.Expect(authorities(g, handed.Data["ca.crt"])).To(ConsistOf("first"))
	w.injectorDown = false
	g.Expect(w.client.Update(context.Background(), &handed)).To(Succeed())
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(m.Ready(nil)).To(Succeed())

	handed.Data["ca.crt"] = nil
	g.Expect(w.client.Update(context.Background(), &handed)).To(Succeed())
	g.Expect(reconcileOnce(m)).To(Succeed())
	g.Expect(authorities(g, w.bundle(g))).To(ConsistOf("first"), "it is mended")
}
