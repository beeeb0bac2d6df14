package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// sight follows all nodes on a watch, as a scheduler would, and knows when taints became visible there. It runs during
// every measurement, the reference's too, so that it costs all the same.
type sight struct {
	mu      sync.Mutex
	nodes   map[string]*seen // needs mu
	tainted int              // needs mu: nodes with a taint of the sets
	last    time.Time        // needs mu: when tainted changed
	changed chan struct{}    // needs mu: closed when tainted changes
	// lost counts foreign taints that vanished or went back to an earlier value. Needs mu.
	lost int
}

type seen struct {
	tainted bool
	at      time.Time // when tainted changed last
	mark    int
}

// startSight watches until ctx ends and returns when the watch has begun.
func startSight(ctx context.Context, client kubernetes.Interface) (*sight, error) {
	s := &sight{nodes: map[string]*seen{}, changed: make(chan struct{})}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.CoreV1().Nodes().List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				return client.CoreV1().Nodes().Watch(ctx, o)
			},
		},
		ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { s.see(object.(*corev1.Node)) },
			UpdateFunc: func(_, object any) { s.see(object.(*corev1.Node)) },
		},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("watch nodes: %w", ctx.Err())
	}
	return s, nil
}

func (s *sight) see(node *corev1.Node) {
	now := time.Now()
	mark := markOf(node)
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, keyPrefix) })
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[node.Name]
	if n == nil {
		n = &seen{}
		s.nodes[node.Name] = n
	}
	if mark < n.mark {
		s.lost++
	}
	n.mark = mark
	if n.tainted == tainted {
		return
	}
	n.tainted, n.at, s.last = tainted, now, now
	if tainted {
		s.tainted++
	} else {
		s.tainted--
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// awaitTainted waits until exactly n nodes are seen with taints of the sets, and gives the time at which the last of
// them was.
func (s *sight) awaitTainted(ctx context.Context, n int) (time.Time, error) {
	return s.await(ctx, stormPatience, func() bool { return s.tainted == n })
}

// awaitNodes waits until every node of a list is seen as it should be.
func (s *sight) awaitNodes(ctx context.Context, names []string, right func(i int, tainted bool) bool, patience time.Duration) (time.Time, error) {
	return s.await(ctx, patience, func() bool {
		for i, name := range names {
			if n := s.nodes[name]; n == nil || !right(i, n.tainted) {
				return false
			}
		}
		return true
	})
}

// await gives the time of the last change once `holds`, which may look at s.
func (s *sight) await(ctx context.Context, patience time.Duration, holds func() bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		s.mu.Lock()
		held, tainted, changed, last := holds(), s.tainted, s.changed, s.last
		s.mu.Unlock()
		if held {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for taints to come or go, with %d nodes tainted: %w", tainted, ctx.Err())
		}
	}
}

// changedAt is when a node was last tainted or untainted.
func (s *sight) changedAt(node string) (at time.Time, tainted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[node]; n != nil {
		return n.at, n.tainted
	}
	return time.Time{}, false
}

// lostMarks is how many foreign taints were lost on the way.
func (s *sight) lostMarks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}
