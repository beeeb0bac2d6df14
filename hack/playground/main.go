// Command playground is `make run`: a real control plane with Autohealer on it, and a tour of what it does. It stays up
// until Ctrl-C and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/playground"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	say("Starting a control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok)")
	// What is probed is on loopback here, which else no kubeconfig may lead to.
	h, err := harness.Start(ctx, harness.Options{Out: os.Stdout, ManagerArgs: []string{"--probe-loopback"}})
	if err != nil {
		return err
	}
	defer func() {
		say("Stopping everything")
		err = errors.Join(err, h.Stop())
	}()
	say("CRDs, policy and webhook are installed; starting the manager under its own service account")
	t := &tour{Harness: h, xds: cluster.FreeAddress()}
	if err := t.startManager(ctx); err != nil {
		return err
	}
	if err := os.Setenv("PATH", h.BinDir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil { // kubectl looks for its plugins there
		return err
	}
	if t.nodes, err = playground.Prepare(ctx, h); err != nil {
		return err
	}
	go playground.Report(ctx, h, t.nodes)
	printReady(h)
	if err := t.walk(ctx); err != nil {
		return err
	}
	say("The tour is over; the cluster stays up until Ctrl-C. Try, in another terminal:")
	printTry(h)
	<-ctx.Done()
	return nil
}

func printReady(h *harness.Harness) {
	fmt.Printf("\nready: %d nodes. In another terminal:\n\n  export KUBECONFIG=%s PATH=%s:$PATH\n", playground.Workers, h.Kubeconfig, h.BinDir)
	fmt.Printf("\nThe manager runs outside of pods. What it did: kubectl autohealer history -f %s\n", h.Log(harness.Manager))
}

func printTry(h *harness.Harness) {
	fmt.Printf(`
  export KUBECONFIG=%s PATH=%s:$PATH
  kubectl apply -k %s
  kubectl get autohealer
  kubectl explain conditionset.spec

Make a node sick (status False makes it well again):

  kubectl patch node node-1 --subresource=status -p '{"status":{"conditions":[{"type":"KernelDeadlock","status":"True"}]}}'

Or follow the pages in docs/how-to: try-in-observe-mode.md is a good one to begin with. They expect a cluster without policies:

  kubectl delete autohealer --all -A

`, h.Kubeconfig, h.BinDir, fromHere(filepath.Join(h.Root(), "config", "samples", "npd")))
}

// say prints a headline, bold on a terminal.
func say(format string, args ...any) {
	line := "# " + fmt.Sprintf(format, args...)
	if out, err := os.Stdout.Stat(); err == nil && out.Mode()&os.ModeCharDevice != 0 {
		line = "\033[1m" + line + "\033[0m"
	}
	fmt.Println("\n" + line)
}

// fromHere shortens a path for readers who stand where we do.
func fromHere(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(here, path); err == nil && len(short) < len(path) {
		return short
	}
	return path
}

// pause waits, or ends early with the tour.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
