package outlierpolicy

import (
	"context"
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
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

const (
	namespaces = 100
	// editedCluster is of the Service whose policy is edited.
	editedCluster = "team-000/service-00000/8080"
	// servedWithin is for the manager to send Envoys all Services.
	servedWithin = 3 * time.Minute
	// greatestMessage that a client takes: all clusters at once.
	greatestMessage = 1 << 28
)

const envoysRole = "xds-envoys"

// Roles are the processes that Envoys are played in.
var Roles = map[string]testbed.Role{envoysRole: testbed.RoleOf(playEnvoys)}

func startEnvoys(ctx context.Context, address string) (*testbed.Process, error) {
	return testbed.StartRole(ctx, envoysRole, address, &struct{}{})
}

func playEnvoys(ctx context.Context, address string) (any, error) {
	for range envoyCount {
		conn, err := connect(address)
		if err != nil {
			return nil, err
		}
		if _, err := xdsclient.Connect(ctx, conn, xdsclient.Options{}); err != nil {
			return nil, err
		}
	}
	return struct{}{}, nil
}

func connect(address string, options ...grpc.CallOption) (*grpc.ClientConn, error) {
	options = append(options, grpc.MaxCallRecvMsgSize(greatestMessage))
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(options...))
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// acceptance notes when Envoys accept the edited cluster.
type acceptance struct {
	threshold atomic.Uint32 // that the edit asks for
	accepted  atomic.Int64  // by how many Envoys, as it is asked for
}

// Envoys measures the whole way of one edit: patch of a policy, API server, the manager's watch, judgement, translation and push, until
// the last Envoy accepts it.
func (b *Bench) Envoys(ctx context.Context) error {
	b.Say("envoys: %d Services in %d namespaces, and a manager that tells %d Envoys of them", b.Services, namespaces, envoyCount)
	if err := b.addServices(ctx); err != nil {
		return err
	}
	address := cluster.FreeAddress()
	if err := b.RestartManager(ctx, "--xds-bind-address="+address); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a := &acceptance{}
	var envoys []*xdsclient.Client
	for range envoyCount {
		conn, err := connect(address, grpc.WaitForReady(true))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }() // its stream has ended with ctx
		envoy, err := a.connectWhenServed(ctx, conn)
		if err != nil {
			return err
		}
		envoys = append(envoys, envoy)
	}
	for _, envoy := range envoys { // the cluster has Services of its own besides
		if err := until(ctx, func() bool { return len(envoy.Clusters()) >= b.Services && envoy.Hosts(editedCluster) != nil }); err != nil {
			return fmt.Errorf("wait for all clusters: %w", err)
		}
	}
	return b.editPolicy(ctx, a)
}

// connectWhenServed tries until the manager knows the cluster; before it refuses streams.
func (a *acceptance) connectWhenServed(ctx context.Context, conn *grpc.ClientConn) (envoy *xdsclient.Client, err error) {
	options := xdsclient.Options{Reject: func(cluster *clusterv3.Cluster) string {
		if cluster.GetName() == editedCluster && cluster.GetOutlierDetection().GetConsecutive_5Xx().GetValue() == a.threshold.Load() {
			a.accepted.Add(1)
		}
		return ""
	}}
	err = until(ctx, func() bool {
		if envoy, err = xdsclient.Connect(ctx, conn, options); err != nil {
			return false
		}
		select {
		case <-envoy.Ended():
			return false
		case <-time.After(time.Second):
			return true
		}
	})
	return envoy, err
}

func until(ctx context.Context, done func() bool) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, servedWithin, true, func(context.Context) (bool, error) { return done(), nil })
}

func (b *Bench) addServices(ctx context.Context) error {
	if err := testbed.Each(ctx, namespaces, func(ctx context.Context, i int) error {
		return b.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%03d", i)}})
	}); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	if err := testbed.Each(ctx, b.Services, func(ctx context.Context, i int) error {
		meta := metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%03d", i%namespaces), Name: fmt.Sprintf("service-%05d", i)}
		svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 8080}}}}
		if err := b.Client.Create(ctx, svc); err != nil {
			return err
		}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}}}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
		for host := range hosts {
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

func (b *Bench) editPolicy(ctx context.Context, a *acceptance) error {
	var took, asked []time.Duration
	op := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team-000", Name: "edited"}}
	for i := range b.Edits {
		if err := testbed.Pause(ctx, 3*betweenEdits); err != nil {
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
		for a.accepted.Load() < envoyCount {
			if time.Since(began) > acceptWithin {
				return fmt.Errorf("wait for an edit: %d of %d Envoys have it after %s", a.accepted.Load(), envoyCount, acceptWithin)
			}
			time.Sleep(100 * time.Microsecond)
		}
		took = append(took, time.Since(began))
	}
	b.Report.Checked(fmt.Sprintf("Envoys: patch of one policy sent → accepted by the last of %d Envoys, through API server and manager with %d Services, p50 and p99 of %d", envoyCount, b.Services, b.Edits),
		report.P50P99(took), "p99 < 100 ms", report.Quantile(took, .99) < 100*time.Millisecond)
	b.Report.Value("of that, until the API server answered the patch", report.P50P99(asked))
	return nil
}
