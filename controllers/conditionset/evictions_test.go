package conditionset

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/kube"
)

// confirmed is what is stored as it was judged.
type confirmed struct{}

func (confirmed) Check(context.Context, schema.GroupVersionKind, types.NamespacedName, types.UID, int64) error {
	return nil
}

// evicting is a reconciler of one sick node and two sets: "evict" wants it to be evicted, and "over" tainted it and matches no more.
func evicting(t *testing.T, objects interceptor.Funcs) (*NodeReconciler, client.Client) {
	t.Helper()
	o, _ := watched(t, false)
	now := o.Facts.Clock.Now()
	for name, effect := range map[string]corev1.TaintEffect{"evict": corev1.TaintEffectNoExecute, "over": corev1.TaintEffectNoSchedule} {
		set := newSet(name)
		set.Spec.Effect, set.Spec.For, set.Spec.RecoverAfter = effect, "0s", "0s"
		set.Finalizers, set.Status.TaintKeys = []string{"autohealer.resourcestack.com/undo"}, []string{set.Spec.TaintKey}
		if name == "over" {
			set.DeletionTimestamp = &metav1.Time{Time: now}
		}
		o.policies.Seen(t.Context(), set)
	}
	nodes := []client.Object{}
	for _, name := range []string{"sick", "b", "c"} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if name == "sick" {
			n.Annotations = map[string]string{"autohealer.resourcestack.com/owned-taints": `{"taints":[{"key":"example.com/over","effect":"NoSchedule","set":"uid-of-over","name":"over","generation":1,"since":"2026-03-01T11:00:00Z"}]}`}
			n.Spec.Taints = []corev1.Taint{{Key: "example.com/over", Effect: corev1.TaintEffectNoSchedule}}
			at := metav1.NewTime(now.Add(-time.Minute))
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "KernelDeadlock", Status: corev1.ConditionTrue, LastTransitionTime: at, LastHeartbeatTime: metav1.NewTime(now)})
		}
		nodes = append(nodes, n)
	}
	api := fake.NewClientBuilder().WithObjects(nodes...).WithIndex(&corev1.Pod{}, "spec.nodeName", func(client.Object) []string { return nil }).WithInterceptorFuncs(objects).Build()
	for _, name := range []string{"sick", "b", "c"} {
		var n corev1.Node
		if err := api.Get(t.Context(), types.NamespacedName{Name: name}, &n); err != nil {
			t.Fatal(err)
		}
		before := n.DeepCopy() // a reporter that is heard of twice lives
		for i := range before.Status.Conditions {
			before.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(now.Add(-time.Second))
		}
		o.Facts.Fleet.ObserveNode(before, o.Facts.Moment())
		o.Facts.Fleet.ObserveNode(&n, o.Facts.Moment())
	}
	o.Facts.Fleet.MarkSynced(o.Facts.Moment())
	return &NodeReconciler{
		Observer: o, Live: api, Errors: &o.policies.Errors, Report: NewReporter(events.NewFakeRecorder(100), o.isStored),
		Orphans: &kube.Orphans{}, Taints: &actuate.Taints{Client: api, Current: confirmed{}},
		Evictions: &actuate.Record{Reader: api, Writer: api, Namespace: "autohealer-system", Name: "autohealer-evictions"},
	}, api
}

func taintsOf(t *testing.T, api client.Client, node string) (taints []string) {
	t.Helper()
	var n corev1.Node
	if err := api.Get(t.Context(), types.NamespacedName{Name: node}, &n); err != nil {
		t.Fatal(err)
	}
	for _, taint := range n.Spec.Taints {
		taints = append(taints, taint.Key+":"+string(taint.Effect))
	}
	return taints
}

func TestWithoutARecordOfEvictionsAllButThatGoesOn(t *testing.T) {
	refuses := errors.New("configmaps is forbidden")
	isRecord := func(o client.Object) bool { _, is := o.(*corev1.ConfigMap); return is }
	for name, c := range map[string]struct {
		objects interceptor.Funcs
		want    string
		says    string
	}{
		"it is there": {interceptor.Funcs{}, "example.com/evict:NoExecute", ""},
		"it can't be read": {interceptor.Funcs{Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if isRecord(o) {
				return refuses
			}
			return w.Get(ctx, key, o, opts...)
		}}, "example.com/evict:NoSchedule", ""}, // the set's status says why
		"it can't be written": {interceptor.Funcs{Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if isRecord(o) {
				return refuses
			}
			return w.Create(ctx, o, opts...)
		}}, "example.com/evict:NoSchedule", "configmaps is forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			r, api := evicting(t, c.objects)
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "sick"}})
			if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
			if got := taintsOf(t, api, "sick"); len(got) != 1 || got[0] != c.want {
				t.Errorf("the node has %v, want %s: what is over is undone, and the node is kept free of new pods", got, c.want)
			}
			sum, _ := r.Observer.Facts.Fleet.Summary("uid-of-evict", r.Observer.Facts.Moment())
			if held := sum.Holds["LiveReadFailed"]; (held.Nodes == 1) != (c.want == "example.com/evict:NoSchedule") {
				t.Errorf("held: %+v", sum.Holds)
			}
			if trouble := r.Errors.Get("uid-of-evict"); trouble != nil {
				t.Errorf("the set is in trouble over nodes: %v", trouble)
			}
		})
	}
}

func TestANewManagerKnowsWhoWasEvicted(t *testing.T) {
	r, api := evicting(t, interceptor.Funcs{})
	if err := api.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "autohealer-system", Name: "autohealer-evictions"},
		Data:       map[string]string{"gone": `{"name":"gone","began":"2026-03-01T11:59:00Z"}`},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "sick"}}); err != nil {
		t.Fatal(err)
	}
	if got := taintsOf(t, api, "sick"); len(got) != 1 || got[0] != "example.com/evict:NoSchedule" { // one of three may evict, and one that is gone does
		t.Errorf("the node has %v", got)
	}
}
