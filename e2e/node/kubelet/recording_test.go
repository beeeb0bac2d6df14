//go:build linux

package kubelet

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// revision is a pod as the API server told of it, and when.
type revision struct {
	at   time.Time
	kind watch.EventType
	pod  *corev1.Pod
}

// recording has every revision of a namespace's pods, in order.
type recording struct {
	mu        sync.Mutex
	revisions []revision
	broke     error
}

// record begins a recording; it ends with the spec or the container that it is begun in.
func record(ctx context.Context, namespace string) *recording {
	GinkgoHelper()
	pods, err := core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	events, err := core.CoreV1().Pods(namespace).Watch(watching, metav1.ListOptions{ResourceVersion: pods.ResourceVersion})
	Expect(err).NotTo(HaveOccurred())
	r := &recording{}
	var running sync.WaitGroup
	running.Go(func() { r.follow(events) })
	DeferCleanup(func() {
		stop()
		events.Stop()
		running.Wait()
	})
	return r
}

func (r *recording) follow(events watch.Interface) {
	for event := range events.ResultChan() {
		now := time.Now()
		pod, ok := event.Object.(*corev1.Pod)
		r.mu.Lock()
		if ok {
			r.revisions = append(r.revisions, revision{now, event.Type, pod})
		} else {
			r.broke = fmt.Errorf("the watch said %v", event.Object)
		}
		r.mu.Unlock()
	}
}

// of gives the revisions of an app's pods up to now.
func (r *recording) of(app string) []revision {
	GinkgoHelper()
	r.mu.Lock()
	defer r.mu.Unlock()
	Expect(r.broke).NotTo(HaveOccurred())
	var found []revision
	for _, revision := range r.revisions {
		if revision.pod.Labels["app"] == app {
			found = append(found, revision)
		}
	}
	return found
}

// await gives the first revision of an app's pods that holds, also one that came before.
func (r *recording) await(app, should string, holds func(revision) bool) revision {
	GinkgoHelper()
	var found revision
	Eventually(func() error {
		for _, revision := range r.of(app) {
			if holds(revision) {
				found = revision
				return nil
			}
		}
		return fmt.Errorf("none of %d revisions is of that sort", len(r.of(app)))
	}).WithTimeout(3*time.Minute).WithPolling(20*time.Millisecond).Should(Succeed(), "%s %s", app, should) // back-offs add up
	return found
}
