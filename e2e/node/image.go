//go:build linux

package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

const (
	// Image has one static program, e2e/node/testpod, which does what the container's args say.
	Image = "autohealer.test/pod:1"
	// pauseImage is the same under another name; without args it waits.
	pauseImage = "autohealer.test/pause:1"
)

// loadImages builds the program of all test pods and gives it to containerd.
func (n *Node) loadImages(ctx context.Context) error {
	program := filepath.Join(n.Dir, "testpod")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/resourcestack/autohealer/e2e/node/testpod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build e2e/node/testpod: %w: %s", err, bytes.TrimSpace(out))
	}
	return n.Load(ctx, program, Image, pauseImage)
}

// Load makes an image of a static program for this machine, as make image does of the manager, and gives it to containerd under these
// names. No registry takes part.
func (n *Node) Load(ctx context.Context, program string, names ...string) error {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return err
	}
	pack := exec.CommandContext(ctx, "go", "run", "-C", filepath.Join(root, "hack", "image"), ".", "pack", "-name="+names[0], "-o="+filepath.Join(n.Dir, "image"), program)
	if out, err := pack.CombinedOutput(); err != nil {
		return fmt.Errorf("pack %s: %w: %s", program, err, bytes.TrimSpace(out))
	}
	archive := filepath.Join("/run/node", filepath.Base(n.Archive())) // as containerd's client sees it
	if _, err := n.sandbox.run(ctx, "ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=native", archive); err != nil {
		return fmt.Errorf("import the image: %w", err)
	}
	for _, name := range names[1:] {
		if _, err := n.sandbox.run(ctx, "ctr", "--namespace=k8s.io", "images", "tag", names[0], name); err != nil {
			return fmt.Errorf("name the image: %w", err)
		}
	}
	return n.waitForImages(ctx, names)
}

// Archive is the file with the image that was loaded last.
func (n *Node) Archive() string { return filepath.Join(n.Dir, "image-linux-"+runtime.GOARCH+".tar") }

// waitForImages returns once containerd's CRI plugin has noticed what came in beside it: before that, a kubelet would say
// ErrImageNeverPull and try again after 10 seconds.
func (n *Node) waitForImages(ctx context.Context, names []string) error {
	var managed string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		managed, err = n.sandbox.run(ctx, "ctr", "--namespace=k8s.io", "images", "list", "--quiet", `labels."io.cri-containerd.image"==managed`)
		for _, name := range names {
			if !strings.Contains(managed, name) {
				return false, err
			}
		}
		return true, err
	})
	if err != nil {
		return fmt.Errorf("wait for containerd's CRI plugin to take the images over: %w; it has %q", err, managed)
	}
	return nil
}

// KillContainer sends SIGKILL to a container's first process, by the id that the pod's status has.
func (n *Node) KillContainer(ctx context.Context, id string) error {
	_, err := n.sandbox.run(ctx, "ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", strings.TrimPrefix(id, "containerd://"))
	return err
}
