package certs

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// roll is how a Deployment goes from one provider to the other: the new replica starts, the old one goes on until the new
// one is ready. It gives the new one, and fails where an API server would have refused one that was ready.
func roll(g Gomega, w *world, old, replacement member) {
	ready := func(m member) bool { return m.Ready(nil) == nil }
	g.Expect(ready(old)).To(BeTrue())
	before := w.bundle(g)
	for i := 0; !ready(replacement); i++ {
		g.Expect(i).To(BeNumerically("<", 20), "it should get ready within minutes: %v", replacement.Ready(nil))
		for _, m := range []member{replacement, old, replacement} {
			g.Expect(reconcileOnce(m)).To(Succeed())
		}
		g.Expect(verify(old.serving.Load(), w.bundle(g), w.clock.Now())).To(Succeed(), "the old one is still called")
		g.Expect(verify(old.serving.Load(), before, w.clock.Now())).To(Succeed(), "by late API servers too")
		w.wait(20 * time.Second)
	}
	g.Expect(verify(replacement.serving.Load(), w.bundle(g), w.clock.Now())).To(Succeed())
}

func TestProvidersAreSwitchedBetweenWithoutLoss(t *testing.T) {
	g := NewWithT(t)
	f := &fleet{world: newWorld()}
	selfSigned, certManager := f.selfSigned(), f.certManager()
	g.Expect(reconcileOnce(selfSigned)).To(Succeed())
	w := f.world
	w.issue()

	began := w.clock.Now()
	roll(g, w, selfSigned, certManager)
	g.Expect(w.clock.Since(began)).To(BeNumerically(">", 2*time.Minute), "cert-manager's CA had to become known first")
	g.Expect(authorities(g, w.bundle(g))).To(HaveLen(2))

	second := f.certManager()
	g.Expect(reconcileOnce(second)).To(Succeed())
	g.Expect(second.Ready(nil)).To(Succeed(), "the next replica has nothing to wait for")

	back := f.selfSigned()
	g.Expect(reconcileOnce(back)).To(Succeed())
	g.Expect(back.Ready(nil)).To(Succeed(), "its CA has been trusted all along")
	g.Expect(back.serving.Load().Certificate).To(Equal(selfSigned.serving.Load().Certificate))
	roll(g, w, second, back)
}

func TestTheSelfSignedProviderTakesOverFromAnother(t *testing.T) {
	g := NewWithT(t)
	f := &fleet{world: newWorld()}
	certManager := f.certManager()
	f.issue()
	g.Expect(reconcileOnce(certManager)).To(Succeed())
	began := f.clock.Now()
	replacement := f.selfSigned()
	roll(g, f.world, certManager, replacement)
	g.Expect(f.clock.Since(began)).To(BeNumerically(">", 2*time.Minute))
	g.Expect(f.secret(g).Data).NotTo(HaveKey("next-ca.crt"))

	f.clock.SetTime(began.Add(365 * day))
	g.Expect(reconcileOnce(replacement)).To(Succeed())
	g.Expect(f.secret(g).Data).NotTo(HaveKey("cert-manager-tls.key"), "nobody needs what is left of the former provider")
	g.Expect(authorities(g, f.bundle(g))).NotTo(ContainElement("first"))
}

// TestTheCAOfFilesIsTrustedAsLongAsSomebodySaysSo is the switch from files and back: they are served by managers that
// publish nothing, so the CA is put into the record by hand.
func TestTheCAOfFilesIsTrustedAsLongAsSomebodySaysSo(t *testing.T) {
	for name, test := range map[string]struct {
		start  func(*fleet) member
		before bool
	}{
		"self-signed, never used before":  {start: (*fleet).selfSigned},
		"self-signed, used before":        {start: (*fleet).selfSigned, before: true},
		"cert-manager, never used before": {start: (*fleet).certManager},
		"cert-manager, used before":       {start: (*fleet).certManager, before: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := &fleet{world: newWorld()}
			f.issue()
			if test.before {
				g.Expect(reconcileOnce(test.start(f))).To(Succeed())
			}
			files := newSigner("files", began)
			text, err := cert.EncodeCertificates(files.cert)
			g.Expect(err).NotTo(HaveOccurred())
			config := f.config(g)
			for i := range config.Webhooks {
				config.Webhooks[i].ClientConfig.CABundle = text
			}
			g.Expect(f.client.Update(context.Background(), config)).To(Succeed())
			f.putRecord("trusted-ca.crt", text)

			logged.reset()
			m, second := test.start(f), test.start(f)
			for range 2 {
				g.Expect(reconcileOnce(m)).To(Succeed())
				if !test.before { // else see TestAReplicaDistrustsWhatHasJustBeenPublished
					g.Expect(reconcileOnce(second)).To(Succeed())
					g.Expect(second.Ready(nil)).NotTo(Succeed(), "one that starts at the same time has to wait, too")
				}
				g.Expect(m.Ready(nil)).NotTo(Succeed(), "API servers don't know its CA yet, and there is another that they know")
				g.Expect(authorities(g, f.bundle(g))).To(And(HaveLen(2), ContainElement("files")))
				f.wait(119 * time.Second)
			}
			f.wait(2 * time.Second)
			g.Expect(reconcileOnce(m)).To(Succeed())
			g.Expect(m.Ready(nil)).To(Succeed())
			g.Expect(logged.text()).To(ContainSubstring("Not ready before API servers know the CA"), "somebody will wonder")
			g.Expect(verify(m.serving.Load(), f.bundle(g), f.clock.Now())).To(Succeed())

			f.putRecord("trusted-ca.crt", nil)
			g.Expect(reconcileOnce(m)).To(Succeed())
			g.Expect(authorities(g, f.bundle(g))).To(HaveLen(1))
		})
	}
}

func TestAReplicaDistrustsWhatHasJustBeenPublished(t *testing.T) {
	g := NewWithT(t)
	f := &fleet{world: newWorld()}
	f.issue()
	g.Expect(reconcileOnce(f.selfSigned())).To(Succeed())
	certManager := f.certManager()
	for range 3 {
		g.Expect(reconcileOnce(certManager)).To(Succeed())
		f.wait(2 * time.Minute)
	}
	f.wait(day)
	written := f.clock.Now()
	for name, test := range map[string]struct {
		ago   time.Duration
		ready bool
	}{"a second ago": {time.Second, false}, "long ago": {2 * time.Minute, true}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			restarted := f.selfSigned()
			restarted.reader = interceptor.NewClient(f.client, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					err := c.Get(ctx, key, obj, opts...)
					obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "old"}, {Manager: "manager", Time: &metav1.Time{Time: written.Add(-test.ago)}}})
					return err
				},
			})
			g.Expect(reconcileOnce(restarted)).To(Succeed())
			g.Expect(restarted.Ready(nil) == nil).To(Equal(test.ready))
		})
	}
}

func TestWhatPeopleSpoilInTheRecordIsNoReasonToStop(t *testing.T) {
	for _, key := range []string{"trusted-ca.crt", "cert-manager-ca.crt", "cert-manager-next-ca.crt", "cert-manager-tls.key"} {
		t.Run(key, func(t *testing.T) {
			g := NewWithT(t)
			f := &fleet{world: newWorld()}
			f.issue()
			certManager := f.certManager()
			g.Expect(reconcileOnce(certManager)).To(Succeed())
			f.putRecord(key, []byte("certainly not"))
			g.Expect(reconcileOnce(certManager)).To(Succeed())
			g.Expect(certManager.Ready(nil)).To(Succeed())
			g.Expect(verify(certManager.serving.Load(), f.bundle(g), f.clock.Now())).To(Succeed())
		})
	}
}

func TestAnEmptyRecordTakesNothingAway(t *testing.T) {
	g := NewWithT(t)
	f := &fleet{world: newWorld()}
	config := f.config(g)
	config.Webhooks[0].ClientConfig.CABundle = []byte("somebody's")
	g.Expect(f.client.Update(context.Background(), config)).To(Succeed())
	g.Expect(reconcileOnce(f.certManager())).To(Succeed())
	g.Expect(f.bundle(g)).To(Equal([]byte("somebody's")))
}

// TestEveryHandshakeSucceedsWhileProvidersAndCAsChange has replicas of both providers side by side, restarted as either, while
// cert-manager renews certificates and CAs whenever it likes.
func TestEveryHandshakeSucceedsWhileProvidersAndCAsChange(t *testing.T) {
	if testing.Short() {
		t.Skip("steps through years")
	}
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		f.issue()
		f.passQuietly(rapid.SampledFrom([]time.Duration{0, 59 * day, 243 * day, 363 * day}).Draw(t, "age"))
		f.renewAuthority("again") // the first one's end may be near
		f.issue()
		f.start = func() member {
			if rapid.Bool().Draw(t, "restarted as self-signed") {
				return f.selfSigned()
			}
			return f.certManager()
		}
		steps := []time.Duration{time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, time.Hour, day, 9 * day}
		issuedAt := f.clock.Now()
		for range rapid.IntRange(20, 80).Draw(t, "steps") {
			f.wait(rapid.SampledFrom(steps).Draw(t, "time passes"))
			f.check()
			if rapid.IntRange(0, 9).Draw(t, "cert-manager has a new CA, one in ten") == 0 {
				f.renewAuthority("next")
			}
			if rapid.IntRange(0, 3).Draw(t, "and issues, one in four") == 0 || f.clock.Since(issuedAt) > 20*day {
				f.issue()
				issuedAt = f.clock.Now()
			}
			i := rapid.IntRange(0, len(f.replicas)-1).Draw(t, "replica")
			if rapid.IntRange(0, 4).Draw(t, "restart one in five") == 0 {
				f.restart(i)
			}
			f.run(i)
			for j := range f.replicas {
				for f.clock.Since(f.lastRun[j]) > maxLag-9*day {
					f.run(j)
				}
			}
			f.check()
		}
	})
}
