//go:build linux

package node

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// binaries of a node, all from `make node`.
var binaries = []string{"kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc"}

// Unavailable says why no real node can run on this machine, for t.Skip; it is empty where one can.
func Unavailable() string {
	binDir, err := cluster.BinDir()
	if err != nil {
		return "a real node needs its binaries: " + err.Error()
	}
	if os.Geteuid() != 0 {
		return "a real node needs root"
	}
	for _, name := range binaries {
		if _, err := os.Stat(filepath.Join(binDir, name)); err != nil {
			return fmt.Sprintf("a real node needs %s in %s; `make node` puts it there, or says why it can't", name, binDir)
		}
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		return "a real node needs nsenter, of util-linux"
	}
	if _, err := os.Stat("/dev/kmsg"); err != nil {
		return "a real node needs /dev/kmsg, where the kubelet reads of processes killed for lack of memory"
	}
	if _, err := hierarchies(); err != nil {
		return "a real node needs cgroups: " + err.Error()
	}
	// What a container may do often ends here, and says so.
	if out, err := exec.Command("unshare", "--mount", "--pid", "--fork", "mount", "-n", "--make-rprivate", "/").CombinedOutput(); err != nil {
		return fmt.Sprintf("a real node needs namespaces of its own: %v: %s", err, strings.TrimSpace(string(out)))
	}
	return ""
}
