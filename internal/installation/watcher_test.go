package installation

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestTheWatcherAsksOnlyWhenTheAnswerMayBeAnotherOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(namespace("own", "1"), configuration("own/1")).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if key.Name == "autohealer" {
					asked.Add(1)
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		informers := &informertest.FakeInformers{}
		tell := func(o client.Object) {
			informer, err := informers.FakeInformerFor(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			informer.Update(o, o)
		}
		m := &Marker{Client: c, Configuration: "autohealer", Namespace: "own"}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		start := func() { go func() { ended <- (Watcher{Marker: m, Cache: informers, Elected: true}).Start(ctx) }() }
		for _, step := range []struct {
			name  string
			do    func()
			asked int64
		}{
			{"it starts", start, 1},
			{"nothing happens", func() {}, 0},
			{"the configuration changes", func() { tell(configuration("own/1")) }, 1},
			{"the own namespace does", func() { tell(namespace("own", "1")) }, 1},
			{"another namespace does", func() { tell(namespace("other", "2")) }, 0},
			{"a watch fails", m.Doubt, 1},
		} {
			asked.Store(0)
			step.do()
			time.Sleep(time.Minute) // in the bubble
			synctest.Wait()
			if asked := asked.Load(); asked != step.asked {
				t.Errorf("%s: asked %d times", step.name, asked)
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
