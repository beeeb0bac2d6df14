package outlierpolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/outliers"
)

// unsure is a live check that can't confirm the policies of some name.
type unsure struct{ of *string }

func (u unsure) CheckAll(_ context.Context, _ schema.GroupVersionKind, all []kube.Admission) map[types.UID]error {
	wrong := map[types.UID]error{}
	for _, a := range all {
		if a.Key.Name == *u.of {
			wrong[a.UID] = errors.New("the API server is busy")
		}
	}
	return wrong
}

// pair are two publishers of the same objects: one translates what changed, the other one everything each time.
type pair struct {
	store   *objectStore
	guard   *guard.Guard
	both    [2]*Publisher
	clocks  [2]*testclock.FakeClock
	unsure  string
	seconds int
	made    int
}

// newPair is of a store that isn't empty.
func newPair(ctx context.Context, t *testing.T, rt *rapid.T, rules *guard.Guard) *pair {
	x := &pair{store: &objectStore{}, guard: rules}
	rules.SetGuardrails(nil)
	for i := range x.both {
		x.both[i], x.clocks[i] = publisherWith(t, rules, x.store)
		x.both[i].Informers, x.both[i].Clusters.Current = x.store.followed(ctx, t), unsure{&x.unsure}
	}
	for _, namespace := range []string{"shop", "bank", systemNamespace} {
		svc := service("web", 80, 81)
		svc.Namespace = namespace
		x.store.set(svc)
		x.notify(svc, false)
	}
	if rapid.Bool().Draw(rt, "default") {
		def := stored(systemNamespace, outlier.DefaultName, 9)
		x.store.set(def)
		x.notify(def, false)
	}
	for range rapid.IntRange(0, 12).Draw(rt, "first") {
		x.change(rt)
	}
	for _, op := range x.policies() {
		x.judge(client.ObjectKeyFromObject(op))
	}
	return x
}

func (x *pair) policies() (all []*v1alpha1.OutlierPolicy) {
	var list v1alpha1.OutlierPolicyList
	_ = x.store.List(context.Background(), &list)
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

func (x *pair) judge(key types.NamespacedName) {
	for _, p := range x.both {
		p.policies.Judge(context.Background(), key)
	}
}

// notify has both handle an object that is new, or gone.
func (x *pair) notify(o client.Object, gone bool) {
	for _, p := range x.both {
		switch op, is := o.(*v1alpha1.OutlierPolicy); {
		case is && gone:
			p.policies.Gone(op)
		case is:
			p.onPolicy(context.Background(), op)
		case gone && x.made%2 == 0:
			p.onObject(toolscache.DeletedFinalStateUnknown{Key: o.GetNamespace() + "/" + o.GetName(), Obj: o})
		default:
			p.onObject(o)
		}
	}
}

var changedNamespaces = []string{"shop", "shop", "bank", systemNamespace}

// change one object.
func (x *pair) change(t *rapid.T) {
	x.made++
	namespace, name := rapid.SampledFrom(changedNamespaces).Draw(t, "namespace"), rapid.SampledFrom([]string{"web", "mail"}).Draw(t, "name")
	kind := rapid.SampledFrom([]string{"Service", "EndpointSlice", kindOutlierPolicy, kindOutlierPolicy, "HTTPRoute"}).Draw(t, "kind")
	if kind == kindOutlierPolicy {
		name = rapid.SampledFrom([]string{"a", "b", outlier.DefaultName}).Draw(t, "policy")
	}
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
		if was := x.store.remove(kind, key); was != nil {
			x.notify(was, true)
		}
		return
	}
	var o client.Object
	switch kind {
	case "Service":
		o = drawService(t, key)
	case "EndpointSlice":
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		o = sliceOf(svc, rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2"}), 0, 2).Draw(t, "addresses")...)
	case "HTTPRoute":
		o = drawRoute(t, key)
	default:
		o = x.drawPolicy(t, key)
	}
	x.store.set(o)
	x.notify(o, false)
}

func drawService(t *rapid.T, key types.NamespacedName) client.Object {
	svc := service(key.Name, rapid.SliceOfNDistinct(rapid.SampledFrom([]int32{80, 81}), 0, 2, rapid.ID).Draw(t, "ports")...)
	svc.Namespace = key.Namespace
	for i := range svc.Spec.Ports {
		if rapid.IntRange(0, 3).Draw(t, "h2c") == 0 {
			svc.Spec.Ports[i].AppProtocol = new("kubernetes.io/h2c")
		}
	}
	if rapid.IntRange(0, 5).Draw(t, "external") == 0 {
		svc.Spec.Type = corev1.ServiceTypeExternalName
	}
	return svc
}

func drawRoute(t *rapid.T, key types.NamespacedName) client.Object {
	var refs []any
	for _, to := range rapid.SliceOfN(rapid.SampledFrom([]string{"web", "mail"}), 0, 2).Draw(t, "to") {
		refs = append(refs, map[string]any{"name": to, "port": int64(80)})
	}
	r := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"rules": []any{map[string]any{"backendRefs": refs}}}}}
	r.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"})
	r.SetNamespace(key.Namespace)
	r.SetName(key.Name)
	return r
}

// drawPolicy gives an edit of the policy with this name, or another policy of that name.
func (x *pair) drawPolicy(t *rapid.T, key types.NamespacedName) client.Object {
	op := stored(key.Namespace, key.Name, rapid.IntRange(0, 3).Draw(t, "age"))
	op.UID, op.Generation = types.UID(fmt.Sprint(key, x.made)), 1
	if was, is := x.store.get(kindOutlierPolicy, key).(*v1alpha1.OutlierPolicy); is {
		op.UID, op.Generation, op.CreationTimestamp = was.UID, was.Generation+1, was.CreationTimestamp
	}
	if key.Name != outlier.DefaultName {
		op.Spec.TargetRefs = rapid.SliceOfNDistinct(rapid.SampledFrom([]v1alpha1.OutlierTargetReference{
			target("web", ""), target("web", "81"), target("mail", ""), {Kind: "HTTPRoute", Name: "web"}, {Kind: "HTTPRoute", Name: "mail"},
			{Kind: "HTTPRoute", Name: "web", Backend: &v1alpha1.OutlierBackend{Name: "web", Port: 80}},
		}), 1, 2, outlier.TargetText).Draw(t, "targets")
	}
	shape(t, op)
	if rapid.IntRange(0, 4).Draw(t, "refused") == 0 { // every detector is off
		op.Spec.OutlierDetection.ConsecutiveServerErrors = new(int32(0))
	}
	return op
}

// step changes the objects, or what is known of them.
func (x *pair) step(t *rapid.T) {
	switch rapid.IntRange(0, 13).Draw(t, "step") {
	case 0:
		x.guard.SetGuardrails(nil)
	case 1:
		x.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Spec: v1alpha1.GuardrailSpec{Paused: true, Frozen: rapid.Bool().Draw(t, "frozen")}}})
	case 2, 12:
		x.doubt(t)
	case 3:
		if x.seconds += 5; x.seconds < 50 { // later everything is translated anyway
			for _, c := range x.clocks {
				c.Step(5 * time.Second)
			}
		}
	case 4, 5, 6:
		for _, op := range x.policies() {
			if rapid.IntRange(0, 3).Draw(t, "judged") > 0 {
				x.judge(client.ObjectKeyFromObject(op))
			}
		}
	case 13:
		key := types.NamespacedName{Namespace: rapid.SampledFrom([]string{"shop", "bank"}).Draw(t, "loses"), Name: "web"}
		if was := x.store.remove(rapid.SampledFrom([]string{"Service", "HTTPRoute"}).Draw(t, "what"), key); was != nil {
			x.notify(was, true)
		}
	default:
		x.change(t)
	}
	for _, p := range x.both {
		for range p.confirmer.queue.Len() {
			o, _ := p.confirmer.queue.Get()
			p.confirmer.read(context.Background(), o)
			p.confirmer.queue.Done(o)
		}
	}
}

// doubt has an edited policy that can't be confirmed, or one that can again.
func (x *pair) doubt(t *rapid.T) {
	all := x.policies()
	if x.unsure != "" || len(all) == 0 {
		x.unsure = ""
		return
	}
	slices.SortFunc(all, func(a, b *v1alpha1.OutlierPolicy) int {
		return cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	key := client.ObjectKeyFromObject(rapid.SampledFrom(all).Draw(t, "doubtful"))
	x.unsure = key.Name
	op := x.drawPolicy(t, key)
	x.store.set(op)
	x.notify(op, false)
	x.judge(key)
	x.publish(t)
}

// publish has both publish.
func (x *pair) publish(t *rapid.T) {
	x.both[1].stale.add("")
	again, err := x.both[0].publish(t.Context())
	want, failed := x.both[1].publish(t.Context())
	if (err == nil) != (failed == nil) || again != want {
		t.Fatalf("again %s, error %v; all anew says %s, %v", again, err, want, failed)
	}
	if err != nil {
		return
	}
	x.compare(t)
	if rapid.Bool().Draw(t, "removed") {
		for i, p := range x.both {
			var gone []string
			for _, key := range p.clusters(x.both[i].snapshot()).Gone {
				gone = append(gone, key.String())
			}
			p.forgetRemoved(gone)
		}
	}
}

// compare all that the two give to Envoys and statuses.
func (x *pair) compare(t *rapid.T) {
	got, want := x.both[0], x.both[1]
	if a, b := flat(got), flat(want); !maps.Equal(a, b) {
		t.Fatalf("Envoys are told\n%v\nand all anew gives\n%v", a, b)
	}
	if !equality.Semantic.DeepEqual(got.served, want.served) || !maps.Equal(got.confirmer.reads, want.confirmer.reads) {
		t.Fatalf("served %v, absent %v; all anew gives %v, %v", got.served, got.confirmer.reads, want.served, want.confirmer.reads)
	}
	for _, op := range x.policies() {
		a, b := got.snapshot(), want.snapshot()
		if a.hasCurrent(op) != b.hasCurrent(op) {
			t.Fatalf("the snapshot has %s: %t; a full translation: %t", client.ObjectKeyFromObject(op), a.hasCurrent(op), b.hasCurrent(op))
		}
		if !b.hasCurrent(op) {
			continue
		}
		if a, b := timeless(statusOf(op, a, got.Clusters, nil)), timeless(statusOf(op, b, want.Clusters, nil)); !equality.Semantic.DeepEqual(a, b) {
			t.Fatalf("the status of %s is\n%+v\nand all anew gives\n%+v", client.ObjectKeyFromObject(op), a, b)
		}
	}
}

func timeless(s v1alpha1.OutlierPolicyStatus) v1alpha1.OutlierPolicyStatus {
	all := [][]metav1.Condition{s.Conditions}
	for _, a := range s.Ancestors {
		all = append(all, a.Conditions)
	}
	for _, conditions := range all {
		for i := range conditions {
			conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	return s
}

// flat is what was sent of each cluster, as text.
func flat(p *Publisher) map[string]string {
	all := map[string]string{}
	for _, clusters := range p.served {
		for key := range clusters {
			c, sent := p.Clusters.Last(key)
			if !sent {
				continue
			}
			policy := "no policy"
			if c.Policy != nil {
				policy = fmt.Sprintf("%s %s %d detects %t", c.Policy.Key(), c.Policy.UID, c.Policy.Generation, c.Policy.Detects())
				if c.Policy.Detects() {
					policy += fmt.Sprintf(" admitted %s %d", c.Admitted.UID(), c.Admitted.Generation())
				}
			}
			all[key.String()] = fmt.Sprintf("%s; tcp %t, http2 %t, tls %t, port %v, hosts %v", policy, c.TCP, c.HTTP2, c.TLS, c.Port.Port, c.Hosts)
		}
	}
	return all
}

// TestIncrementalTranslationEqualsAFullOne: whatever changes in whatever order, Envoys and statuses get the same from translating only the
// changed namespaces as from translating everything.
func TestIncrementalTranslationEqualsAFullOne(t *testing.T) {
	rules, err := guard.New(guard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var kept, anew atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		x := newPair(t.Context(), t, rt, rules)
		x.publish(rt)
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			x.step(rt)
			if rapid.IntRange(0, 2).Draw(rt, "publish") == 0 {
				continue // together with what comes next
			}
			x.publish(rt)
			if snap := x.both[0].snapshot(); snap != nil && snap.onlyNamespaces != nil {
				kept.Add(1)
			} else {
				anew.Add(1)
			}
		}
	})
	if kept.Load() < anew.Load()/4 {
		t.Errorf("%d times something was kept, %d times nothing", kept.Load(), anew.Load())
	}
}

// TestWhenEverythingIsTranslated: only changes that concern all namespaces cause a full translation.
func TestWhenEverythingIsTranslated(t *testing.T) {
	for name, c := range map[string]struct {
		change func(x *pair)
		only   []string
	}{
		"nothing":              {func(*pair) {}, []string{}},
		"endpoints":            {func(x *pair) { x.notify(sliceOf(service("web", 80)), false) }, []string{"shop"}},
		"an unknown object":    {func(x *pair) { x.both[0].onObject("?") }, nil},
		"the global default":   {func(x *pair) { x.notify(stored(systemNamespace, outlier.DefaultName, 1), false) }, nil},
		"a namespace's policy": {func(x *pair) { x.notify(stored("bank", outlier.DefaultName, 1), false) }, []string{"bank"}},
		"a freeze": {func(x *pair) {
			x.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Spec: v1alpha1.GuardrailSpec{Paused: true}}})
		}, nil},
		"a kind of routes": {func(x *pair) {
			x.both[0].Informers = &outliers.Informers{Cache: x.store, OwnNamespace: systemNamespace}
		}, nil},
		"a minute without any": {func(x *pair) { x.clocks[0].Step(time.Minute) }, nil},
		"a removal":            {func(x *pair) { x.both[0].forgetRemoved([]string{"bank/web/80"}) }, []string{"bank"}},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := guard.New(guard.Options{})
			if err != nil {
				t.Fatal(err)
			}
			rules.SetGuardrails(nil)
			x := &pair{store: &objectStore{}, guard: rules}
			for i := range x.both {
				x.both[i], x.clocks[i] = publisherWith(t, rules, x.store)
				x.both[i].Informers = x.store.followed(t.Context(), t)
			}
			p := x.both[0]
			if _, err := p.publish(t.Context()); err != nil || p.snapshot().onlyNamespaces != nil {
				t.Fatalf("the first is of all: %v, %v", p.snapshot().onlyNamespaces, err)
			}
			c.change(x)
			if _, err := p.publish(t.Context()); err != nil {
				t.Fatal(err)
			}
			only := p.snapshot().onlyNamespaces
			if got := slices.Sorted(maps.Keys(only)); (only == nil) != (c.only == nil) || !slices.Equal(got, c.only) {
				t.Errorf("translated in %v, want %v", only, c.only)
			}
		})
	}
}
