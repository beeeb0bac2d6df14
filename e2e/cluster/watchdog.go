package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// watchdogScript waits for the end of its standard input, whose write end only the parent holds: it ends when the parent
// does, however it dies. $1 is the directory with the components' pid files; moving it away first keeps a component from
// registering itself unseen. If it is gone, the parent has stopped everything itself. $2 is what to remove, if anything.
// A killed process may still write for a moment, hence the repetition.
const watchdogScript = `
trap '' HUP INT TERM
while read -r _; do :; done
mv "$1" "$1.dead" 2>/dev/null || exit 0
for f in "$1.dead"/*.pid; do
  read -r pid <"$f" && kill -s KILL -- "-$pid"
done
n=0
until rm -rf "$1.dead" ${2:+"$2"} || [ $n -ge 100 ]; do n=$((n+1)); sleep 0.1; done
`

// watchdog ends the components when this program ends without Stop.
type watchdog struct {
	cmd *exec.Cmd
	// alive is held open for as long as this program lives. Go opens pipes close-on-exec: no component inherits it.
	alive *os.File
}

// startWatchdog guards the components registered in runDir; remove, if not empty, goes too.
func startWatchdog(runDir, remove string) (*watchdog, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make the watchdog's pipe: %w", err)
	}
	defer func() { _ = read.Close() }()
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "autohealer-cluster-watchdog", runDir, remove)
	cmd.Stdin = read
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // out of reach of the terminal's signals
	if err := cmd.Start(); err != nil {
		_ = write.Close()
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, alive: write}, nil
}

// dismiss ends the watchdog; its directory must be gone, or it kills what is registered there.
func (w *watchdog) dismiss() error {
	if err := w.alive.Close(); err != nil {
		return fmt.Errorf("close the watchdog's pipe: %w", err)
	}
	if err := w.cmd.Wait(); err != nil {
		return fmt.Errorf("wait for the watchdog: %w", err)
	}
	return nil
}
