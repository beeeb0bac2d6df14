package weeder_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// A real informer stores and hands out what Transform makes, from the first list on.
func TestAnInformerStoresPodsAsTheyAreRead(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	source.Add(newPod("api-1", running))
	informer := cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := informer.SetTransform(weeder.Transform); err != nil {
		t.Fatal(err)
	}
	events := make(chan *weeder.Pod, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { events <- o.(*weeder.Pod) },
		UpdateFunc: func(_, o any) { events <- o.(*weeder.Pod) },
		DeleteFunc: func(o any) { events <- o.(*weeder.Pod) },
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); informer.Run(t.Context().Done()) }()
	t.Cleanup(func() { <-done })
	next := func() *weeder.Pod {
		t.Helper()
		select {
		case p := <-events:
			return p
		case <-time.After(10 * time.Second):
			t.Fatal("no event")
			return nil
		}
	}
	expect(t, "added, looping", next().Loop(true).Container, "")
	source.Modify(newPod("api-1", backOff))
	expect(t, "modified, looping", next().Loop(true).Container, "main")
	stored, _, _ := informer.GetStore().GetByKey("ns/api-1")
	expect(t, "stored", stored.(*weeder.Pod).Name, "api-1")
	here, err := informer.GetIndexer().ByIndex(cache.NamespaceIndex, "ns")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "by namespace", len(here), 1)
	source.Delete(newPod("api-1"))
	expect(t, "deleted", next().Key().String(), "ns/api-1")
}
