package outlierpolicy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/envoy"
	"github.com/resourcestack/autohealer/e2e/xdsclient"
)

// service is a Service with real backends, registered by EndpointSlices. It has a namespace of its own.
type service struct {
	namespace string
	backends  []*envoy.Backend
}

// cluster is the Envoy cluster's name.
func (s *service) cluster() string { return s.namespace + "/web/80" }

func (s *service) addresses(of ...int) (all []string) {
	for _, i := range of {
		all = append(all, s.backends[i].Address)
	}
	return all
}

// serve makes a namespace with a Service in front of n backends.
func serve(ctx context.Context, namespace string, n int) *service {
	GinkgoHelper()
	s := &service{namespace: namespace}
	Expect(client.IgnoreAlreadyExists(h.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))).To(Succeed())
	apply(ctx, fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: web, namespace: %s}, spec: {ports: [{name: http, port: 80}]}}", namespace))
	for range n {
		s.backends = append(s.backends, envoy.NewBackendOn(GinkgoTB(), hostIP))
	}
	s.register(ctx)
	return s
}

// register the backends.
func (s *service) register(ctx context.Context) {
	GinkgoHelper()
	for i, b := range s.backends {
		apply(ctx, fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-%d, namespace: %s, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: %d}]
endpoints: [{addresses: [%s], conditions: {ready: true}}]
`, i, s.namespace, b.Port, hostIP))
	}
}

// detect applies a policy for the Service. Interval and times are short; the rest is as given.
func (s *service) detect(ctx context.Context, detection string, more ...string) {
	GinkgoHelper()
	manifest := fmt.Sprintf(`
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: OutlierPolicy
metadata: {name: web, namespace: %s}
spec:
  targetRefs: [{group: "", kind: Service, name: web}]
  outlierDetection: {%s}
`, s.namespace, detection)
	for _, line := range more {
		manifest += "  " + line + "\n"
	}
	apply(ctx, manifest)
}

// proxy starts an Envoy in front of the Service, with a certificate for an identity.
func proxy(ctx context.Context, identity string, signer *envoy.Authority, clusters ...string) *envoy.Envoy {
	GinkgoHelper()
	return proxyWith(ctx, identity, signer, nil, clusters...)
}

// proxyWith has more arguments for envoy-bootstrap.
func proxyWith(ctx context.Context, identity string, signer *envoy.Authority, args []string, clusters ...string) *envoy.Envoy {
	GinkgoHelper()
	listeners := make([]envoy.Listener, 0, len(clusters))
	for _, name := range clusters {
		listeners = append(listeners, envoy.Listener{Name: name, Cluster: name})
	}
	return proxyTo(ctx, identity, signer, args, listeners...)
}

// proxyTo has listeners as given.
func proxyTo(ctx context.Context, identity string, signer *envoy.Authority, args []string, listeners ...envoy.Listener) *envoy.Envoy {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	signer.Write(dir, identity, servers(ctx))
	return judged(envoy.Start(GinkgoTB(), envoy.Options{Bootstrap: append(bootstrap(dir), args...), Change: impatient, Listeners: listeners}))
}

// judged has the oracle judge with what an Envoy runs, until the spec ends.
func judged(e *envoy.Envoy) *envoy.Envoy {
	GinkgoHelper()
	name := string(uuid.NewUUID())
	ctx, cancel := context.WithCancel(context.Background())
	var looking sync.WaitGroup
	looking.Go(func() {
		defer GinkgoRecover()
		wait.UntilWithContext(ctx, func(context.Context) {
			dump, _ := e.Running() // none once it has ended
			Expect(watching.Runs(name, dump)).To(Succeed())
		}, 200*time.Millisecond)
		Expect(watching.Runs(name, nil)).To(Succeed())
	})
	DeferCleanup(func() { cancel(); looking.Wait() })
	return e
}

// bootstrap has the certificates in a directory, which Envoy follows.
func bootstrap(dir string) []string {
	return []string{
		"--server", address, "--server-name=" + serverName, "--resources-dir=" + dir,
		"--cert=" + filepath.Join(dir, "tls.crt"), "--key=" + filepath.Join(dir, "tls.key"), "--ca=" + filepath.Join(dir, "ca.crt"),
	}
}

// proxyChanged has more in its bootstrap than envoy-bootstrap prints.
func proxyChanged(ctx context.Context, listener envoy.Listener, changes ...func(*bootstrapv3.Bootstrap)) *envoy.Envoy {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	clients.Write(dir, edge, servers(ctx))
	return judged(envoy.Start(GinkgoTB(), envoy.Options{Bootstrap: bootstrap(dir), Listeners: []envoy.Listener{listener}, Change: func(b *bootstrapv3.Bootstrap) {
		impatient(b)
		for _, change := range changes {
			change(b)
		}
	}}))
}

// updates is how often an Envoy was given clusters. That it is connected says less: it takes itself for that as soon as it asks,
// also where it is just being refused.
func updates(e *envoy.Envoy) int64 { return e.Stat("cluster_manager.cds.update_success") }

// impatient Envoys don't wait long for clusters that never come.
func impatient(b *bootstrapv3.Bootstrap) {
	b.DynamicResources.CdsConfig.InitialFetchTimeout = durationpb.New(1e9)
}

// stream connects a client that tells what is on the wire.
func stream(ctx context.Context, identity string) *xdsclient.Client {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	clients.Write(dir, identity, servers(ctx))
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	Expect(err).NotTo(HaveOccurred())
	Expect(roots.AppendCertsFromPEM(pem)).To(BeTrue())
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{certificate}, RootCAs: roots, ServerName: serverName,
	})))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(conn.Close)
	streaming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(cancel)
	c, err := xdsclient.Connect(streaming, conn, xdsclient.Options{})
	Expect(err).NotTo(HaveOccurred())
	return c
}

func apply(ctx context.Context, manifest string) {
	GinkgoHelper()
	_, err := h.Apply(ctx, manifest)
	Expect(err).NotTo(HaveOccurred())
}

func deletePolicy(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	Expect(h.Client.Delete(ctx, policyNamed(namespace, name))).To(Succeed())
}

func policyNamed(namespace, name string) *v1alpha1.OutlierPolicy {
	return &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func policyOf(ctx context.Context, namespace, name string) (*v1alpha1.OutlierPolicy, error) {
	op := &v1alpha1.OutlierPolicy{}
	err := h.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, op)
	return op, err
}

// condition of a policy's first target, as Status Reason.
func condition(ctx context.Context, namespace, name, conditionType string) func() string {
	return func() string {
		op, err := policyOf(ctx, namespace, name)
		if err != nil || len(op.Status.Ancestors) == 0 {
			return fmt.Sprint("no status yet, ", err)
		}
		c := meta.FindStatusCondition(op.Status.Ancestors[0].Conditions, conditionType)
		switch {
		case c == nil:
			return "no such condition"
		case c.ObservedGeneration != op.Generation:
			return fmt.Sprintf("of generation %d, which isn't %d", c.ObservedGeneration, op.Generation)
		}
		return string(c.Status) + " " + c.Reason
	}
}
