package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Component is a process of the control plane, by the name of its binary.
type Component string

// The components that a cluster can have. Etcd and APIServer always run.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kwok              Component = "kwok"
)

// BinEnv names the environment variable with the directory of the control plane's binaries.
const BinEnv = "AUTOHEALER_BIN"

// Options say what to start. The zero value is etcd and the API server in a temporary directory.
type Options struct {
	// BinDir holds the binaries. Default: $AUTOHEALER_BIN, else bin/ next to the go.mod above the working directory.
	BinDir string
	// Dir receives data, logs, keys and kubeconfigs. It must be absent or empty, and stays after Stop, so that logs can be
	// read. Default: a temporary directory that Stop removes.
	Dir string

	// ControllerManager brings taint eviction, ReplicaSets, garbage collection and service accounts.
	// Without it, neither the ServiceAccount nor the TaintNodesByCondition admission plugin runs: pods need no service
	// account and new nodes carry no not-ready taint, which nobody would remove.
	ControllerManager bool
	// Scheduler binds pods to nodes.
	Scheduler bool
	// Kwok makes every Node Ready and runs its pods; see kwok.yaml for the labels that pods obey.
	Kwok bool

	// PolicyTypes has the types in admission policies checked, which takes half a second of a processor: their status says what is doubted.
	PolicyTypes bool
	// ExtraArgs are appended to a component's flags; of a flag given twice the later one counts.
	ExtraArgs map[Component][]string
	// Out receives one line per component that got ready. Default: nowhere.
	Out io.Writer
}

func (o Options) components() []Component {
	components := []Component{Etcd, APIServer}
	for component, wanted := range map[Component]bool{
		ControllerManager: o.ControllerManager, Scheduler: o.Scheduler, Kwok: o.Kwok,
	} {
		if wanted {
			components = append(components, component)
		}
	}
	return components
}

// binDir finds the binaries' directory and makes sure that every component wanted is in it.
func (o Options) binDir() (string, error) {
	dir := o.BinDir
	if dir == "" {
		var err error
		if dir, err = BinDir(); err != nil {
			return "", err
		}
	}
	for _, component := range o.components() {
		if _, err := os.Stat(filepath.Join(dir, string(component))); err != nil {
			return "", fmt.Errorf("find %s: %w; run `make controlplane`, or set %s", component, err, BinEnv)
		}
	}
	return filepath.Abs(dir)
}

// BinDir is where the binaries are when Options don't say it: $AUTOHEALER_BIN, else bin/ next to the go.mod above the
// working directory.
func BinDir() (string, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		return dir, nil
	}
	root, err := ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("find the control plane's binaries: %w; set %s", err, BinEnv)
	}
	return filepath.Join(root, "bin"), nil
}

// ModuleRoot is the directory of the go.mod above the working directory.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("get the working directory: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s", start)
		}
	}
}

// makeDir makes the cluster's directory; temporary says that Stop must remove it.
func (o Options) makeDir() (dir string, temporary bool, err error) {
	if o.Dir == "" {
		dir, err = os.MkdirTemp("", "autohealer-cluster-")
		return dir, true, err
	}
	dir, err = filepath.Abs(o.Dir)
	if err != nil {
		return "", false, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", false, err
	}
	if len(entries) > 0 {
		return "", false, fmt.Errorf("%s is not empty; remove it, or name another directory", dir)
	}
	return dir, false, os.MkdirAll(dir, 0o700)
}
