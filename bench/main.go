// Command bench is `make bench`: it measures Autohealer on a real control plane against what the same machine can do at
// best in the same run, prints the ratios and writes them to docs/benchmarks.md.
//
// Begin at measurements. Each package beside says what it measures: conditionset, weederconfig, probeconfig, outlierpolicy,
// healthcheckregistration and admission; testbed is what they share, and report the tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/resourcestack/autohealer/bench/admission"
	"github.com/resourcestack/autohealer/bench/conditionset"
	"github.com/resourcestack/autohealer/bench/healthcheckregistration"
	"github.com/resourcestack/autohealer/bench/outlierpolicy"
	"github.com/resourcestack/autohealer/bench/probeconfig"
	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
	"github.com/resourcestack/autohealer/bench/weederconfig"
)

// bench is one run: all kinds on one testbed.
type bench struct {
	*testbed.Bed
	sets      *conditionset.Bench
	admission *admission.Bench
	weeder    *weederconfig.Bench
	health    *healthcheckregistration.Bench
	probes    *probeconfig.Bench
	outliers  *outlierpolicy.Bench
}

// measurement is what -only selects.
type measurement struct {
	name string
	run  func(context.Context) error
}

// measurements are in the order in which they run, and their rows stand.
func (b *bench) measurements() []measurement {
	return []measurement{
		{"trickle", b.sets.Trickle}, {"heartbeats", b.sets.Heartbeats}, {"restart", b.sets.Restart}, {"storm", b.sets.Storm}, {"foreign", b.sets.Foreign},
		{"admission", b.admission.Admission}, {"weeder", b.weeder.Weeder}, {"health", b.health.Health},
		{"probing", b.probes.Probing}, {"protection", b.probes.Protection}, {"xds", b.outliers.Xds}, {"envoys", b.outliers.Envoys},
	}
}

func newBench() *bench {
	bed := &testbed.Bed{}
	b := &bench{
		bed, &conditionset.Bench{Bed: bed}, &admission.Bench{Bed: bed}, &weederconfig.Bench{Bed: bed},
		&healthcheckregistration.Bench{Bed: bed}, &probeconfig.Bench{Bed: bed}, &outlierpolicy.Bench{Bed: bed},
	}
	flag.IntVar(&b.sets.Nodes, "nodes", 5000, "How many nodes.")
	flag.IntVar(&b.sets.Sets, "sets", 50, "How many ConditionSets, each over a condition type of its own.")
	flag.IntVar(&b.Rounds, "rounds", 6, "How many rounds of each comparison.")
	flag.IntVar(&b.sets.ForeignWrites, "foreign", 2000, "How many writes the foreign tainter makes.")
	flag.IntVar(&b.weeder.Pods, "pods", 10000, "How many pods WeederConfigs have to do with.")
	flag.DurationVar(&b.sets.TrickleFor, "trickle", 30*time.Second, "How long conditions trickle.")
	flag.DurationVar(&b.sets.HeartbeatsFor, "heartbeats", 30*time.Second, "How long there are only heartbeats.")
	flag.IntVar(&b.admission.Requests, "requests", 500, "How many admission requests of each kind a round.")
	flag.DurationVar(&b.admission.OpenLoopFor, "open-loop", 15*time.Second, "How long 200 admission requests a second of each kind are made.")
	flag.DurationVar(&b.admission.FloodFor, "flood", 10*time.Second, "How long Guardrails flood the webhook in each round, and don't.")
	flag.IntVar(&b.probes.Targets, "targets", 10000, "How many API servers are probed, each from two sides. As many as the limit of open files allows.")
	flag.DurationVar(&b.probes.ProbeFor, "probing", 30*time.Second, "How long they are probed in each round.")
	flag.IntVar(&b.outliers.Services, "services", 10000, "How many Services Envoys have.")
	flag.IntVar(&b.outliers.Edits, "edits", 100, "How many edits of one policy, and of one Service's endpoints, Envoys are sent.")
	flag.IntVar(&b.health.Workers, "workers", 2000, "How many Workers with three dependents HealthCheckRegistrations check; the design's figures are of 10000.")
	flag.IntVar(&b.health.Shoots, "shoots", 200, "How many Workers with a shoot they check.")
	return b
}

func main() {
	b := newBench()
	var names []string
	for _, m := range b.measurements() {
		names = append(names, m.name)
	}
	long := flag.Bool("long", false, "Heartbeats for 10 minutes, as the design's figure asks.")
	only := flag.String("only", "", "Run only these measurements, with commas between: "+strings.Join(names, ", ")+".")
	out := flag.String("out", filepath.Join("docs", "benchmarks.md"), "File to write the results into, between its two markers, from the repository's root; empty for none.")
	flag.Parse()
	logf.SetLogger(logr.Discard()) // the report has what counts
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *long {
		b.sets.HeartbeatsFor = 10 * time.Minute
	}
	roles := maps.Clone(probeconfig.Roles)
	maps.Copy(roles, outlierpolicy.Roles)
	wanted := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			fmt.Fprintf(os.Stderr, "bench: -only %s: there is no such measurement; there are %s\n", name, strings.Join(names, ", "))
			os.Exit(2)
		}
	}
	run := func(ctx context.Context) error { return b.run(ctx, wanted, *out) }
	if role := roles[flag.Arg(0)]; role != nil {
		run = role.Play
	}
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, only []string, out string) (err error) {
	if err := b.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop() // what watches ends before what it watches
	if err := b.sets.Prepare(ctx); err != nil {
		return err
	}
	for _, m := range b.measurements() {
		if len(only) > 0 && !slices.Contains(only, m.name) {
			continue
		}
		if err := m.run(ctx); err != nil {
			return fmt.Errorf("measure %s: %w", m.name, b.Explain(ctx, err))
		}
	}
	if peak := b.PeakMemory(); peak > 0 {
		b.Report.Value(fmt.Sprintf("the manager's greatest resident memory, with %d nodes", b.sets.Nodes), fmt.Sprintf("%d MiB", peak>>20))
	}
	text := b.Results()
	fmt.Print(text)
	if out == "" {
		return nil
	}
	return report.Write(out, text)
}
