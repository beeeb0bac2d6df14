package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// registerAndExec writes the process's id for the watchdog before it becomes the component: were the id written by the
// parent, a parent killed in between would leave the component behind. If the watchdog has already moved the directory
// away, the redirection fails and nothing starts.
const registerAndExec = `echo $$ >"$1" && shift && exec "$@"`

// process is one component: how it is started, and the one that runs now.
type process struct {
	name    Component
	path    string
	args    []string
	env     []string // beside this program's own
	pidFile string
	logFile string
	// ready gives nil once the component does its work.
	ready func(context.Context) error

	mu     sync.Mutex
	cmd    *exec.Cmd
	exited chan struct{} // closed once cmd is gone; nil before the first start
	err    error         // what cmd ended with; read after exited
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running() {
		return fmt.Errorf("start %s: it runs already", p.name)
	}
	log, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer func() { _ = log.Close() }() // the component has its own copy
	cmd := exec.Command("/bin/sh", append([]string{"-c", registerAndExec, string(p.name), p.pidFile, p.path}, p.args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = filepath.Dir(p.logFile)
	cmd.Env = append(os.Environ(), p.env...)
	// A group of its own: Ctrl-C on the terminal reaches us, not the component, which stops when we say so.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	exited := make(chan struct{})
	p.cmd, p.exited = cmd, exited
	go func() {
		p.err = cmd.Wait()
		_ = os.Remove(p.pidFile) // its id may be given to somebody else from now on
		close(exited)
	}()
	return nil
}

// running needs p.mu.
func (p *process) running() bool {
	if p.exited == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// signal sends sig to the component's process group, if it runs.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return fmt.Errorf("send %s to %s: it doesn't run", sig, p.name)
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil {
		return fmt.Errorf("send %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// stop ends the component and waits until it is gone: by SIGTERM, and by SIGKILL when it isn't gone after grace.
func (p *process) stop(grace time.Duration) {
	p.mu.Lock()
	exited, running := p.exited, p.running()
	p.mu.Unlock()
	if !running {
		return
	}
	if grace > 0 {
		_ = p.signal(syscall.SIGTERM) // an error means that it is gone
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-exited:
			return
		case <-timer.C:
		}
	}
	_ = p.signal(syscall.SIGKILL)
	<-exited
}

// pid of the running component; 0 when it doesn't run.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return 0
	}
	return p.cmd.Process.Pid
}

// waitReady returns once the component is ready; if it exits or ctx ends before, the error has the end of its log.
func (p *process) waitReady(ctx context.Context) error {
	p.mu.Lock()
	exited := p.exited
	p.mu.Unlock()
	tick := time.NewTicker(100 * time.Millisecond) // to ask takes processor time from who gets ready
	defer tick.Stop()
	for {
		err := p.ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%s exited: %w; its log %s ends with:\n%s", p.name, p.err, p.logFile, logTail(p.logFile, 20))
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (%w); its log %s ends with:\n%s", p.name, ctx.Err(), err, p.logFile, logTail(p.logFile, 20))
		case <-tick.C:
		}
	}
}

// logTail gives a log's last lines, of at most 8 KiB for each 20.
func logTail(file string, lines int) string {
	log, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	if most := lines * 8 << 10 / 20; len(log) > most {
		log = log[len(log)-most:]
	}
	all := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n")))
}
