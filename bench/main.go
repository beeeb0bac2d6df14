// Command bench is `make bench`: it measures Autohealer on a real control plane against what the same machine can do at
// best in the same run, prints the ratios and writes them to docs/benchmarks.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// size is how much is measured.
type size struct {
	nodes, sets, rounds, foreign int
	pods                         int
	trickle, heartbeats          time.Duration
	requests                     int
	openLoop, flood              time.Duration
	targets                      int
	probing                      time.Duration
	services, edits              int
	workers, shoots              int
}

func main() {
	s := size{}
	flag.IntVar(&s.nodes, "nodes", 5000, "How many nodes.")
	flag.IntVar(&s.sets, "sets", 50, "How many ConditionSets, each over a condition type of its own.")
	flag.IntVar(&s.rounds, "rounds", 2, "How many rounds of each comparison.")
	flag.IntVar(&s.foreign, "foreign", 2000, "How many writes the foreign tainter makes.")
	flag.IntVar(&s.pods, "pods", 10000, "How many pods WeederConfigs have to do with.")
	flag.DurationVar(&s.trickle, "trickle", 30*time.Second, "How long conditions trickle.")
	flag.DurationVar(&s.heartbeats, "heartbeats", 30*time.Second, "How long there are only heartbeats.")
	flag.IntVar(&s.requests, "requests", 500, "How many admission requests of each kind a round.")
	flag.DurationVar(&s.openLoop, "open-loop", 15*time.Second, "How long 200 admission requests a second of each kind are made.")
	flag.DurationVar(&s.flood, "flood", 10*time.Second, "How long Guardrails flood the webhook in each round, and don't.")
	flag.IntVar(&s.targets, "targets", 10000, "How many API servers are probed, each from two sides. As many as the limit of open files allows.")
	flag.DurationVar(&s.probing, "probing", 30*time.Second, "How long they are probed in each round.")
	flag.IntVar(&s.services, "services", 10000, "How many Services Envoys are told of.")
	flag.IntVar(&s.edits, "edits", 100, "How many edits of one policy, and of one Service's endpoints, they are told of.")
	flag.IntVar(&s.workers, "workers", 2000, "How many Workers with three dependents HealthCheckRegistrations tell of; the design's figures are of 10000.")
	flag.IntVar(&s.shoots, "shoots", 200, "How many Workers with a shoot they tell of.")
	long := flag.Bool("long", false, "Heartbeats for 10 minutes, as the design's figure asks.")
	only := flag.String("only", "", "Run only these scenarios, with commas between: trickle, heartbeats, restart, storm, foreign, admission, weeder, health, probing, protection, xds, envoys.")
	out := flag.String("out", filepath.Join("docs", "benchmarks.md"), "File to write the results into, between its two markers, from the repository's root; empty for none.")
	pprof := flag.String("pprof", "", "Loopback address where the manager serves profiles during the run.")
	flag.Parse()
	logf.SetLogger(logr.Discard()) // what counts is told by say and report
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if role := flag.Arg(0); roles[role] != nil {
		if err := play(ctx, role); err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", role, err)
			os.Exit(1)
		}
		return
	}
	if *long {
		s.heartbeats = 10 * time.Minute
	}
	if err := run(ctx, s, *only, *out, *pprof); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	*harness.Harness
	clients    kubernetes.Interface
	sight      *sight
	nodes      []string
	size       size
	report     report
	peakMemory int
	began      time.Time
	pprof      string
	// managerArgs are what a scenario's manager is started with beside.
	managerArgs []string
}

func run(ctx context.Context, s size, only, out, pprof string) (err error) {
	began := time.Now()
	h, err := harness.Start(ctx, harness.Options{Out: os.Stdout, Cluster: cluster.Options{ExtraArgs: map[cluster.Component][]string{
		// The nodes here have no controller manager to take away the taint that a new node gets.
		cluster.APIServer: {"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition"},
	}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Stop()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop() // what watches ends before what it watches
	b := &bench{Harness: h, size: s, began: began, pprof: pprof}
	machine, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	if err := b.measure(ctx, only); err != nil {
		return err
	}
	b.memory()
	text := b.report.markdown(machine, time.Since(began))
	fmt.Print(text)
	if out == "" {
		return nil
	}
	return writeBetween(out, text)
}

// prepare leaves of the control plane what figures are about, etcd and the API server, and adds nodes, manager and sets.
func (b *bench) prepare(ctx context.Context) (machine string, err error) {
	config := rest.CopyConfig(b.Config)
	config.ContentType = runtime.ContentTypeProtobuf
	if b.clients, err = kubernetes.NewForConfig(config); err != nil {
		return "", fmt.Errorf("make a client: %w", err)
	}
	machine = b.machine(ctx)
	for _, component := range []cluster.Component{cluster.Kwok, cluster.Scheduler, cluster.ControllerManager} {
		if err := b.StopComponent(component); err != nil {
			return "", err
		}
	}
	b.say("%d nodes, %d sets", b.size.nodes, b.size.sets)
	if err := b.addNodes(ctx); err != nil {
		return "", err
	}
	if b.sight, err = startSight(ctx, b.clients); err != nil {
		return "", err
	}
	if err := b.startManager(ctx); err != nil {
		return "", err
	}
	return machine, b.addSets(ctx)
}

func (b *bench) startManager(ctx context.Context) error {
	args := slices.Clone(b.managerArgs)
	if b.pprof != "" {
		args = append(args, "--pprof-bind-address="+b.pprof)
	}
	return b.StartManager(ctx, args...)
}

// measure runs the scenarios that were asked for, all by default.
func (b *bench) measure(ctx context.Context, only string) error {
	wanted := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	for _, scenario := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"trickle", b.trickle}, {"heartbeats", b.heartbeats}, {"restart", b.restart}, {"storm", b.storms}, {"foreign", b.foreign},
		{"admission", b.admission}, {"weeder", b.weeder}, {"health", b.health}, {"probing", b.probing}, {"protection", b.protection},
		{"xds", b.xds}, {"envoys", b.envoys},
	} {
		if only != "" && !slices.Contains(wanted, scenario.name) {
			continue
		}
		if err := scenario.run(ctx); err != nil {
			if b.pid(harness.Manager) == "" && ctx.Err() == nil { // an overloaded machine can cost it its lease
				err = fmt.Errorf("the manager ended with %s: %w", b.lastWords(), err)
			}
			return fmt.Errorf("measure %s: %w", scenario.name, err)
		}
	}
	return nil
}

func (b *bench) storms(ctx context.Context) error {
	reference, err := b.storm(ctx)
	if err != nil {
		return err
	}
	return b.together(ctx, reference)
}

func (b *bench) lastWords() string {
	log, err := os.ReadFile(b.Log(harness.Manager))
	if err != nil {
		return err.Error()
	}
	log = bytes.TrimSpace(log)
	return string(log[bytes.LastIndexByte(log, '\n')+1:])
}

func (b *bench) memory() {
	b.notePeak()
	if b.peakMemory > 0 {
		b.report.absolute(row{what: fmt.Sprintf("the manager's greatest resident memory, with %d nodes", b.size.nodes), ours: fmt.Sprintf("%d MiB", b.peakMemory>>20)})
	}
}

func (b *bench) say(format string, args ...any) {
	fmt.Printf("\n# [%s] "+format+"\n", append([]any{time.Since(b.began).Round(time.Second)}, args...)...)
}
