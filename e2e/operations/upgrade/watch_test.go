package upgrade

import (
	"context"
	"fmt"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// watched are the objects that policies had acted on, each with all that became of it since.
type watched struct {
	mu   sync.Mutex
	seen map[string][]string
}

// watch begins, with all events: a taint that is missing for a moment is seen as well.
func watch(ctx context.Context) *watched {
	GinkgoHelper()
	w := &watched{seen: map[string][]string{}}
	clients, err := dynamic.NewForConfig(h.Config)
	Expect(err).NotTo(HaveOccurred())
	informers := dynamicinformer.NewDynamicSharedInformerFactory(clients, 0)
	repelled, evicted := h.Sick()
	for _, of := range []struct {
		resource schema.GroupVersionResource
		names    []string
		fields   []string
	}{
		{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, []string{repelled, evicted}, []string{"spec", "taints"}},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, []string{"kcm"}, []string{"spec", "replicas"}},
		{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}, []string{"ca"}, []string{"spec", "replicas"}},
		{schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}, []string{"gadget"}, []string{"status", "conditions"}},
	} {
		note := func(object any) {
			o := object.(*unstructured.Unstructured) //nolint:forcetypeassert // what dynamic informers give
			if slices.Contains(of.names, o.GetName()) {
				value, _, _ := unstructured.NestedFieldNoCopy(o.Object, of.fields...)
				w.note(of.resource.Resource+"/"+o.GetName(), essence(value))
			}
		}
		informer := informers.ForResource(of.resource).Informer()
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, now any) { note(now) }})
		Expect(err).NotTo(HaveOccurred())
	}
	watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(cancel)
	informers.Start(watching.Done())
	informers.WaitForCacheSync(watching.Done())
	return w
}

// essence is a condition's type and status, and a taint's key and effect: their times and messages may change.
func essence(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	var all []string
	for _, item := range list {
		if entry, ok := item.(map[string]any); ok {
			all = append(all, fmt.Sprint(entry["type"], entry["status"], entry["key"], entry["effect"]))
		}
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

func (w *watched) note(object, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.seen[object]; len(all) == 0 || all[len(all)-1] != value {
		w.seen[object] = append(all, value)
	}
}

// changes are the objects that had more than one value.
func (w *watched) changes() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	Expect(w.seen).To(HaveLen(5))
	found := map[string][]string{}
	for object, values := range w.seen {
		if len(values) > 1 {
			found[object] = values
		}
	}
	return found
}
