package kube_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/resourcestack/autohealer/internal/kube"
)

// What runs beside the watches ends only when it is told to. A manager that waited for it before would go on with a state that never
// was.
func TestWatchesEnd(t *testing.T) {
	untilTold := func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}
	failed := errors.New("failed")
	at := func(version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "u", ResourceVersion: version}}
	}
	for name, c := range map[string]struct {
		run     func(context.Context) error
		happens func(nodes *controllertest.FakeInformer, stop func())
		want    error
	}{
		"when they are told to":                           {untilTold, func(_ *controllertest.FakeInformer, stop func()) { stop() }, nil},
		"when what runs fails":                            {func(context.Context) error { return failed }, func(*controllertest.FakeInformer, func()) {}, failed},
		"when the API server goes back to an older state": {untilTold, func(n *controllertest.FakeInformer, _ func()) { n.Update(at("10"), at("9")) }, kube.ErrHistoryLost},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			informers := &informertest.FakeInformers{Scheme: clientgoscheme.Scheme}
			nodes, err := informers.FakeInformerFor(ctx, &corev1.Node{})
			if err != nil {
				t.Fatal(err)
			}
			running, ended := make(chan struct{}), make(chan error, 1)
			none := func(*corev1.Node) {}
			go func() {
				ended <- kube.NewWatches(informers).Run(ctx, func(ctx context.Context) error {
					close(running)
					return c.run(ctx)
				}, kube.On(&corev1.Node{}, none, none))
			}()
			<-running
			c.happens(nodes, stop)
			select {
			case err := <-ended:
				if !errors.Is(err, c.want) {
					t.Errorf("they end with %v, want %v", err, c.want)
				}
			case <-time.After(10 * time.Second):
				t.Error("they go on")
			}
		})
	}
}
