package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// childEnv makes the test binary start a cluster and wait to be killed.
const childEnv = "AUTOHEALER_CLUSTER_TEST_CHILD"

// child is what it prints once its cluster runs.
type child struct {
	Dir  string
	Pids map[Component]int
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		runChild()
		return
	}
	os.Exit(m.Run())
}

func runChild() {
	c, err := Start(context.Background(), Options{ControllerManager: true, Scheduler: true, Kwok: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	started := child{Dir: c.Dir, Pids: map[Component]int{"watchdog": c.watchdog.cmd.Process.Pid}}
	for name, p := range c.processes {
		started.Pids[name] = p.pid()
	}
	if err := json.NewEncoder(os.Stdout).Encode(started); err != nil {
		os.Exit(1)
	}
	select {}
}

func TestNothingIsLeftWhenTheProgramIsKilled(t *testing.T) {
	program := exec.Command(os.Args[0])
	program.Env = append(os.Environ(), childEnv+"=1")
	program.Stderr = os.Stderr
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var started child
	if err := json.Unmarshal(line, &started); err != nil {
		t.Fatal(err)
	}
	for name, pid := range started.Pids {
		if !alive(pid) {
			t.Errorf("%s (%d) doesn't run", name, pid)
		}
	}
	if len(started.Pids) != 6 {
		t.Errorf("processes: %v", started.Pids)
	}
	if err := program.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = program.Wait() // its error is the signal
	eventually(t, "processes and directory are gone", func(context.Context) error {
		for name, pid := range started.Pids {
			if alive(pid) {
				return fmt.Errorf("%s (%d) runs", name, pid)
			}
		}
		if _, err := os.Stat(started.Dir); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s: %w", started.Dir, err)
		}
		return nil
	})
}

// alive tells a running process from one that is gone or, where nobody reaps orphans, a zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil { // gone since, or no Linux
		return !errors.Is(err, os.ErrNotExist)
	}
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return !bytes.HasPrefix(state, []byte("Z"))
}
