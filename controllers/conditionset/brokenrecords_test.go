package conditionset

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// recorded has a node's record say that.
func recorded(t *testing.T, r *NodeReconciler, api client.Client, node, record string) {
	t.Helper()
	var n corev1.Node
	if err := api.Get(t.Context(), types.NamespacedName{Name: node}, &n); err != nil {
		t.Fatal(err)
	}
	n.Annotations = map[string]string{"autohealer.resourcestack.com/owned-taints": record}
	if err := api.Update(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	r.Observer.node(&n)
}

func TestARecordThatCannotBeReadIsToldOnce(t *testing.T) {
	r, api := evicting(t, interceptor.Funcs{})
	recorder := events.NewFakeRecorder(100)
	r.Report.Events = recorder
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	reconciled := func(times int) (told []string) {
		t.Helper()
		for range times {
			if _, err := r.Reconcile(log.IntoContext(context.Background(), logger), reconcile.Request{NamespacedName: types.NamespacedName{Name: "sick"}}); err != nil {
				t.Fatal(err)
			}
		}
		for len(recorder.Events) > 0 {
			told = append(told, <-recorder.Events)
		}
		return told
	}
	recorded(t, r, api, "sick", "{")
	const mend = "kubectl taint node sick example.com/over:NoSchedule-; kubectl annotate node sick autohealer.resourcestack.com/owned-taints-"
	want := "Warning RecordUnreadable The annotation autohealer.resourcestack.com/owned-taints of node sick can't be read, so ConditionSets do nothing and undo nothing there. " +
		"To fix it, repair the annotation; or remove the taints, those of them that ConditionSets set, and then the annotation: " + mend
	if told := reconciled(3); !slices.Equal(told, []string{want}) {
		t.Errorf("Events %q, want\n%q", told, want)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], `"node"="sick"`) || !strings.Contains(lines[0], mend) || !strings.Contains(lines[0], "unexpected end of JSON input") {
		t.Errorf("log %q", lines)
	}
	recorded(t, r, api, "sick", "[]")
	if told := reconciled(2); len(told) != 1 {
		t.Errorf("Events %q, want one of the other record", told)
	}
	recorded(t, r, api, "sick", "{}")
	reconciled(1)
	recorded(t, r, api, "sick", "[]")
	if told := reconciled(2); len(told) != 1 {
		t.Errorf("Events %q, want one, since it was mended meanwhile", told)
	}
	queue := priorityqueue.New[reconcile.Request]("")
	defer queue.ShutDown()
	r.Observer.nodes.Attach(queue)
	r.Observer.nodeGone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "sick", UID: "sick"}})
	if queue.Len() != 1 {
		t.Error("nobody looks at the node that is gone")
	}
	reconciled(1)
	r.Report.broken.reported.Range(func(node, record any) bool {
		t.Errorf("remembered of node %v that is gone: %v", node, record)
		return true
	})
}
