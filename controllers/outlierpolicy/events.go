package outlierpolicy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

const (
	// maxHostsPerEvent bounds the hosts that one Event names.
	maxHostsPerEvent = 5
	// maxObjectEvents bounds how many Services and how many pods get an Event at a time; the policy's Event counts all hosts.
	maxObjectEvents = 20
)

// hostChanges are hosts that were ejected or returned since the last report.
type hostChanges struct {
	ejected, returned []ejection.Host
	now               *ejectionState
}

// diffHosts compares ejections with those reported before. A host that the clusters no longer have is in neither list.
func diffHosts(now *ejectionState, before map[ejection.Host]reportedEjection) hostChanges {
	c := hostChanges{now: now}
	for h := range now.ejections {
		if _, known := before[h]; !known {
			c.ejected = append(c.ejected, h)
		}
	}
	for h := range before {
		_, still := now.ejections[h]
		if _, present := now.hosts[h]; present && !still {
			c.returned = append(c.returned, h)
		}
	}
	for _, all := range [][]ejection.Host{c.ejected, c.returned} {
		slices.SortFunc(all, func(a, b ejection.Host) int {
			return cmp.Or(cmp.Compare(a.Cluster.String(), b.Cluster.String()), cmp.Compare(a.Address, b.Address))
		})
	}
	return c
}

// emit writes Events on the policy, the Services and the pods: one for each object and kind of change, however many hosts there are.
func (c hostChanges) emit(recorder events.EventRecorder, op *v1alpha1.OutlierPolicy, services func(types.NamespacedName) *corev1.Service) {
	for _, kind := range []struct {
		eventType, reason, action string
		note                      func([]ejection.Host) string
		hosts                     []ejection.Host
	}{
		{corev1.EventTypeWarning, v1alpha1.ReasonHostsEjected, "Eject", c.ejectedNote, c.ejected},
		{corev1.EventTypeNormal, v1alpha1.ReasonHostsReturned, "Return", c.returnedNote, c.returned},
	} {
		if len(kind.hosts) == 0 {
			continue
		}
		recorder.Eventf(op, nil, kind.eventType, kind.reason, kind.action, "%s", kind.note(kind.hosts))
		for _, of := range []func(ejection.Host) corev1.ObjectReference{c.serviceOf(services), c.podOf} {
			byObject := map[corev1.ObjectReference][]ejection.Host{}
			for _, h := range kind.hosts {
				byObject[of(h)] = append(byObject[of(h)], h)
			}
			delete(byObject, corev1.ObjectReference{})
			objects := slices.SortedFunc(maps.Keys(byObject), func(a, b corev1.ObjectReference) int {
				return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
			})
			for _, object := range objects[:min(maxObjectEvents, len(objects))] {
				recorder.Eventf(&object, op, kind.eventType, kind.reason, kind.action, "%s", kind.note(byObject[object]))
			}
		}
	}
}

// serviceOf returns a host's Service; an empty reference while there is none.
func (c hostChanges) serviceOf(services func(types.NamespacedName) *corev1.Service) func(ejection.Host) corev1.ObjectReference {
	return func(h ejection.Host) (ref corev1.ObjectReference) {
		if svc := services(h.Cluster.Service); svc != nil {
			ref = corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: svc.Namespace, Name: svc.Name, UID: svc.UID, ResourceVersion: svc.ResourceVersion}
		}
		return ref
	}
}

// podOf returns a host's pod; an empty reference for a host that isn't a pod.
func (c hostChanges) podOf(h ejection.Host) (ref corev1.ObjectReference) {
	if host := c.now.hosts[h]; host.Pod != "" {
		ref = corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: h.Cluster.Service.Namespace, Name: host.Pod, UID: host.PodUID}
	}
	return ref
}

func (c hostChanges) ejectedNote(hosts []ejection.Host) string {
	return fmt.Sprintf("Envoys ejected %s: %s.", sample.Count(len(hosts), "host"), joinHosts(hosts, func(h ejection.Host) string {
		x := c.now.ejections[h]
		return fmt.Sprintf("%s of %s, by %s", hostText(x.Pod, h.Address), h.Cluster, sample.Count(int(x.Envoys), "Envoy"))
	}))
}

func (c hostChanges) returnedNote(hosts []ejection.Host) string {
	return fmt.Sprintf("Envoys took back %s: %s.", sample.Count(len(hosts), "host"), joinHosts(hosts, func(h ejection.Host) string {
		return fmt.Sprintf("%s of %s", hostText(c.now.hosts[h].Pod, h.Address), h.Cluster)
	}))
}

// hostText is a host's pod and address, or its address alone.
func hostText(pod, address string) string {
	if pod == "" {
		return address
	}
	return fmt.Sprintf("pod %s (%s)", pod, address)
}

func joinHosts(hosts []ejection.Host, text func(ejection.Host) string) string {
	var all []string
	for _, h := range hosts[:min(maxHostsPerEvent, len(hosts))] {
		all = append(all, text(h))
	}
	if more := len(hosts) - maxHostsPerEvent; more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}
