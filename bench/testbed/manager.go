package testbed

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// WithoutManager stops the manager while something is done: a reference must not pay for it.
func (b *Bed) WithoutManager(ctx context.Context, do func() error) error {
	b.notePeakMemory()
	if err := b.StopComponent(harness.Manager); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return b.StartManager(ctx, b.managerArgs...)
}

// RestartManager restarts the manager with other flags, which it keeps until it is restarted with others again.
func (b *Bed) RestartManager(ctx context.Context, args ...string) error {
	b.managerArgs = args
	return b.WithoutManager(ctx, func() error { return nil })
}

// FreshHeap restarts the manager, and gives what its heap holds once it is at rest.
func (b *Bed) FreshHeap(ctx context.Context, args ...string) (int, error) {
	if err := b.RestartManager(ctx, args...); err != nil {
		return 0, err
	}
	if _, err := b.AwaitNoWrites(ctx); err != nil {
		return 0, err
	}
	return b.Heap(ctx)
}

// Heap is what the manager's heap holds after a collection, in bytes: the least of a few, since what is made while a collection runs
// counts as held, and looks that are due by themselves make much.
func (b *Bed) Heap(ctx context.Context) (int, error) {
	const collections, apart = 5, 2 * time.Second
	least := math.MaxInt
	for i := range collections {
		if i > 0 {
			if err := Pause(ctx, apart); err != nil {
				return 0, err
			}
		}
		held, err := b.memStat(ctx, "HeapAlloc")
		if err != nil {
			return 0, err
		}
		least = min(least, held)
	}
	return least, nil
}

// Stacks is what the stacks of the manager's goroutines take, in bytes.
func (b *Bed) Stacks(ctx context.Context) (int, error) { return b.memStat(ctx, "Stack") }

// memStat is one of the manager's runtime.MemStats after a collection, as its heap profile has them.
func (b *Bed) memStat(ctx context.Context, name string) (int, error) {
	profile, err := b.Profile(ctx, harness.Manager, "heap?gc=1&debug=1")
	if err != nil {
		return 0, fmt.Errorf("ask for the manager's heap: %w", err)
	}
	for line := range strings.Lines(profile) {
		if value, ok := strings.CutPrefix(line, "# "+name+" = "); ok {
			value, _, _ = strings.Cut(value, "/") // of stacks: in use, and had from the system
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("the manager's heap profile has no " + name)
}

// PeakMemory is the greatest resident memory of all managers until now, in bytes; 0 on systems without /proc.
func (b *Bed) PeakMemory() int {
	b.notePeakMemory()
	return b.peakMemory
}

func (b *Bed) notePeakMemory() {
	status, err := os.ReadFile(filepath.Join("/proc", b.pid(harness.Manager), "status"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, _ := strconv.Atoi(fields[1]) // 0 when the kernel writes something else
			b.peakMemory = max(b.peakMemory, kib<<10)
		}
	}
}

// ManagerConfig has the manager's rights.
func (b *Bed) ManagerConfig(ctx context.Context) (*rest.Config, error) {
	kubeconfig, err := b.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the manager's kubeconfig: %w", err)
	}
	config.QPS = -1
	return config, nil
}

// AsManager are clients for bare loops, with the manager's rights.
func (b *Bed) AsManager(ctx context.Context) (kubernetes.Interface, error) {
	config, err := b.ManagerConfig(ctx)
	if err != nil {
		return nil, err
	}
	return clientsOf(config)
}
