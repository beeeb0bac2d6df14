package checking

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// definitions is an API server that has none, and counts who asks.
type definitions struct {
	client.Reader
	asked int
}

func (d *definitions) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	d.asked++
	return nil
}

func TestALayoutIsReadAnewOnceSomebodyDoubtsIt(t *testing.T) {
	gadget := schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Gadget"}
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(gadget, meta.RESTScopeNamespace)
	server, clock := &definitions{}, testingclock.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	l := NewLayouts(server, kinds, clock)
	for i, step := range []struct {
		after time.Duration
		doubt bool
		want  int
	}{{0, false, 1}, {59 * time.Minute, false, 1}, {0, true, 2}, {4 * time.Second, true, 2}, {time.Second, true, 3}, {time.Hour, false, 4}} {
		clock.SetTime(clock.Now().Add(step.after))
		if step.doubt {
			l.Invalidate(gadget)
		}
		if _, err := l.Of(t.Context(), gadget); err != nil || server.asked != step.want {
			t.Errorf("step %d: %v, after %d reads instead of %d", i, err, server.asked, step.want)
		}
	}
}
