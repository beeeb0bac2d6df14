//go:build linux

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// places where a kubelet or containerd that isn't kept apart leaves something.
var places = []string{
	"/etc/cni", "/etc/containerd", "/opt/cni", "/opt/containerd", "/run/containerd", "/run/netns", "/run/runc",
	"/usr/libexec/kubernetes", "/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/containers", "/var/log/pods",
}

// settings of the kernel that a kubelet changes.
var settings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// machine is what a node could change of it: mounts, kernel settings, directories.
func machine(t *testing.T) map[string]string {
	t.Helper()
	state := map[string]string{"mounts": mounts(t), "temporary files": names(os.TempDir())}
	for _, setting := range settings {
		state[setting] = read(t, filepath.Join("/proc/sys", setting))
	}
	for _, place := range places {
		state[place] = names(place)
	}
	return state
}

// mounts are those at the places, and below the directory for temporary files; other programs may mount elsewhere meanwhile.
func mounts(t *testing.T) string {
	t.Helper()
	var ours []string
	for line := range strings.Lines(read(t, "/proc/self/mountinfo")) {
		for _, place := range append(places, os.TempDir(), "/sys/fs/cgroup") {
			if strings.Contains(line, " "+place) {
				ours = append(ours, line)
			}
		}
	}
	return strings.Join(ours, "")
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// names of a directory's entries, or why there are none to be had.
func names(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err.Error()
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return strings.Join(found, " ")
}

// expectNothingLeft compares the machine with what it was, and looks for cgroups of the sandbox.
func expectNothingLeft(t *testing.T, before map[string]string, sandbox string) {
	t.Helper()
	if diff := cmp.Diff(before, machine(t)); diff != "" {
		t.Errorf("the machine has changed:\n%s", diff)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		if found, err := filepath.Glob(pattern + sandbox); err != nil || len(found) > 0 {
			t.Errorf("cgroups are left: %v %v", found, err)
		}
	}
}
