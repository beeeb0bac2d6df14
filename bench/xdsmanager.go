package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

const (
	envoysNamespaces = 100
	// envoysEdited is whose policy is edited.
	envoysEdited = "team-000/service-00000/8080"
	// envoysPatience for the manager to tell of all Services.
	envoysPatience = 3 * time.Minute
)

// acceptance notes when Envoys accept the edited cluster.
type acceptance struct {
	threshold atomic.Uint32 // that the edit asks for
	accepted  atomic.Int64  // by how many Envoys, as it is asked for
}

// envoys measures the whole way of one edit: patch of a policy, API server, the manager's watch, judgement, translation and push, until
// the last Envoy accepts it.
func (b *bench) envoys(ctx context.Context) (err error) {
	b.say("envoys: %d Services in %d namespaces, and a manager that tells %d Envoys of them", b.size.services, envoysNamespaces, xdsClients)
	if err := b.addEnvoysServices(ctx); err != nil {
		return err
	}
	address := cluster.FreeAddress()
	b.managerArgs = []string{"--xds-bind-address=" + address}
	defer func() { b.managerArgs = nil }()
	if err := b.withoutManager(ctx, func() error { return nil }); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a := &acceptance{}
	var clients []*xdsclient.Client
	for range xdsClients {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(greatestMessage), grpc.WaitForReady(true)))
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer func() { err = errors.Join(err, conn.Close()) }()
		c, err := connectWhenServed(ctx, conn, a)
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	for _, c := range clients { // the cluster has Services of its own besides
		if err := within(ctx, envoysPatience, func() bool { return len(c.Clusters()) >= b.size.services && c.Hosts(envoysEdited) != nil }); err != nil {
			return fmt.Errorf("wait for all clusters: %w", err)
		}
	}
	return b.editPolicy(ctx, a)
}

// connectWhenServed tries until the manager knows the cluster; before it refuses streams.
func connectWhenServed(ctx context.Context, conn *grpc.ClientConn, a *acceptance) (c *xdsclient.Client, err error) {
	options := xdsclient.Options{Reject: func(cluster *clusterv3.Cluster) string {
		if cluster.GetName() == envoysEdited && cluster.GetOutlierDetection().GetConsecutive_5Xx().GetValue() == a.threshold.Load() {
			a.accepted.Add(1)
		}
		return ""
	}}
	return c, within(ctx, envoysPatience, func() bool {
		if c, err = xdsclient.Connect(ctx, conn, options); err != nil {
			return false
		}
		select {
		case <-c.Ended():
			return false
		case <-time.After(time.Second):
			return true
		}
	})
}

func within(ctx context.Context, patience time.Duration, done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s", patience)
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) addEnvoysServices(ctx context.Context) error {
	if err := each(ctx, envoysNamespaces, func(ctx context.Context, i int) error {
		return b.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%03d", i)}})
	}); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	if err := each(ctx, b.size.services, func(ctx context.Context, i int) error {
		meta := metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%03d", i%envoysNamespaces), Name: fmt.Sprintf("service-%05d", i)}
		svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 8080}}}}
		if err := b.Client.Create(ctx, svc); err != nil {
			return err
		}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
		for host := range xdsHosts {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", host, i/250%250, i%250)}})
		}
		return b.Client.Create(ctx, slice)
	}); err != nil {
		return fmt.Errorf("create a Service with endpoints: %w", err)
	}
	detection := v1alpha1.OutlierPolicySpec{OutlierDetection: &v1alpha1.OutlierDetection{ConsecutiveServerErrors: new(int32(5))}}
	def := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: harness.Namespace, Name: "default"}, Spec: detection}
	edited := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-000", Name: "edited"}, Spec: *detection.DeepCopy()}
	edited.Spec.TargetRefs = []v1alpha1.OutlierTargetReference{{Kind: "Service", Name: "service-00000"}}
	for _, op := range []*v1alpha1.OutlierPolicy{def, edited} {
		if err := b.Client.Create(ctx, op); err != nil {
			return fmt.Errorf("create an OutlierPolicy: %w", err)
		}
	}
	return nil
}

func (b *bench) editPolicy(ctx context.Context, a *acceptance) error {
	var took, asked []time.Duration
	op := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-000", Name: "edited"}}
	for i := range b.size.edits {
		if err := pause(ctx, 3*xdsPause); err != nil {
			return err
		}
		a.threshold.Store(uint32(100 + i))
		a.accepted.Store(0)
		began := time.Now()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"outlierDetection":{"consecutiveServerErrors":%d}}}`, 100+i))
		if err := b.Client.Patch(ctx, op, patch); err != nil {
			return fmt.Errorf("edit the policy: %w", err)
		}
		asked = append(asked, time.Since(began))
		for a.accepted.Load() < xdsClients {
			if time.Since(began) > xdsTimeout {
				return fmt.Errorf("wait for an edit: %d of %d Envoys have it after %s", a.accepted.Load(), xdsClients, xdsTimeout)
			}
			time.Sleep(100 * time.Microsecond)
		}
		took = append(took, time.Since(began))
	}
	p50, p99 := quantile(took, .5), quantile(took, .99)
	b.report.absolute(row{
		what: fmt.Sprintf("Envoys: patch of one policy sent → accepted by the last of %d Envoys, through API server and manager with %d Services, p50 and p99 of %d", xdsClients, b.size.services, b.size.edits),
		ours: milliseconds(p50) + ", " + milliseconds(p99), goal: "p99 < 100 ms", reached: p99 < 100*time.Millisecond,
	})
	b.report.absolute(row{
		what: "of that, until the API server answered the patch",
		ours: milliseconds(quantile(asked, .5)) + ", " + milliseconds(quantile(asked, .99)),
	})
	return nil
}
