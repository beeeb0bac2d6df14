package snapshot

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// ForecastOutlierPolicy tells what a policy would have meant at the snapshot's moment.
func (f *Facts) ForecastOutlierPolicy(op *v1alpha1.OutlierPolicy, _ limit.Limits, _ time.Time) outlier.Forecast {
	return outlier.ForecastOf(op, f.routed(), f.ownNamespace)
}

// routed is the whole cluster.
func (f *Facts) routed() outlier.World {
	o := f.snapshot.Objects
	w := outlier.World{Policies: allOf[v1alpha1.OutlierPolicy](o), Services: allOf[corev1.Service](o), Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	for _, slice := range allOf[discoveryv1.EndpointSlice](o) {
		of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		w.Slices[of] = append(w.Slices[of], slice)
	}
	for _, kind := range outlier.RouteKinds {
		for _, route := range o.all(kind) {
			w.Routes = append(w.Routes, outlier.ReadRoute(route.raw.Object))
		}
	}
	return w
}

// Seat is a host of an Envoy cluster for which an OutlierPolicy holds.
type Seat struct {
	Policy *v1alpha1.OutlierPolicy
	Read   *outlier.Policy
	// Cluster with all its hosts.
	Cluster outlier.Key
	Hosts   []outlier.Host
	outlier.Host
	// Behind is why Envoys may have something else than what the policy says; "" when they have it, or nobody knows better.
	Behind string
}

// behind says why Envoys may have something else of a cluster than what a policy says.
func behind(op *v1alpha1.OutlierPolicy, a *outlier.Assignment) string {
	if accepted := meta.FindStatusCondition(op.Status.Conditions, v1alpha1.ConditionAccepted); accepted == nil || accepted.ObservedGeneration != op.Generation {
		return "The manager hasn't judged the policy as it is now: Envoys keep what they have."
	}
	for _, t := range op.Status.Ancestors {
		ref := v1alpha1.OutlierTargetReference{Group: t.AncestorRef.Group, Kind: t.AncestorRef.Kind, Name: t.AncestorRef.Name, SectionName: t.AncestorRef.SectionName, Backend: t.AncestorRef.Backend}
		if len(op.Spec.TargetRefs) > 0 && !a.For(ref) {
			continue
		}
		if c := meta.FindStatusCondition(t.Conditions, v1alpha1.ConditionProgrammed); c != nil && c.Status == metav1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// At is the host's address, ip:port.
func (s *Seat) At() string {
	return net.JoinHostPort(s.Address, strconv.FormatUint(uint64(s.Port), 10))
}

// OfPod and OfService choose hosts.
func OfPod(name string) func(outlier.Key, outlier.Host) bool {
	return func(_ outlier.Key, h outlier.Host) bool { return h.Pod == name }
}

// OfService chooses those of all its ports.
func OfService(name string) func(outlier.Key, outlier.Host) bool {
	return func(key outlier.Key, _ outlier.Host) bool { return key.Service.Name == name }
}

// Seats are the chosen hosts of a namespace's clusters, as the policies hold that the manager last accepted. It fails with what isn't
// known that they are planned by.
func (f *Facts) Seats(namespace string, chosen func(outlier.Key, outlier.Host) bool) (seats []Seat, err error) {
	if err := f.snapshot.Covers("OutlierPolicy"); err != nil {
		return nil, err
	}
	w := f.routed()
	stored, policies := map[*outlier.Policy]*v1alpha1.OutlierPolicy{}, []*outlier.Policy(nil)
	for _, op := range w.Policies {
		if p, err := outlier.NewPolicy(op); op.DeletionTimestamp == nil {
			p.Refused = err != nil || meta.IsStatusConditionFalse(op.Status.Conditions, v1alpha1.ConditionAccepted)
			stored[p], policies = op, append(policies, p)
		}
	}
	index := outlier.NewIndex(policies, w.Routes, f.ownNamespace)
	for _, svc := range w.Services {
		if svc.Namespace != namespace {
			continue
		}
		for _, a := range index.Assign(svc, nil) {
			if a.Policy == nil {
				continue
			}
			hosts := outlier.HostsOf(svc, a.Port, w.Slices[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}])
			for _, h := range hosts {
				if chosen(a.Key, h) {
					seats = append(seats, Seat{Policy: stored[a.Policy], Read: a.Policy, Cluster: a.Key, Hosts: hosts, Host: h, Behind: behind(stored[a.Policy], a)})
				}
			}
		}
	}
	slices.SortStableFunc(seats, func(a, b Seat) int { return cmp.Compare(a.Cluster.String(), b.Cluster.String()) })
	return seats, nil
}
