package flood

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// memoryGroup makes a cgroup with the limit, "" where nobody may, and says how to remove it. It goes also when this process is
// killed: a shell, whose input ends then, waits until nobody is in it.
func memoryGroup() (dir string, remove func()) {
	GinkgoHelper()
	for parent, limit := range map[string]string{"/sys/fs/cgroup/memory": "memory.limit_in_bytes", "/sys/fs/cgroup": "memory.max"} {
		dir := filepath.Join(parent, fmt.Sprintf("autohealer-flood-%d", os.Getpid()))
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		if os.WriteFile(filepath.Join(dir, limit), []byte(strconv.Itoa(memoryLimit)), 0o600) != nil {
			_ = os.Remove(dir) // this hierarchy doesn't limit memory
			continue
		}
		remover := exec.Command("/bin/sh", "-c", `trap '' INT TERM; read -r _; n=0; until rmdir "$1" || [ $n -ge 100 ]; do n=$((n+1)); sleep 0.1; done`, "autohealer-flood-remover", dir)
		remover.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		alive, err := remover.StdinPipe()
		Expect(errors.Join(err, remover.Start())).To(Succeed())
		return dir, func() {
			Expect(alive.Close()).To(Succeed())
			Expect(remover.Wait()).To(Succeed())
		}
	}
	return "", func() {}
}

// peak is the most memory that the manager has had, in bytes.
func peak() (int64, error) {
	pid, err := managerPID()
	if err != nil {
		return 0, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0, errors.New("the status has no VmHWM")
	}
	kilobytes, err := strconv.ParseInt(fields[0], 10, 64)
	return kilobytes << 10, err
}

func managerPID() (int, error) {
	text, err := os.ReadFile(filepath.Join(h.Dir, "run", "manager.pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
