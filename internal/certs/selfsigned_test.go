package certs

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestTheFirstReplicaMakesACertificateAndPublishesItsCA(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	s := w.replica()
	g.Expect(s.Ready(nil)).To(MatchError("no serving certificate yet"))

	g.Expect(reconcileOnce(s)).To(Succeed())

	g.Expect(s.Ready(nil)).To(Succeed())
	g.Expect(verify(s.serving.Load(), w.bundle(g), w.clock.Now())).To(Succeed())
	g.Expect(w.config(g).Webhooks[1].ClientConfig.CABundle).To(Equal(w.bundle(g)), "every webhook gets the bundle")
	leaf := s.serving.Load().Leaf
	g.Expect(leaf.NotAfter).To(Equal(began.Add(90 * day)))
	g.Expect(leaf.IPAddresses).To(HaveLen(1))
	g.Expect(leaf.IPAddresses[0].Equal(net.IPv4(127, 0, 0, 1))).To(BeTrue())
	g.Expect(w.secret(g).Data).To(HaveLen(4))
}

func TestAServerHandsOutTheCertificate(t *testing.T) {
	g := NewWithT(t)
	s := newWorld().replica()
	config := &tls.Config{}
	s.TLSConfig(config)
	_, err := config.GetCertificate(nil)
	g.Expect(err).To(MatchError("no serving certificate yet"))
	g.Expect(reconcileOnce(s)).To(Succeed())
	served, err := config.GetCertificate(nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(served).To(BeIdenticalTo(s.serving.Load()))
}

func TestOfTwoReplicasThatCreateAtOnceOneWinsAndTheOtherFollows(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	winner, loser := w.replica(), w.replica()
	loser.client = interceptor.NewClient(w.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			g.Expect(reconcileOnce(winner)).To(Succeed())
			return c.Create(ctx, obj, opts...)
		},
	})
	err := reconcileOnce(loser)
	g.Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "%v", err)
	g.Expect(loser.serving.Load()).To(BeNil(), "what wasn't stored isn't served")

	g.Expect(reconcileOnce(loser)).To(Succeed())
	g.Expect(loser.serving.Load().Certificate).To(Equal(winner.serving.Load().Certificate))
}

func TestAReplicaThatLagsDoesNotTakeBackANewerBundle(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	quick, slow := w.replica(), w.replica()
	g.Expect(reconcileOnce(quick)).To(Succeed())
	g.Expect(reconcileOnce(slow)).To(Succeed())

	// The slow one has read the Secret; then the quick one stages a CA; then somebody's change has the slow one publish.
	config := w.config(g)
	config.Webhooks[0].ClientConfig.CABundle = nil
	g.Expect(w.client.Update(context.Background(), config)).To(Succeed())
	slow.client = interceptor.NewClient(w.client, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			w.wait(300 * day)
			for range 2 { // its certificate has expired, which comes first
				g.Expect(reconcileOnce(quick)).To(Succeed())
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	err := reconcileOnce(slow)
	g.Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
	g.Expect(authorities(g, w.bundle(g))).To(HaveLen(2))
}

func TestABundleThatSomebodyChangedIsRepaired(t *testing.T) {
	for name, tamper := range map[string]func(*admissionregistrationv1.ValidatingWebhookConfiguration){
		"emptied": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.CABundle = nil
		},
		"another CA's": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[1].ClientConfig.CABundle = []byte("x")
		},
		"a new webhook": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{Name: "c.example.org"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			s := w.replica()
			g.Expect(reconcileOnce(s)).To(Succeed())
			before := w.bundle(g)
			config := w.config(g)
			tamper(config)
			g.Expect(w.client.Update(context.Background(), config)).To(Succeed())

			g.Expect(reconcileOnce(s)).To(Succeed())
			for _, webhook := range w.config(g).Webhooks {
				g.Expect(webhook.ClientConfig.CABundle).To(Equal(before))
			}
		})
	}
}

func TestNothingIsWrittenWhenNothingIsDue(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	s := w.replica()
	g.Expect(reconcileOnce(s)).To(Succeed())
	secret, config := w.secret(g).ResourceVersion, w.config(g).ResourceVersion
	w.wait(59 * day)
	g.Expect(reconcileOnce(s)).To(Succeed())
	g.Expect(w.secret(g).ResourceVersion).To(Equal(secret))
	g.Expect(w.config(g).ResourceVersion).To(Equal(config))
}

func TestDeletingTheSecretRenewsEverything(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	s := w.replica()
	g.Expect(reconcileOnce(s)).To(Succeed())
	before := w.bundle(g)
	g.Expect(w.client.Delete(context.Background(), w.secret(g))).To(Succeed())

	g.Expect(reconcileOnce(s)).To(Succeed())
	g.Expect(w.bundle(g)).NotTo(ContainSubstring(string(before)), "a leaked CA is no longer trusted")
	g.Expect(verify(s.serving.Load(), w.bundle(g), w.clock.Now())).To(Succeed())
}

func TestAnUnusableSecretIsReplacedAndForeignKeysInItStay(t *testing.T) {
	for name, spoil := range map[string]func(map[string][]byte){
		"empty":                          func(d map[string][]byte) { clear(d) },
		"a key is missing":               func(d map[string][]byte) { delete(d, "tls.key") },
		"not PEM":                        func(d map[string][]byte) { d["ca.crt"] = []byte("certainly not") },
		"the key is another's":           func(d map[string][]byte) { d["tls.key"] = d["ca.key"] },
		"the CA did not sign the leaf":   func(d map[string][]byte) { d["ca.crt"], d["ca.key"] = d["tls.crt"], d["tls.key"] },
		"half a next CA":                 func(d map[string][]byte) { d["next-ca.crt"] = d["ca.crt"] },
		"previous CAs that nobody reads": func(d map[string][]byte) { d["previous-ca.crt"] = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			s := w.replica()
			g.Expect(reconcileOnce(s)).To(Succeed())
			secret := w.secret(g)
			spoil(secret.Data)
			secret.Data["note"] = []byte("kept")
			g.Expect(w.client.Update(context.Background(), secret)).To(Succeed())

			g.Expect(reconcileOnce(s)).To(Succeed())
			g.Expect(verify(s.serving.Load(), w.bundle(g), w.clock.Now())).To(Succeed())
			g.Expect(w.secret(g).Data).To(HaveKeyWithValue("note", []byte("kept")))
		})
	}
}

func TestReplicasThatWantDifferentHostsAgree(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	older, newer := w.replica("old.example.org"), w.replica("new.example.org")
	for range 3 {
		g.Expect(reconcileOnce(older)).To(Succeed())
		g.Expect(reconcileOnce(newer)).To(Succeed())
	}
	secret := w.secret(g).ResourceVersion
	g.Expect(reconcileOnce(older)).To(Succeed())
	g.Expect(w.secret(g).ResourceVersion).To(Equal(secret), "they must not overwrite each other for ever")
	g.Expect(older.serving.Load().Leaf.DNSNames).To(ConsistOf("old.example.org", "new.example.org"))
}

func TestUnreadyUntilThereIsAConfigurationToPublishIn(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	config := w.config(g)
	g.Expect(w.client.Delete(context.Background(), config)).To(Succeed())
	s := w.replica()
	g.Expect(reconcileOnce(s)).To(Succeed())
	g.Expect(s.Ready(nil)).To(MatchError("the CA is not published in ValidatingWebhookConfiguration autohealer yet"))

	config.ResourceVersion = ""
	g.Expect(w.client.Create(context.Background(), config)).To(Succeed())
	g.Expect(reconcileOnce(s)).To(Succeed())
	g.Expect(s.Ready(nil)).To(Succeed())
}

func TestUnreadyOnceTheCertificateHasExpired(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	s := w.replica()
	g.Expect(reconcileOnce(s)).To(Succeed())
	w.wait(90 * day)
	g.Expect(s.Ready(nil)).To(MatchError("the serving certificate expired at 2027-02-18T12:00:00Z"))
}

func TestNoErrorShowsAKey(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	g.Expect(reconcileOnce(w.replica())).To(Succeed())
	data := w.secret(g).Data
	key := strings.Split(string(data["ca.key"]), "\n")[1]
	for _, spoiled := range []string{"tls.crt", "tls.key", "ca.crt"} {
		bad := map[string][]byte{"tls.crt": data["tls.crt"], "tls.key": data["tls.key"], "ca.crt": data["ca.crt"], "ca.key": data["ca.key"]}
		bad[spoiled] = data["ca.key"]
		_, err := selfSignedSection.decode(bad)
		g.Expect(err).To(MatchError(Not(ContainSubstring(key))), spoiled)
	}
}
