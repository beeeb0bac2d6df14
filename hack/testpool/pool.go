package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// stopTakes is what tests that are interrupted get to end their control planes in; then they are killed, and watchdogs do.
const stopTakes = 30 * time.Second

type pool struct {
	places int64
	free   *semaphore.Weighted

	mu  sync.Mutex
	out io.Writer // lines of JSON; needs mu
}

func newPool(out io.Writer, places int64) *pool {
	return &pool{places: places, free: semaphore.NewWeighted(places), out: out}
}

// run begins the jobs in their order, each as soon as its places are free, and fails when one does.
func (p *pool) run(ctx context.Context, jobs []job) error {
	var all errgroup.Group
	for _, j := range jobs {
		places := min(j.places, p.places)
		if err := p.free.Acquire(ctx, places); err != nil {
			return errors.Join(err, all.Wait())
		}
		all.Go(func() error {
			defer p.free.Release(places)
			return p.test(ctx, j)
		})
	}
	return all.Wait()
}

func (p *pool) test(ctx context.Context, j job) error {
	args := slices.Concat([]string{"test", "-json"}, j.flags, j.packages)
	cmd := exec.CommandContext(ctx, "go", args...)
	// go test doesn't pass signals on, so the test's own process is to get them with it. What is killed leaves control planes to their
	// watchdogs.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTakes
	// A tenth of the processor time, for linkers, tests and managers, at the price of memory that is there. Of a name that is there
	// twice the last counts, so who sets it has it.
	cmd.Env = append([]string{"GOGC=400"}, os.Environ()...)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run go %v: %w", args, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run go %v: %w", args, err)
	}
	dismiss, err := guard(cmd.Process.Pid)
	if err != nil {
		return errors.Join(err, cmd.Cancel(), cmd.Wait())
	}
	defer dismiss()
	printed := p.print(output)
	err = cmd.Wait()
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // nothing is left, mostly
	}
	if len(j.packages) == 1 {
		p.printProcessor(j.packages[0], cmd.ProcessState)
	}
	if err != nil {
		err = fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return errors.Join(printed, err)
}

// guard ends a job's processes when this program is killed, which closes the pipe that a shell reads from. The job needs a group of
// its own.
func guard(group int) (dismiss func(), err error) {
	shell := exec.Command("/bin/sh", "-c", `trap '' INT TERM; read -r _; kill -s KILL -- "-$1"`, "autohealer-testpool-guard", strconv.Itoa(group))
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the terminal's signals
	alive, err := shell.StdinPipe()
	if err == nil {
		err = shell.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("guard the tests: %w", err)
	}
	return func() {
		_ = shell.Process.Kill() // before its input ends; the group's number may be somebody else's by now
		_ = shell.Wait()
		_ = alive.Close()
	}, nil
}

// print passes whole lines on, so that those of different jobs don't mix.
func (p *pool) print(output io.Reader) error {
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			p.mu.Lock()
			_, failed := p.out.Write(line)
			p.mu.Unlock()
			if failed != nil {
				err = failed
			}
		}
		if err == io.EOF { //nolint:errorlint // readers give it unwrapped, and a failed write doesn't end here
			return nil
		}
		if err != nil {
			return fmt.Errorf("pass the output of go test on: %w", err)
		}
	}
}

// printProcessor tells the processor time of a package's tests and of all programs that they waited for, which are those of a
// control plane, as an attribute of the package. Building the tests is in it, too.
func (p *pool) printProcessor(pkg string, ended *os.ProcessState) {
	line, err := json.Marshal(map[string]string{
		"Action": "attr", "Package": pkg, "Key": "processor",
		"Value": strconv.FormatFloat((ended.UserTime() + ended.SystemTime()).Seconds(), 'f', 1, 64),
	})
	if err != nil {
		panic(err) // strings can always be written
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.out.Write(append(line, '\n')) // only a column of the table is lost
}
