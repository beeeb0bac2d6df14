//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const cgroupRoot = "/sys/fs/cgroup"

// controllers are those without which a kubelet doesn't start; from kubernetes/pkg/kubelet/cm, cgroupManager.Validate.
var controllers = []string{"cpu", "cpuset", "memory", "pids"}

// makeCgroups makes a cgroup of this name below the root of every hierarchy; the watchdog removes them.
func makeCgroups(name string) error {
	hierarchies, err := hierarchies()
	if err != nil {
		return err
	}
	for _, hierarchy := range hierarchies {
		if err := os.Mkdir(filepath.Join(hierarchy, name), 0o755); err != nil && !errors.Is(err, os.ErrExist) { // cpu and cpuacct may be links to one
			return fmt.Errorf("make the node's cgroup: %w", err)
		}
	}
	return nil
}

// hierarchies gives the mount points: one of cgroup v2, or one a controller of v1.
func hierarchies() ([]string, error) {
	enabled, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.subtree_control"))
	if err == nil {
		return []string{cgroupRoot}, missing(strings.Fields(string(enabled)))
	}
	procs, err := filepath.Glob(filepath.Join(cgroupRoot, "*", "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var found, names []string
	for _, file := range procs {
		dir := filepath.Dir(file)
		found = append(found, dir)
		names = append(names, strings.Split(filepath.Base(dir), ",")...)
	}
	return found, missing(names)
}

func missing(have []string) error {
	for _, controller := range controllers {
		if !slices.Contains(have, controller) {
			return fmt.Errorf("the root of the cgroups has no controller %s, or doesn't pass it on", controller)
		}
	}
	return nil
}
