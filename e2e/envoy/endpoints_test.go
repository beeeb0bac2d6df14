package envoy

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/xds"
)

// fromSlices serves a cluster as the product makes it of a Service's EndpointSlices: it ejects after three errors in a row.
func (c *control) fromSlices(name string, svc *corev1.Service, slices ...*discoveryv1.EndpointSlice) {
	c.t.Helper()
	g := NewWithT(c.t)
	key, ok := outlier.ParseKey(name)
	g.Expect(ok).To(BeTrue())
	cluster := outlier.NewCluster(&outlier.Assignment{Key: key, Policy: &outlier.Policy{Settings: outlier.Settings{
		ServerErrors: new(uint32(3)), EjectionPercent: new(uint32(50)), Interval: new(100 * time.Millisecond), Base: new(5 * time.Minute), Max: new(5 * time.Minute),
	}}})
	endpoints := outlier.NewEndpoints(name, outlier.HostsOf(svc, corev1.ServicePort{Name: "http"}, slices))
	c.snapshot.Clusters[name] = xds.Cluster{Message: cluster, Endpoints: endpoints, Namespace: key.Service.Namespace}
	c.publish()
}

// sliceOf has one endpoint.
func sliceOf(family discoveryv1.AddressType, ip string, b *Backend, is discoveryv1.EndpointConditions) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(b.Port))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}, Conditions: is}},
	}
}

func TestHostsWithIPv6AddressesGetTrafficAndAreEjected(t *testing.T) {
	g, c := NewWithT(t), serve(t, xds.Options{})
	bad, good, other := NewBackendOn(t, "::1"), NewBackendOn(t, "::1"), NewBackend(t)
	svc := &corev1.Service{Spec: corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}}}
	ready := discoveryv1.EndpointConditions{Ready: new(true)}
	c.fromSlices(web, svc, sliceOf(discoveryv1.AddressTypeIPv6, "::1", bad, ready), sliceOf(discoveryv1.AddressTypeIPv6, "::1", good, ready),
		sliceOf(discoveryv1.AddressTypeIPv4, "127.0.0.1", other, ready))
	e := c.envoy(Listener{Name: "web", Cluster: web})
	c.acked(web, 1)
	g.Eventually(func() []Host { return e.Hosts(web) }, "10s").Should(ConsistOf(Host{Address: bad.Address}, Host{Address: good.Address}), "of the first family")
	g.Expect(e.Statuses("web", 4)).To(Equal(map[int]int{200: 4}))
	bad.Answer(500)
	g.Eventually(func() []string { e.Statuses("web", 4); return e.Ejected(web) }, "10s").Should(Equal(addresses(bad)))
	g.Eventually(func() map[int]int { return e.Statuses("web", 6) }, "10s").Should(Equal(map[int]int{200: 6}))
}

func TestHostsThatEndDrainAndServeWhileNoOtherIsReady(t *testing.T) {
	g, c := NewWithT(t), serve(t, xds.Options{})
	old, next := NewBackend(t), NewBackend(t)
	const ready, ending, unready = "ready", "ending", "unready"
	states := map[string]discoveryv1.EndpointConditions{
		ready:   {Ready: new(true), Serving: new(true), Terminating: new(false)},
		ending:  {Ready: new(false), Serving: new(true), Terminating: new(true)},
		unready: {Ready: new(false), Serving: new(false), Terminating: new(false)},
	}
	set := func(oldIs, nextIs string) {
		c.fromSlices(web, &corev1.Service{}, sliceOf(discoveryv1.AddressTypeIPv4, "127.0.0.1", old, states[oldIs]), sliceOf(discoveryv1.AddressTypeIPv4, "127.0.0.1", next, states[nextIs]))
	}
	set(ready, ready)
	e := c.envoy(Listener{Name: "web", Cluster: web})
	hosts := func() []Host { return e.Hosts(web) }
	g.Eventually(hosts, "10s").Should(HaveLen(2))
	stop := e.Load("web")
	for _, step := range []struct {
		old, next string
		serves    *Backend
	}{
		{ending, unready, old},  // a rollout whose new pod isn't ready: who ends goes on
		{ending, ready, next},   // it drains
		{unready, ready, next},  // it is gone
		{unready, ending, next}, // and the next one ends
	} {
		set(step.old, step.next)
		g.Eventually(hosts, "10s").Should(Equal([]Host{{Address: step.serves.Address}}), "%+v", step)
	}
	sent, failed := stop()
	g.Expect(failed).To(BeZero(), "of %d requests", sent)
	set(unready, unready)
	g.Eventually(func() map[int]int { return e.Statuses("web", 2) }, "10s").Should(Equal(map[int]int{503: 2}), "nobody serves")
}
