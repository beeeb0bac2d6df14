package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

func sightOf(uid types.UID, version string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid, ResourceVersion: version}}
}

func TestAnInformersEventsBecomeCalls(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(toolscache.ResourceEventHandlerFuncs)
		want    string
	}{
		"new":             {func(h toolscache.ResourceEventHandlerFuncs) { h.OnAdd(sightOf("u", "5"), false) }, "seen u 5"},
		"changed":         {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(sightOf("u", "5"), sightOf("u", "6")) }, "seen u 6"},
		"a resync":        {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(sightOf("u", "5"), sightOf("u", "5")) }, "seen u 5"},
		"deleted":         {func(h toolscache.ResourceEventHandlerFuncs) { h.OnDelete(sightOf("u", "5")) }, "gone u 5"},
		"longer is newer": {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(sightOf("u", "999"), sightOf("u", "1000")) }, "seen u 1000"},
		"not comparable":  {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(sightOf("u", "z"), sightOf("u", "a")) }, "seen u a"},
		"an older state":  {func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(sightOf("u", "1000"), sightOf("u", "999")) }, "lost *v1.Node /a is at resourceVersion 999 and was at 1000"},
		"another, though older": {
			func(h toolscache.ResourceEventHandlerFuncs) { h.OnUpdate(sightOf("u", "6"), sightOf("v", "5")) }, "gone u 6, seen v 5",
		},
		"deleted while the watch was away": {
			func(h toolscache.ResourceEventHandlerFuncs) {
				h.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: sightOf("u", "5")})
			}, "gone u 5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			note := func(call string) func(*corev1.Node) {
				return func(n *corev1.Node) { calls = append(calls, call+" "+string(n.UID)+" "+n.ResourceVersion) }
			}
			c.happens(Handlers(note("seen"), note("gone"), func(err error) {
				if !errors.Is(err, ErrHistoryLost) {
					t.Errorf("the error is %v", err)
				}
				text, _, _ := strings.Cut(err.Error(), ":")
				calls = append(calls, "lost "+text)
			}))
			if got := strings.Join(calls, ", "); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// restored is an API server whose etcd is restored from a backup once its first watch has begun.
type restored struct{ restored chan struct{} }

func (s *restored) List(options metav1.ListOptions) (runtime.Object, error) {
	version := "1000"
	select {
	case <-s.restored:
		if options.ResourceVersion != "" {
			return nil, apierrors.NewTimeoutError("Too large resource version: "+options.ResourceVersion, 1)
		}
		version = "800"
	default:
	}
	return &corev1.NodeList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: []corev1.Node{*sightOf("u", version)}}, nil
}

func (s *restored) Watch(metav1.ListOptions) (watch.Interface, error) {
	select {
	case <-s.restored:
	default:
		close(s.restored)
	}
	return nil, apierrors.NewResourceExpired("too old resource version")
}

// IsWatchListSemanticsUnSupported tells the reflector to list.
func (*restored) IsWatchListSemanticsUnSupported() bool { return true }

func TestARestoreOfEtcdIsNoticedByTheListThatFollows(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	informer := toolscache.NewSharedIndexInformer(&restored{make(chan struct{})}, &corev1.Node{}, 0, nil)
	lost := make(chan error, 1)
	none := func(*corev1.Node) {}
	if _, err := informer.AddEventHandler(Handlers(none, none, func(err error) { lost <- err })); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); informer.RunWithContext(ctx) }()
	select {
	case err := <-lost:
		if !strings.Contains(err.Error(), "is at resourceVersion 800 and was at 1000") {
			t.Errorf("the error is %v", err)
		}
	case <-ctx.Done():
		t.Error("nobody noticed")
	}
	cancel()
	<-done
}
