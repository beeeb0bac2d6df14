package certs

import (
	"bytes"
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestACAIsPublishedBeforeItSignsAndTheOldOneStaysUntilItExpires(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	s := w.replica()
	at := func(d time.Duration) {
		w.clock.SetTime(began.Add(d))
		g.Expect(reconcileOnce(s)).To(Succeed())
	}
	at(0)
	first := s.serving.Load().Leaf
	at(60 * day)
	renewed := s.serving.Load().Leaf
	g.Expect(renewed.NotAfter).To(Equal(began.Add(150*day)), "the leaf is renewed at two thirds of its 90 days")
	g.Expect(renewed.Issuer.CommonName).To(Equal(first.Issuer.CommonName))

	for _, d := range []time.Duration{120, 180, 240} {
		at(d * day)
	}
	staged := 244 * day // two thirds of a year, and the next whole day
	at(staged)
	g.Expect(authorities(g, w.bundle(g))).To(HaveLen(2), "the next CA is published")
	g.Expect(s.serving.Load().Leaf.Issuer.CommonName).To(Equal(first.Issuer.CommonName), "and signs nothing yet")

	at(staged + time.Minute)
	at(staged + 2*time.Minute + 59*time.Second)
	g.Expect(s.serving.Load().Leaf.Issuer.CommonName).To(Equal(first.Issuer.CommonName),
		"the two minutes count from when the bundle was seen published")
	at(staged + 3*time.Minute)
	g.Expect(s.serving.Load().Leaf.Issuer.CommonName).NotTo(Equal(first.Issuer.CommonName))

	at(365*day - time.Second)
	g.Expect(authorities(g, w.bundle(g))).To(HaveLen(2), "the old CA may still be needed")
	at(365 * day)
	g.Expect(authorities(g, w.bundle(g))).To(HaveLen(1))
}

func TestACertificateNeverOutlivesItsCA(t *testing.T) {
	g := NewWithT(t)
	ca, err := newAuthority(began, 30*day)
	g.Expect(err).NotTo(HaveOccurred())
	issued, err := ca.issue(began, 90*day, []string{"a.example.org"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(issued.leaf.notAfter()).To(Equal(began.Add(30 * day)))

	s := NewSelfSigned(Options{CALife: 30 * day, LeafLife: 90 * day, Hosts: []string{"a.example.org"}})
	further, err := s.sign(state{ca: ca, leaf: issued.leaf, next: ca}, decisionInput{now: began.Add(29 * day)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(further).To(BeNil(), "a renewal that gains nothing would be repeated for ever")
}

func TestWhatHasExpiredIsRenewedByTheCAThatIsTrusted(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	s := w.replica()
	g.Expect(reconcileOnce(s)).To(Succeed())
	trusted := w.bundle(g)
	w.wait(300 * day) // another CA is due, too
	g.Expect(reconcileOnce(s)).To(Succeed())
	g.Expect(verify(s.serving.Load(), trusted, w.clock.Now())).To(Succeed())
}

func TestTouchingTheConfigurationRestartsTheWait(t *testing.T) {
	g := NewWithT(t)
	w := newWorld()
	s := w.replica()
	g.Expect(reconcileOnce(s)).To(Succeed())
	w.wait(244 * day)
	g.Expect(reconcileOnce(s)).To(Succeed())
	old := s.serving.Load().Leaf.Issuer.CommonName
	for range 5 {
		w.wait(time.Minute)
		config := w.config(g)
		config.Webhooks[0].ClientConfig.CABundle = nil
		g.Expect(w.client.Update(context.Background(), config)).To(Succeed())
		g.Expect(reconcileOnce(s)).To(Succeed())
	}
	g.Expect(s.serving.Load().Leaf.Issuer.CommonName).To(Equal(old))
}

func TestAManagerThatWasOffForAYearStartsAfresh(t *testing.T) {
	for name, off := range map[string]time.Duration{"a year": 365 * day, "after its CA was staged": 0} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld()
			g.Expect(reconcileOnce(w.replica())).To(Succeed())
			if off == 0 {
				w.wait(300 * day)
				g.Expect(reconcileOnce(w.replica())).To(Succeed())
				off = 400 * day
			}
			w.wait(off)
			s := w.replica()
			g.Expect(reconcileOnce(s)).To(Succeed())
			g.Expect(verify(s.serving.Load(), w.bundle(g), w.clock.Now())).To(Succeed())
			g.Expect(authorities(g, w.bundle(g))).To(HaveLen(1))
		})
	}
}

// fleet is some replicas that run at random moments and in the midst of each other's writes, and API servers that
// learn of a bundle late.
type fleet struct {
	*world
	t *rapid.T
	// start makes a new process of a replica: by default, one of the self-signed provider.
	start    func() member
	replicas []member
	lastRun  []time.Time
	bundles  []publishedBundle
	nested   bool
}

// member is a replica with whichever provider.
type member struct {
	*keeper
	reconcile.Reconciler
}

type publishedBundle struct {
	from   time.Time
	bundle []byte
}

const (
	// maxLag is what a replica may sleep: less than a third of a leaf's life, in which its own would expire.
	maxLag = 29 * day
	// apiServerLag is what an API server may take to learn of a bundle: less than the time a CA must settle.
	apiServerLag = 2*time.Minute - time.Second
)

func newFleet(t *rapid.T) *fleet {
	f := &fleet{world: newWorld(), t: t}
	f.start = f.selfSigned
	for i := range 3 {
		f.replicas, f.lastRun = append(f.replicas, member{}), append(f.lastRun, f.clock.Now())
		f.restart(i)
		f.run(i)
	}
	return f
}

func (f *fleet) selfSigned() member {
	s := f.replica()
	return member{&s.keeper, s}
}

func (f *fleet) certManager() member {
	m := f.asker()
	return member{&m.keeper, m}
}

// restart makes replica i forget everything.
func (f *fleet) restart(i int) {
	f.replicas[i] = f.start()
	f.replicas[i].client = interceptor.NewClient(f.client, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			f.interleave()
			return c.Update(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			f.interleave()
			return c.Patch(ctx, obj, patch, opts...)
		},
		// What is asked of cert-manager changes nothing here, and the fake is slow at it.
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			return nil
		},
	})
}

// interleave lets another replica run between one's reads and its write.
func (f *fleet) interleave() {
	if f.nested || !rapid.Bool().Draw(f.t, "another replica runs before this write") {
		return
	}
	f.nested = true
	defer func() { f.nested = false }()
	f.run(rapid.IntRange(0, len(f.replicas)-1).Draw(f.t, "the other replica"))
}

func (f *fleet) run(i int) {
	err := reconcileOnce(f.replicas[i])
	if err != nil && !apierrors.IsConflict(err) {
		f.t.Fatalf("replica %d: %v", i, err)
	}
	if err == nil {
		f.lastRun[i] = f.clock.Now()
	}
	f.noteBundle()
}

// noteBundle notes what API servers will learn of.
func (f *fleet) noteBundle() {
	bundle := f.bundle(NewWithT(f.t))
	if n := len(f.bundles); n == 0 || !bytes.Equal(f.bundles[n-1].bundle, bundle) {
		f.bundles = append(f.bundles, publishedBundle{f.clock.Now(), bundle})
	}
}

// passQuietly lets time pass while every replica runs once a week.
func (f *fleet) passQuietly(d time.Duration) {
	for end := f.clock.Now().Add(d); f.clock.Now().Before(end); f.wait(7 * day) {
		for i := range f.replicas {
			f.run(i)
			f.check()
		}
	}
}

// check shows what each ready replica serves to an API server with each bundle that one may believe in now, whether its clock
// is right or behind.
func (f *fleet) check() {
	now := f.clock.Now()
	for i, replica := range f.replicas {
		if replica.Ready(nil) != nil { // so not called
			continue
		}
		for j := len(f.bundles) - 1; j >= 0; j-- {
			for _, clock := range []time.Time{now, now.Add(-apiServerLag)} {
				if err := verify(replica.serving.Load(), f.bundles[j].bundle, clock); err != nil {
					f.t.Fatalf("at %s an API server with the bundle of %s refuses replica %d: %v", clock, f.bundles[j].from, i, err)
				}
			}
			if now.Sub(f.bundles[j].from) > apiServerLag {
				break
			}
		}
	}
}

func TestEveryHandshakeSucceedsThroughoutTheRotation(t *testing.T) {
	if testing.Short() {
		t.Skip("steps through years")
	}
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		// Random steps from just before something falls due: a leaf, a CA, the end of the CA before.
		f.passQuietly(rapid.SampledFrom([]time.Duration{0, 59 * day, 243 * day, 303 * day, 363 * day}).Draw(t, "age"))
		steps := []time.Duration{time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, time.Hour, day, 9 * day}
		for range rapid.IntRange(20, 80).Draw(t, "steps") {
			f.wait(rapid.SampledFrom(steps).Draw(t, "time passes"))
			f.check()
			i := rapid.IntRange(0, len(f.replicas)-1).Draw(t, "replica")
			if rapid.IntRange(0, 9).Draw(t, "restart one in ten") == 0 {
				f.restart(i)
			}
			f.run(i)
			for j := range f.replicas { // nobody sleeps longer than maxLag, the next step included
				for f.clock.Since(f.lastRun[j]) > maxLag-9*day {
					f.run(j)
				}
			}
			f.check()
		}
	})
}
