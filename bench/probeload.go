package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/probing"
)

// roles are processes of the scenarios "probing" and "xds": what is measured is a process of its own, apart from its peers.
var roles = map[string]func(context.Context, probeLoad) (any, error){
	"probing-stubs": serveStubs, "probing-prober": loadByProber, "probing-loop": loadByLoop, envoysRole: playEnvoys,
}

// lasting roles go on until whoever started them has enough.
var lasting = []string{"probing-stubs", envoysRole}

// probeLoad is what a process of the scenario is to do.
type probeLoad struct {
	Addresses  []string
	CA         []byte
	Targets    int
	Interval   time.Duration
	FreshEvery int
	Duration   time.Duration
}

// probeCost is what the probes of a process cost in Duration, once all connections had been made.
type probeCost struct {
	Requests int
	CPU      time.Duration
	Late     float64 // share of runs that began more than a second after their time
	Heap     uint64  // per target, in bytes
	Stacks   uint64  // per target, in bytes
	Failures int
}

// play does a role: reads what to do from standard input, and writes what came of it.
func play(ctx context.Context, role string) error {
	var load probeLoad
	input := json.NewDecoder(os.Stdin)
	if err := input.Decode(&load); err != nil {
		return fmt.Errorf("read the load: %w", err)
	}
	result, err := roles[role](ctx, load)
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	if slices.Contains(lasting, role) {
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	return err
}

// stubServers is how many there are: each more widens the range of local ports, which dials use up.
const stubServers = 16

func serveStubs(context.Context, probeLoad) (any, error) {
	certificate, ca, err := stubCertificate()
	if err != nil {
		return nil, err
	}
	load := probeLoad{CA: ca}
	for range stubServers {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		load.Addresses = append(load.Addresses, listener.Addr().String())
		serveStub(listener, certificate, answerVersion)
	}
	return load, nil
}

// serveStub serves until the process ends, or the server is closed.
func serveStub(listener net.Listener, certificate tls.Certificate, handler http.HandlerFunc) *http.Server {
	server := &http.Server{
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		Handler:   handler, ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return server
}

// answerVersion answers as an API server does.
func answerVersion(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"major":"1","minor":"36","gitVersion":"v1.36.3","gitCommit":"0","gitTreeState":"clean","buildDate":"2026-06-09T00:00:00Z","goVersion":"go1.26","compiler":"gc","platform":"linux/amd64"}`)
}

func stubCertificate() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, ca, err
}

const stubToken = "a-token-of-a-service-account-has-about-a-thousand-bytes"

func (l probeLoad) kubeconfig(address, token string) ([]byte, error) {
	config := api.NewConfig()
	config.Clusters["a"] = &api.Cluster{Server: "https://" + address, CertificateAuthorityData: l.CA}
	config.AuthInfos["a"] = &api.AuthInfo{Token: token}
	config.Contexts["a"] = &api.Context{Cluster: "a", AuthInfo: "a"}
	config.CurrentContext = "a"
	return clientcmd.Write(*config)
}

// credentials lead to one of the servers.
func (l probeLoad) credentials(server int) (probing.Credentials, error) {
	config, err := l.kubeconfig(l.address(server), stubToken)
	return probing.Credentials{Kubeconfig: config}, err
}

func (l probeLoad) address(i int) string { return l.Addresses[i%len(l.Addresses)] }

// meter measures a process from when it begins until it ends.
type meter struct{ before, after syscall.Rusage }

func (m *meter) begin() { _ = syscall.Getrusage(syscall.RUSAGE_SELF, &m.before) } // it can't fail for oneself
func (m *meter) end()   { _ = syscall.Getrusage(syscall.RUSAGE_SELF, &m.after) }

func (m *meter) cpu() time.Duration {
	spent := func(u syscall.Rusage) int64 { return u.Utime.Nano() + u.Stime.Nano() }
	return time.Duration(spent(m.after) - spent(m.before))
}

// counting is the handler of a Prober: it counts, and lets targets run at their interval.
type counting struct {
	interval           time.Duration
	mu                 sync.Mutex
	requests, failures int
}

func (c *counting) Observe(_ probing.Key, run probe.Run) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests += 2
	if run.External == nil || run.External.Class != probe.OK {
		c.failures++
	}
	return run.Started.Add(c.interval)
}

func (c *counting) counts() (requests, failures int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests, c.failures
}

func loadByProber(ctx context.Context, load probeLoad) (any, error) {
	if err := probing.RegisterMetrics(); err != nil {
		return nil, err
	}
	before := memoryNow()
	handler := &counting{interval: load.Interval}
	prober := (&probing.Prober{Handler: handler, Policy: kubeconfig.Policy{AllowLoopback: true}, FreshEvery: load.FreshEvery}).Init()
	for i := range load.Targets {
		internal, err := load.credentials(i)
		if err != nil {
			return nil, err
		}
		external, err := load.credentials(i + 1) // another server: two ways to one would be refused
		if err != nil {
			return nil, err
		}
		key := probing.Key{Config: types.NamespacedName{Namespace: "bench", Name: strconv.Itoa(i)}, Namespace: "bench"}
		first := time.Now().Add(time.Second + load.Interval*time.Duration(i)/time.Duration(load.Targets))
		if err := prober.Set(key, probing.Target{Internal: internal, External: external, Timeout: load.Interval / 2}, first); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- prober.Start(ctx) }()
	cost, err := load.measure(ctx, handler.counts, lateRuns)
	if err == nil {
		after := memoryNow()
		cost.Heap = (after.HeapAlloc - before.HeapAlloc) / uint64(load.Targets)
		cost.Stacks = (after.StackInuse - before.StackInuse) / uint64(load.Targets)
	}
	cancel()
	return cost, errors.Join(err, <-ended)
}

// measure lets all connections be made, and measures from then on.
func (l probeLoad) measure(ctx context.Context, counts func() (requests, failures int), late func() (late, all uint64)) (probeCost, error) {
	if err := pause(ctx, 2*l.Interval); err != nil {
		return probeCost{}, err
	}
	requests, failures := counts()
	lateBefore, allBefore := late()
	var m meter
	m.begin()
	err := pause(ctx, l.Duration)
	m.end()
	requestsAfter, failuresAfter := counts()
	lateAfter, allAfter := late()
	return probeCost{
		Requests: requestsAfter - requests, Failures: failuresAfter - failures, CPU: m.cpu(),
		Late: float64(lateAfter-lateBefore) / float64(max(1, allAfter-allBefore)),
	}, err
}

// lateRuns reads the Prober's own metric.
func lateRuns() (late, all uint64) {
	families, err := metrics.Registry.Gather()
	if err != nil {
		return 0, 0
	}
	for _, family := range families {
		if family.GetName() != "autohealer_probe_lateness_seconds" {
			continue
		}
		histogram := family.GetMetric()[0].GetHistogram()
		all = histogram.GetSampleCount()
		for _, bucket := range histogram.GetBucket() {
			if bucket.GetUpperBound() == 1 {
				late = all - bucket.GetCumulativeCount()
			}
		}
	}
	return late, all
}

func memoryNow() runtime.MemStats {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	runtime.ReadMemStats(&m)
	return m
}

// loadByLoop makes the same requests at the same pace with the standard library alone: what they cost at least.
func loadByLoop(ctx context.Context, load probeLoad) (any, error) {
	const workers = 64
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(load.CA)
	var clients []*http.Client
	for range 2 * load.Targets {
		clients = append(clients, &http.Client{Timeout: load.Interval / 2, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, DisableCompression: true,
		}})
	}
	var mu sync.Mutex
	var requests, failures int
	next := make(chan int)
	for range workers {
		go func() {
			for n := range next {
				client := clients[n%len(clients)]
				if (n+n/len(clients))%load.FreshEvery == 0 {
					client.CloseIdleConnections()
				}
				err := get(ctx, client, "https://"+load.address(n%len(clients)/2)+"/version")
				mu.Lock()
				requests++
				if err != nil {
					failures++
				}
				mu.Unlock()
			}
		}()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(next)
		began := time.Now()
		for n := 0; ctx.Err() == nil; n++ {
			_ = pause(ctx, time.Until(began.Add(load.Interval*time.Duration(n)/time.Duration(len(clients)))))
			next <- n
		}
	}()
	counts := func() (int, int) {
		mu.Lock()
		defer mu.Unlock()
		return requests, failures
	}
	return load.measure(ctx, counts, func() (uint64, uint64) { return 0, 0 })
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+stubToken)
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
