package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// probing measures what 10,000 targets cost that are probed from both sides every 10 seconds, so 20,000 connections and 2,000
// probes a second, against the same requests made by the standard library alone. Servers, Prober and reference are processes of
// their own; the control plane has nothing to do with it. Where every probe dials there are half as many targets: handshakes
// take more than two processors have, on both their sides.
func (b *bench) probing(ctx context.Context) error {
	targets := fitting(b.size.targets)
	b.say("%d probed targets, two probes each every 10 s, for %s", targets, b.size.probing)
	stubs, input, load, err := startServing(ctx, "probing-stubs", probeLoad{})
	if err != nil {
		return err
	}
	defer func() {
		_ = input.Close() // that ends it
		_ = stubs.Wait()
	}()
	load.Interval, load.Duration = 10*time.Second, b.size.probing
	for _, kept := range []struct {
		how            string
		every, targets int
		goal           float64
	}{{"connections kept, every 6th probe dials", 6, targets, 1.5}, {"every probe dials", 1, targets / 2, 0}} {
		load.FreshEvery, load.Targets = kept.every, kept.targets
		var ours, reference probeCost
		if err := playApart(ctx, "probing-prober", load, &ours); err != nil {
			return err
		}
		if err := playApart(ctx, "probing-loop", load, &reference); err != nil {
			return err
		}
		b.reportProbing(kept.how, kept.goal, load, ours, reference)
	}
	return nil
}

// fitting is how many of so many targets a process may have both connections to at once, with some files to spare.
func fitting(targets int) int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return targets
	}
	const spare = 400
	return min(targets, int(min(files.Cur, 1<<30)-spare)/2)
}

func (b *bench) reportProbing(how string, goal float64, load probeLoad, ours, reference probeCost) {
	perRequest := func(c probeCost) float64 { return c.CPU.Seconds() * 1e6 / float64(max(1, c.Requests)) }
	ratio := perRequest(ours) / perRequest(reference)
	cpu := row{
		what: fmt.Sprintf("processor time of a probe, %d targets, %s", load.Targets, how), ours: fmt.Sprintf("%.0f µs", perRequest(ours)),
		reference: fmt.Sprintf("%.0f µs", perRequest(reference)), ratio: series{ratio},
	}
	late := row{what: "runs that began more than 1 s late, " + how, ours: fmt.Sprintf("%.2f%%", 100*ours.Late)}
	if goal > 0 {
		cpu.goal, cpu.reached = fmt.Sprintf("≤ %.1f", goal), ratio <= goal
		late.goal, late.reached = "< 5%", ours.Late < 0.05
	}
	b.report.ratio(cpu)
	b.report.absolute(late)
	b.report.absolute(row{
		what: "probes a second, and how many failed, " + how,
		ours: fmt.Sprintf("%.0f, %d", float64(ours.Requests)/load.Duration.Seconds(), ours.Failures),
	})
	if goal > 0 {
		b.report.absolute(row{
			what: "heap of a target between its runs, with both connections", ours: fmt.Sprintf("%.1f KiB (and %.1f KiB of stacks)", float64(ours.Heap)/1024, float64(ours.Stacks)/1024),
			goal: "≤ 60 KiB", reached: ours.Heap <= 60<<10,
		})
	}
}

// startServing starts a role that goes on in a process of its own; closing input ends it.
func startServing(ctx context.Context, role string, load probeLoad) (*exec.Cmd, io.Closer, probeLoad, error) {
	command, err := roleCommand(ctx, role)
	if err != nil {
		return nil, nil, probeLoad{}, err
	}
	input, err := command.StdinPipe()
	if err != nil {
		return nil, nil, probeLoad{}, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, probeLoad{}, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, probeLoad{}, fmt.Errorf("start %s: %w", role, err)
	}
	if err := errors.Join(json.NewEncoder(input).Encode(load), json.NewDecoder(output).Decode(&load)); err != nil {
		return nil, nil, probeLoad{}, errors.Join(err, input.Close(), command.Wait())
	}
	return command, input, load, nil
}

// playApart does a role in a process of its own.
func playApart(ctx context.Context, role string, load probeLoad, cost *probeCost) error {
	command, err := roleCommand(ctx, role)
	if err != nil {
		return err
	}
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	go func() {
		_ = json.NewEncoder(input).Encode(load) // if it fails, the process says so
		_ = input.Close()
	}()
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", role, err)
	}
	return json.Unmarshal(output, cost)
}

func roleCommand(ctx context.Context, role string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, program, role)
	command.Stderr = os.Stderr
	return command, nil
}
