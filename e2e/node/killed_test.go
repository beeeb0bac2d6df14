//go:build linux

package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// childEnv makes the test binary start a node and wait to be killed.
const childEnv = "AUTOHEALER_NODE_TEST_CHILD"

// child is what it prints once a pod runs on its node.
type child struct {
	Sandbox string
	// Commands of the node's processes, by their ids outside of its namespace.
	Commands map[int]string
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild()
		return
	}
	os.Exit(m.Run())
}

func runChild() {
	_, n, err := startWithPod(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// The kubelet may tell of a container a moment before the process has become its command.
	var commands map[int]string
	err = wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		commands, err = commandsBelow(n.sandbox.init.Process.Pid)
		return complete(commands), err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "processes of a node with one pod:", commands, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(child{n.sandbox.name, commands}); err != nil {
		os.Exit(1)
	}
	select {}
}

// complete says whether these are the processes of a node with one pod: its container's and the one that holds its namespaces.
func complete(commands map[int]string) bool {
	count := map[string]int{}
	for _, command := range commands {
		count[filepath.Base(command)]++
	}
	return count["kubelet"] == 1 && count["containerd"] == 1 && count["containerd-shim-runc-v2"] == 1 && count["testpod"] == 2
}

func startChild(t *testing.T) (program *exec.Cmd, stdout *bufio.Reader) {
	t.Helper()
	program = exec.Command(os.Args[0])
	program.Env = append(os.Environ(), childEnv+"=1")
	program.Stderr = t.Output()
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	return program, bufio.NewReader(out)
}

func TestNothingIsLeftWhenTheProgramIsKilled(t *testing.T) {
	if why := Unavailable(); why != "" {
		t.Skip(why)
	}
	t.Setenv("TMPDIR", t.TempDir())
	before := machine(t)
	program, stdout := startChild(t)
	line, err := stdout.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var started child
	if err := json.Unmarshal(line, &started); err != nil {
		t.Fatal(err)
	}
	kill(t, program)
	expectGone(t, before, started)
}

// The moments are those at which something new exists that somebody must remove.
func TestNothingIsLeftWhenTheProgramIsKilledDuringTheStart(t *testing.T) {
	if why := Unavailable(); why != "" {
		t.Skip(why)
	}
	for _, exists := range []string{"run", "containerd.toml", "var/lib/containerd/io.containerd.metadata.v1.bolt/meta.db", "var/lib/kubelet/pods"} {
		t.Run("when "+filepath.Base(exists)+" is there", func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			before := machine(t)
			program, _ := startChild(t)
			var found []string
			within(t, time.Minute, "the node's start", func() error {
				var err error
				if found, err = filepath.Glob(filepath.Join(os.TempDir(), "autohealer-node-*", exists)); len(found) == 0 {
					return errors.Join(errors.New("not there yet"), err)
				}
				return nil
			})
			kill(t, program)
			dir, err := filepath.Rel(os.TempDir(), found[0])
			if err != nil {
				t.Fatal(err)
			}
			for filepath.Dir(dir) != "." {
				dir = filepath.Dir(dir)
			}
			expectGone(t, before, child{Sandbox: dir})
		})
	}
}

func kill(t *testing.T, program *exec.Cmd) {
	t.Helper()
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait() // its error is the signal
}

// expectGone waits for the watchdogs, of the node and of the cluster.
func expectGone(t *testing.T, before map[string]string, started child) {
	t.Helper()
	within(t, 30*time.Second, "the processes' and the directories' end", func() error {
		for pid, command := range started.Commands {
			if syscall.Kill(pid, 0) == nil && command == commandOf(pid) {
				return fmt.Errorf("%s (%d) runs", command, pid)
			}
		}
		if left := names(os.TempDir()); left != "" {
			return errors.New("left: " + left)
		}
		return nil
	})
	expectNothingLeft(t, before, started.Sandbox)
}

func within(t *testing.T, limit time.Duration, what string, holds func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, limit, true, func(context.Context) (bool, error) {
		last = holds()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("wait for %s: %v: %v", what, err, last)
	}
}

// commandsBelow gives the processes of a PID namespace by its first process, and their children: containers have PID
// namespaces of their own.
func commandsBelow(init int) (map[int]string, error) {
	namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", init))
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	commands := map[int]string{}
	for more := true; more; {
		more = false
		for _, entry := range entries {
			pid, err := strconv.Atoi(entry.Name())
			if err != nil || commands[pid] != "" { // no process, or known
				continue
			}
			of, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
			if err != nil { // gone since
				continue
			}
			if of == namespace || commands[parentOf(pid)] != "" {
				if commands[pid] = commandOf(pid); commands[pid] != "" {
					more = true
				}
			}
		}
	}
	return commands, nil
}

// parentOf a process; 0 for one that is gone.
func parentOf(pid int) int {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, fields, _ := bytes.Cut(stat, []byte(") ")) // state, parent, …
	parent, err := strconv.Atoi(string(bytes.Fields(fields)[1]))
	if err != nil {
		return 0
	}
	return parent
}

// commandOf a process; empty for one that is gone or a zombie.
func commandOf(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	command, _, _ := bytes.Cut(line, []byte{0})
	return string(command)
}
