package outlierpolicy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/xds"
)

// memory is a Record.
type memory struct {
	mu     sync.Mutex
	keys   map[outlier.Key]outlier.Protocol
	broken error
	writes int
}

func (m *memory) Read(context.Context) (map[outlier.Key]outlier.Protocol, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.keys), m.broken
}

func (m *memory) Change(_ context.Context, _, now map[outlier.Key]outlier.Protocol) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return m.broken
	}
	m.writes++
	m.keys = now
	return nil
}

func newTestPublisher(t testing.TB, live client.Reader) (*Publisher, *testclock.FakeClock) {
	t.Helper()
	rules, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return publisherWith(t, rules, live)
}

// publisherWith follows these rules.
func publisherWith(t testing.TB, rules *guard.Guard, live client.Reader) (*Publisher, *testclock.FakeClock) {
	t.Helper()
	server, err := xds.NewServer(xds.Options{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	now := testclock.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	return NewPublisher(nil, Options{Options: policy.Options{Guard: rules, Rejections: &kube.Rejections{}}, Informers: &outliers.Informers{}, Clusters: &actuate.Clusters{Server: server}}, live, now), now
}

func key(t *testing.T, name string) outlier.Key {
	t.Helper()
	k, ok := outlier.ParseKey(name)
	if !ok {
		t.Fatalf("%s is no cluster's name", name)
	}
	return k
}

func anyProtocol(t *testing.T, names ...string) map[outlier.Key]outlier.Protocol {
	t.Helper()
	all := map[outlier.Key]outlier.Protocol{}
	for _, name := range names {
		all[key(t, name)] = outlier.AnyProtocol
	}
	return all
}

// hosts are the objects of Services with one host each.
func hosts(address string, services ...*corev1.Service) outlier.Objects {
	w := outlier.Objects{Services: services, Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	for _, svc := range services {
		w.Slices[client.ObjectKeyFromObject(svc)] = []*discoveryv1.EndpointSlice{{
			AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080))}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}}
	}
	return w
}

func TestAnUnjudgedPolicyKeepsItsClustersAndUpdatesHosts(t *testing.T) {
	g := NewWithT(t)
	web, mail, late := service("web", 80), service("mail", 25), service("late", 80)
	def := stored("shop", "default", 9)
	first := snapshotWith(t, []*v1alpha1.OutlierPolicy{def}, []*corev1.Service{web, mail}, "")
	first.presentServices = map[types.NamespacedName]bool{}
	sent := byKey(translate(first, hosts("10.0.0.1", web, mail), previousState{isFirst: true, last: previousOf(nil).last}))
	g.Expect(sent).To(HaveLen(2))

	policies := []*v1alpha1.OutlierPolicy{def, stored("shop", "web", 1, target("web", "")), stored("shop", "late", 1, target("late", ""))}
	snap := snapshotWith(t, policies, nil, "")
	snap.presentServices = map[types.NamespacedName]bool{}
	for _, name := range []string{"web", "late"} {
		snap.policies[types.NamespacedName{Namespace: "shop", Name: name}].policy.Doubtful = true
	}
	got := map[string]actuate.Cluster{}
	for _, c := range translate(snap, hosts("10.0.0.2", web, mail, late), previousOf(sent)) {
		got[c.Key.String()] = c
	}
	g.Expect(got).To(HaveLen(2), "what nobody was told of waits for the judgement")
	for _, name := range []string{"shop/web/80", "shop/mail/25"} {
		g.Expect(got[name].Hosts[0].Address).To(Equal("10.0.0.2"), name)
		g.Expect(got[name].Policy.Name).To(Equal("default"), name)
	}
}

func TestAServiceThatComesBackInAFreezeIsDetectedAsBefore(t *testing.T) {
	g := NewWithT(t)
	p, _, store := publisherOf(t)
	web, def := service("web", 80), stored("shop", "default", 9)
	store.set(def)
	p.onPolicy(t.Context(), def)
	p.policies.Judge(t.Context(), client.ObjectKeyFromObject(def))
	sentWith := func(change func()) map[string]string {
		change()
		p.onObject(web)
		_, err := p.publish(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		return flat(p)
	}
	detected := HaveKeyWithValue("shop/web/80", ContainSubstring("detects true"))
	g.Expect(sentWith(func() { store.set(web) })).To(detected)
	g.Expect(sentWith(func() {
		p.Guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Spec: v1alpha1.GuardrailSpec{Frozen: true}}})
		store.remove("Service", client.ObjectKeyFromObject(web))
	})).To(detected, "Envoys still have it")
	g.Expect(sentWith(func() { store.set(web) })).To(detected)
	g.Expect(sentWith(func() {
		p.Guard.SetGuardrails(nil)
		store.remove("Service", client.ObjectKeyFromObject(web))
	})).To(detected, "the API server wasn't asked yet")
	confirmDeletions(t, p)
	g.Expect(sentWith(func() {})).To(BeEmpty(), "they were told to remove it")
}

func TestAFreezeKeepsClustersOfServicesThatAreGone(t *testing.T) {
	g := NewWithT(t)
	p, now := newTestPublisher(t, nil)
	p.addServed(anyProtocol(t, "shop/web/80"))
	web := objectRef{corev1.SchemeGroupVersion.WithKind("Service"), types.NamespacedName{Namespace: "shop", Name: "web"}}
	p.confirmer.reads[web] = liveRead{readAt: now.Now(), answeredAt: now.Now(), gone: true}
	snap := snapshotWith(t, nil, nil, "")
	all := []outlier.Key{key(t, "shop/web/80")}
	snap.paused = policy.Pause{By: "freeze", Frozen: true}
	g.Expect(p.clusters(snap)).To(Equal(actuate.Absent{Missing: all}))
	snap.paused = policy.Pause{}
	g.Expect(p.clusters(snap)).To(Equal(actuate.Absent{Missing: all, Gone: all}))
}

func TestAClusterWhosePolicyIsGoneIsServedAfterARestart(t *testing.T) {
	g := NewWithT(t)
	p, _ := newTestPublisher(t, nil)
	record := &memory{keys: anyProtocol(t, "shop/web/80", "shop/web/80@httproute/checkout"), broken: errors.New("not now")}
	p.Record = record
	stopped, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	p.readRecord(stopped)
	g.Expect(stopped.Err()).To(HaveOccurred(), "it isn't known what there was: nothing is served")
	record.broken = nil
	p.readRecord(t.Context())

	web := service("web", 80)
	snap := snapshotWith(t, nil, []*corev1.Service{web}, "")
	snap.presentServices = map[types.NamespacedName]bool{}
	clusters := translate(snap, hosts("10.0.0.1", web), p.previous(snap))
	g.Expect(clusters).To(HaveLen(2))
	g.Expect(clusters[0].Key.String()).To(Equal("shop/web/80"))
	g.Expect(clusters[0].Policy).To(BeNil())
	g.Expect(clusters[0].Hosts).To(HaveLen(1))
	g.Expect(p.writeRecord(t.Context())).To(Succeed())
	g.Expect(record.writes).To(BeZero(), "nothing has changed")

	p.addServed(anyProtocol(t, "shop/mail/25"))
	p.forgetRemoved([]string{"shop/web/80@httproute/checkout"})
	g.Expect(p.writeRecord(t.Context())).To(Succeed())
	g.Expect(record.keys).To(Equal(anyProtocol(t, "shop/web/80", "shop/mail/25")))
	p.Clusters.Server.Serves = func() bool { return false }
	p.addServed(anyProtocol(t, "shop/new/80"))
	g.Expect(p.writeRecord(t.Context())).NotTo(Succeed())
	g.Expect(record.writes).To(Equal(1), "another installation's cluster is left alone")
}

func TestAClusterWhoseRouteIsGoneKeepsItsProtocolAfterARestart(t *testing.T) {
	g := NewWithT(t)
	p, _ := newTestPublisher(t, nil)
	edge := key(t, "shop/web/80@httpproxy/api")
	record := &memory{keys: anyProtocol(t, "shop/web/80@httpproxy/plain")}
	record.keys[edge] = outlier.H2C
	p.Record = record
	p.readRecord(t.Context())
	web := service("web", 80)
	snap := snapshotWith(t, nil, []*corev1.Service{web}, "")
	snap.presentServices = map[types.NamespacedName]bool{}
	clusters := translate(snap, hosts("10.0.0.1", web), p.previous(snap))
	g.Expect(clusters).To(HaveLen(2))
	g.Expect(clusters[0].Key).To(Equal(edge))
	g.Expect(clusters[0].HTTP2).To(BeTrue(), "its hosts know nothing else")
	g.Expect(clusters[1].HTTP2).To(BeFalse())

	p.addServed(anyProtocol(t, edge.String())) // its route says otherwise now
	g.Expect(p.writeRecord(t.Context())).To(Succeed())
	g.Expect(record.keys).To(HaveKeyWithValue(edge, outlier.AnyProtocol))
}

func TestDeletionsAreConfirmedByLiveReads(t *testing.T) {
	g := NewWithT(t)
	there := service("there", 80)
	var down bool
	live := fake.NewClientBuilder().WithObjects(there).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if down {
				return errors.New("the API server is down")
			}
			return c.Get(ctx, k, o, opts...)
		},
	}).Build()
	now := testclock.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	changes := 0
	a := newDeletionConfirmer(live, now, func() { changes++ })
	named := func(name string) objectRef {
		return objectRef{schema.GroupVersionKind{Version: "v1", Kind: "Service"}, types.NamespacedName{Namespace: "shop", Name: name}}
	}
	missing := map[objectRef]bool{named("there"): true, named("gone"): true}
	answer := func() {
		for range a.queue.Len() {
			o, _ := a.queue.Get()
			a.read(t.Context(), o)
			a.queue.Done(o)
		}
	}
	down = true
	g.Expect(a.confirmedGone(missing)).To(BeEmpty(), "nobody was asked yet")
	answer()
	g.Expect(a.confirmedGone(missing)).To(BeEmpty(), "no answer says nothing")
	g.Expect(a.queue.Len()).To(BeZero(), "it isn't asked again at once")
	down = false
	now.Step(5 * time.Second)
	a.confirmedGone(missing)
	answer()
	g.Expect(changes).To(Equal(2), "each first answer is news")
	g.Expect(a.confirmedGone(missing)).To(Equal(map[objectRef]bool{named("gone"): true}))
	now.Step(30 * time.Second)
	down = true
	g.Expect(a.confirmedGone(missing)).To(Equal(map[objectRef]bool{named("gone"): true}), "it is asked again, and believed meanwhile")
	answer()
	g.Expect(a.confirmedGone(missing)).To(HaveLen(1))
	now.Step(5 * time.Minute)
	g.Expect(a.confirmedGone(missing)).To(BeEmpty(), "but not for ever")
}

func TestDeletionsOfOneKindAreReportedTogether(t *testing.T) {
	g := NewWithT(t)
	silent := map[string]bool{}
	live := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if silent[k.Name] {
				return errors.New("the API server is busy")
			}
			return c.Get(ctx, k, o, opts...)
		},
	}).Build()
	now := testclock.NewFakeClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC))
	a := newDeletionConfirmer(live, now, func() {})
	missing := map[objectRef]bool{}
	miss := func(kind, name string) {
		missing[objectRef{schema.GroupVersionKind{Version: "v1", Kind: kind}, types.NamespacedName{Namespace: "shop", Name: name}}] = true
	}
	for i := range 13 {
		miss("Service", fmt.Sprintf("s%02d", i))
	}
	answer := func() {
		o, _ := a.queue.Get()
		a.read(t.Context(), o)
		a.queue.Done(o)
	}
	silent["s03"] = true
	for a.confirmedGone(missing); a.queue.Len() > 0; {
		answer()
		if a.queue.Len() > 0 {
			g.Expect(a.confirmedGone(missing)).To(BeEmpty(), "some have no answer yet")
		}
	}
	g.Expect(a.confirmedGone(missing)).To(BeEmpty(), "of one the API server can't tell")
	g.Expect(a.queue.Len()).To(BeZero())
	miss("HTTPRoute", "checkout")
	a.confirmedGone(missing)
	answer()
	g.Expect(a.confirmedGone(missing)).To(HaveLen(1), "kinds don't wait for each other: one may never tell")

	now.Step(5 * time.Second)
	delete(silent, "s03")
	a.confirmedGone(missing)
	g.Expect(a.queue.Len()).To(Equal(1))
	answer()
	g.Expect(a.confirmedGone(missing)).To(HaveLen(14))
	miss("Service", "late")
	g.Expect(a.confirmedGone(missing)).To(HaveLen(14), "what was reported stays so, or its ten minutes would begin anew")
	answer()
	g.Expect(a.confirmedGone(missing)).To(HaveLen(15))
}

// gateway is a cluster that has HTTPRoutes and no other kind of routes.
type gateway struct{ meta.RESTMapper }

func (gateway) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	if kind.Kind == "HTTPRoute" {
		return &meta.RESTMapping{GroupVersionKind: kind.WithVersion("v1")}, nil
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind}
}

func TestWhatIsMissing(t *testing.T) {
	g := NewWithT(t)
	p, _ := newTestPublisher(t, nil)
	p.Informers = &outliers.Informers{Cache: &informertest.FakeInformers{}, Mapper: gateway{}, Definition: undefined}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = p.Informers.Start(ctx) }()
	g.Eventually(func() bool { _, ok := p.Informers.RouteKind("HTTPRoute"); return ok }, "5s").Should(BeTrue())
	p.addServed(anyProtocol(t, "shop/web/80", "shop/gone/80", "shop/web/80@httproute/checkout", "shop/web/80@httpproxy/old"))
	snap := &policySnapshot{index: outlier.NewIndex(nil, nil, systemNamespace), presentServices: map[types.NamespacedName]bool{{Namespace: "shop", Name: "web"}: true}}
	names := func() (all []string) {
		for o := range p.missingObjects(snap) {
			all = append(all, o.kind.Kind+" "+o.String())
		}
		slices.Sort(all)
		return all
	}
	g.Expect(names()).To(Equal([]string{"HTTPRoute shop/checkout", "Service shop/gone"}), "of a kind that the cluster doesn't have nobody can tell")
	snap.unreadKinds = map[string]bool{"HTTPRoute": true, "HTTPProxy": true}
	g.Expect(names()).To(Equal([]string{"Service shop/gone"}), "nor of one that isn't read")
	snap.unreadKinds = nil
	snap.index = outlier.NewIndex(nil, []outlier.Route{{Namespace: "shop", RouteKey: outlier.RouteKey{Kind: "HTTPRoute", Name: "checkout"}}}, systemNamespace)
	g.Expect(names()).To(Equal([]string{"Service shop/gone"}), "it is there, whatever it names")
}
