package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

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
