// Package testbed is what measurements share: a real control plane with a manager on it, and nothing else that would take processors;
// what was asked of the API server, by its audit log and its metrics; processor time and memory of all processes; loops at a pace and
// watches that know when something became visible; and processes of their own for what isn't to be measured together.
//
// Begin at Bed. What is measured is in the packages of the kinds.
package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// Bed is one run of the benchmark.
type Bed struct {
	*harness.Harness
	// Clients have an admin's rights.
	Clients kubernetes.Interface
	Report  report.Report
	// Rounds of each comparison.
	Rounds int
	// Machine describes what is measured on.
	Machine string

	began       time.Time
	managerArgs []string // that managers which are started anew have
	peakMemory  int
}

// Start leaves of the control plane what figures are about, etcd and the API server. No manager runs yet.
func (b *Bed) Start(ctx context.Context) (err error) {
	b.began = time.Now()
	if b.Harness, err = harness.Start(ctx, harness.Options{Out: os.Stdout, Cluster: cluster.Options{ExtraArgs: map[cluster.Component][]string{
		// The nodes here have no controller manager to take away the taint that a new node gets.
		cluster.APIServer: {"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"},
	}}}); err != nil {
		return err
	}
	if err := b.prepare(ctx); err != nil {
		return errors.Join(err, b.Stop())
	}
	return nil
}

func (b *Bed) prepare(ctx context.Context) (err error) {
	if b.Clients, err = clientsOf(rest.CopyConfig(b.Config)); err != nil {
		return err
	}
	b.Machine = b.machine(ctx)
	for _, component := range []cluster.Component{cluster.Kwok, cluster.Scheduler, cluster.ControllerManager} {
		if err := b.StopComponent(component); err != nil {
			return err
		}
	}
	b.Say("profiles of the manager: %s", b.Profiles(harness.Manager))
	return nil
}

func clientsOf(config *rest.Config) (kubernetes.Interface, error) {
	config.ContentType = apiruntime.ContentTypeProtobuf
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return clients, nil
}

// Say prints what is measured next.
func (b *Bed) Say(format string, args ...any) {
	fmt.Printf("\n# [%s] "+format+"\n", append([]any{time.Since(b.began).Round(time.Second)}, args...)...)
}

// Results are all tables.
func (b *Bed) Results() string { return b.Report.Markdown(b.Machine, time.Since(b.began)) }

// Explain adds to an error how the manager ended, if it did: an overloaded machine can cost it its lease.
func (b *Bed) Explain(ctx context.Context, err error) error {
	if err == nil || b.pid(harness.Manager) != "" || ctx.Err() != nil {
		return err
	}
	log, unread := os.ReadFile(b.Log(harness.Manager))
	if unread != nil {
		return errors.Join(err, unread)
	}
	log = bytes.TrimSpace(log)
	return fmt.Errorf("the manager ended with %s: %w", log[bytes.LastIndexByte(log, '\n')+1:], err)
}

// machine describes what the figures were measured on.
func (b *Bed) machine(ctx context.Context) string {
	server := "unknown"
	if version, err := b.Clients.Discovery().ServerVersion(); err == nil {
		server = version.GitVersion
	}
	memory := "unknown size"
	var kib float64
	if _, err := fmt.Sscanf(readLine("/proc/meminfo", "MemTotal"), "%f kB", &kib); err == nil {
		memory = fmt.Sprintf("%.0f GiB", kib/(1<<20))
	}
	load, _, _ := strings.Cut(readLine("/proc/loadavg", ""), " ")
	return fmt.Sprintf(`Measured on %s by commit %s: %d processors (%s), %s of memory, %s/%s, Linux %s, %s; Kubernetes %s with etcd without
fsync, all processes and the load on this one machine. Load average when the run began: %s.
`, b.began.UTC().Format(time.DateOnly), b.commit(ctx), runtime.NumCPU(), readLine("/proc/cpuinfo", "model name"), memory, runtime.GOOS, runtime.GOARCH,
		readLine("/proc/sys/kernel/osrelease", ""), runtime.Version(), server, load)
}

// readLine gives a file's first line with this key, without the key, or just its first line.
func readLine(path, key string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(line, ":")
		if key == "" {
			return strings.TrimSpace(line)
		}
		if strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// commit that is measured; `go run` doesn't stamp it into the program.
func (b *Bed) commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "-C", b.Root(), "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown" // no git, or no repository
	}
	return strings.TrimSpace(string(out))
}
