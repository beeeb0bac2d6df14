//go:build linux

package node

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

//go:embed init.sh
var initScript string

//go:embed watchdog.sh
var watchdogScript string

// sandbox is a mount and a PID namespace with the cgroups and the directory that belong to them.
type sandbox struct {
	// name is that of the directory and of the cgroups.
	name string
	dir  string
	// alive is held open for as long as the sandbox shall live. Go opens pipes close-on-exec: no other process inherits it.
	alive *os.File
	// init is the first process of the PID namespace.
	init     *exec.Cmd
	watchdog *exec.Cmd
	said     strings.Builder // what the watchdog couldn't remove; read after its end
}

// newSandbox makes the directory with what is to be in it, and the namespaces; remove ends it, also after an error.
func newSandbox(name, binDir string, directories []string) (*sandbox, error) {
	s := &sandbox{name: name, dir: filepath.Join(os.TempDir(), name)}
	read, write, err := os.Pipe()
	if err != nil {
		return s, fmt.Errorf("make the sandbox's pipe: %w", err)
	}
	defer func() { _ = read.Close() }()
	s.alive = write
	// First: from here on, everything that is made has somebody to remove it.
	if err := s.startWatchdog(read); err != nil {
		return s, err
	}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return s, fmt.Errorf("make the sandbox's directory: %w", err)
	}
	for _, directory := range append([]string{"run"}, directories...) {
		if err := os.MkdirAll(filepath.Join(s.dir, directory), 0o755); err != nil {
			return s, fmt.Errorf("make the sandbox's directory: %w", err)
		}
	}
	if err := makeCgroups(name); err != nil {
		return s, err
	}
	return s, s.startInit(read, binDir)
}

func (s *sandbox) startWatchdog(alive *os.File) error {
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "autohealer-node-watchdog", s.name, s.dir)
	cmd.Stdin, cmd.Stderr, cmd.Dir = alive, &s.said, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the terminal's signals
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the node's watchdog: %w", err)
	}
	s.watchdog = cmd
	return nil
}

func (s *sandbox) startInit(alive *os.File, binDir string) error {
	cmd := exec.Command("/bin/sh", "-c", initScript, "autohealer-node-init", s.dir, binDir)
	cmd.Stdin, cmd.Dir = alive, "/"
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the node's namespaces: %w", err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the node's namespaces: %w", err)
	}
	s.init = cmd
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
		_ = s.alive.Close()
		_ = cmd.Wait() // for stderr to be whole; that it failed is known
		return fmt.Errorf("set up the node's namespaces: %q %w: %s", line, err, strings.TrimSpace(stderr.String()))
	}
	return nil
}

// inside gives program and arguments that run a command in the sandbox, without access to this program's environment.
func (s *sandbox) inside(command ...string) (string, []string) {
	return "nsenter", append([]string{
		"--target", strconv.Itoa(s.init.Process.Pid), "--mount", "--pid", "--",
		"/usr/bin/env", "--ignore-environment", "--chdir=/", "PATH=" + searchPath, "TMPDIR=/var/tmp", "HOME=/run/node",
	}, command...)
}

// searchPath has the binaries' directory, as the sandbox knows it, before the machine's: mount and the like are the machine's.
const searchPath = "/run/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// run runs a command in the sandbox and gives its standard output.
func (s *sandbox) run(ctx context.Context, command ...string) (string, error) {
	program, args := s.inside(command...)
	cmd := exec.CommandContext(ctx, program, args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// remove ends every process of the sandbox and returns once everything of it is gone.
func (s *sandbox) remove() error {
	var errs []error
	if s.alive != nil {
		_ = s.alive.Close() // an error means that it is closed already
	}
	if s.init != nil { // it returns only after the kernel has ended all others in its namespace
		if err := s.init.Wait(); err != nil && s.init.ProcessState == nil {
			errs = append(errs, fmt.Errorf("wait for the node's namespaces: %w", err))
		}
	}
	if s.watchdog != nil {
		if err := s.watchdog.Wait(); err != nil {
			errs = append(errs, fmt.Errorf("remove the node: %w: %s", err, strings.TrimSpace(s.said.String())))
		}
	}
	return errors.Join(errs...)
}
