package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
)

// healthSight follows all targets of a type on a watch, and knows when conditions became visible there. It runs during every
// measurement, the reference's too, so that it costs all the same.
type healthSight struct {
	mu       sync.Mutex
	targets  map[string]*seenTarget // needs mu; by name
	statuses map[health.Status]int  // needs mu: how many targets have it; "" is no condition and no claim
	last     time.Time              // needs mu: when a status changed
	changed  chan struct{}          // needs mu: closed when a status changes
}

// claimed has no condition yet, or any more, and stands in the target's record.
const claimed health.Status = "claimed"

type seenTarget struct {
	object *unstructured.Unstructured
	status health.Status
	at     time.Time // when status changed last
}

// startHealthSight watches until ctx ends and returns when the watch has begun.
func startHealthSight(ctx context.Context, client dynamic.Interface, workerType string) (*healthSight, error) {
	s := &healthSight{targets: map[string]*seenTarget{}, statuses: map[health.Status]int{}, changed: make(chan struct{})}
	workers := client.Resource(workersResource)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = "type=" + workerType
				return workers.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				o.LabelSelector = "type=" + workerType
				return workers.Watch(ctx, o)
			},
		},
		ObjectType: &unstructured.Unstructured{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { s.see(object.(*unstructured.Unstructured)) },
			UpdateFunc: func(_, object any) { s.see(object.(*unstructured.Unstructured)) },
		},
	})
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("watch Workers: %w", ctx.Err())
	}
	return s, nil
}

func (s *healthSight) see(object *unstructured.Unstructured) {
	now := time.Now()
	status := health.Status("")
	if c := health.Find(object, healthCondition); c != nil {
		status = c.Status
	} else if _, ok := object.GetAnnotations()[v1alpha1.AnnotationOwnedConditions]; ok {
		status = claimed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.targets[object.GetName()]
	if t == nil {
		t = &seenTarget{}
		s.targets[object.GetName()] = t
		s.statuses[""]++
	}
	t.object = object
	if t.status == status {
		return
	}
	s.statuses[t.status]--
	s.statuses[status]++
	t.status, t.at, s.last = status, now, now
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits until exactly n targets have a status, and gives the time at which the last one changed.
func (s *healthSight) await(ctx context.Context, status health.Status, n int) (time.Time, error) {
	return s.until(ctx, func() bool { return s.statuses[status] == n })
}

// awaitAll waits until every target is as it should be.
func (s *healthSight) awaitAll(ctx context.Context, right func(i int, status health.Status) bool) (time.Time, error) {
	return s.until(ctx, func() bool {
		for i := range len(s.targets) {
			if t := s.targets[healthName(i)]; t == nil || !right(i, t.status) {
				return false
			}
		}
		return true
	})
}

// until gives the time of the last change once `holds`, which may look at s.
func (s *healthSight) until(ctx context.Context, holds func() bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	for {
		s.mu.Lock()
		held, now, changed, last := holds(), fmt.Sprint(s.statuses), s.changed, s.last
		s.mu.Unlock()
		if held {
			return last, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for conditions, of which there are %s: %w", now, ctx.Err())
		}
	}
}

// target is a target as the watch told it last.
func (s *healthSight) target(i int) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.targets[healthName(i)].object
}

func (s *healthSight) changedAt(i int) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.targets[healthName(i)].at
}

// healthRequests are how many there were so far about what registrations have to do with, by the API server's own count. They
// are the manager's alone while this program makes none. Watches aren't counted.
type healthRequests struct {
	reads, writes int
	toTargets     int // those writes of targets that weren't refused
}

func (b *bench) healthRequests(ctx context.Context) (r healthRequests, err error) {
	metrics, err := b.clients.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return r, fmt.Errorf("read the API server's metrics: %w", err)
	}
	for line := range strings.Lines(string(metrics)) {
		labels, ok := strings.CutPrefix(line, "apiserver_request_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(labels, "} ")
		count, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return r, fmt.Errorf("read the API server's metrics: %w", err)
		}
		r.add(labels, int(count))
	}
	return r, nil
}

func (r *healthRequests) add(labels string, count int) {
	of := map[string]string{}
	for label := range strings.SplitSeq(labels, ",") {
		name, value, _ := strings.Cut(label, "=")
		of[name] = strings.Trim(value, `"`)
	}
	switch of["resource"] {
	case "workers", "managedresources", "deployments", "configmaps", "healthcheckregistrations":
	default:
		return
	}
	switch of["verb"] {
	case "WATCH":
	case "GET", "LIST":
		r.reads += count
	default:
		r.writes += count
		if of["resource"] == "workers" && strings.HasPrefix(of["code"], "2") {
			r.toTargets += count
		}
	}
}

// healthRest waits until nothing has been asked for so long.
func (b *bench) healthRest(ctx context.Context, silence time.Duration) error {
	const patience = 10
	for range patience {
		before, err := b.healthRequests(ctx)
		if err != nil {
			return err
		}
		if err := pause(ctx, silence); err != nil {
			return err
		}
		if after, err := b.healthRequests(ctx); err != nil || after == before {
			return err
		}
	}
	return errors.New("the manager never stops asking though nothing changes")
}
