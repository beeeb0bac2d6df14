//go:build linux

package node

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// Image has one static program, e2e/node/testpod, which does what the container's args say.
	Image = "autohealer.test/pod:1"
	// pauseImage is the same under another name; without args it waits.
	pauseImage = "autohealer.test/pause:1"
)

// loadImages builds the program, packs it and gives it to containerd; no registry takes part.
func (n *Node) loadImages(ctx context.Context) error {
	program := filepath.Join(n.Dir, "testpod")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "github.com/resourcestack/autohealer/e2e/node/testpod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build e2e/node/testpod: %w: %s", err, bytes.TrimSpace(out))
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the built program: %w", err)
	}
	archive, err := imageArchive(binary, Image, pauseImage)
	if err != nil {
		return fmt.Errorf("pack the image: %w", err)
	}
	if _, err := n.sandbox.run(ctx, bytes.NewReader(archive), "ctr", "--namespace=k8s.io", "images", "import", "--snapshotter=native", "-"); err != nil {
		return fmt.Errorf("import the image: %w", err)
	}
	return n.waitForImages(ctx)
}

// waitForImages returns once containerd's CRI plugin has noticed what came in beside it: before that, a kubelet would say
// ErrImageNeverPull and try again after 10 seconds.
func (n *Node) waitForImages(ctx context.Context) error {
	var managed string
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		managed, err = n.sandbox.run(ctx, nil, "ctr", "--namespace=k8s.io", "images", "list", "--quiet", `labels."io.cri-containerd.image"==managed`)
		return strings.Contains(managed, Image) && strings.Contains(managed, pauseImage), err
	})
	if err != nil {
		return fmt.Errorf("wait for containerd's CRI plugin to take the images over: %w; it has %q", err, managed)
	}
	return nil
}

// imageArchive gives a tar as `docker save` writes them, with one image of one layer of one file.
func imageArchive(binary []byte, names ...string) ([]byte, error) {
	layer, err := archiveOf(file{"testpod", 0o755, binary})
	if err != nil {
		return nil, err
	}
	config, configErr := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/testpod"}, "Cmd": []string{"pause"}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	manifest, manifestErr := json.Marshal([]map[string]any{
		{"Config": "config.json", "RepoTags": names, "Layers": []string{"layer.tar"}},
	})
	if err := errors.Join(configErr, manifestErr); err != nil {
		return nil, err
	}
	return archiveOf(file{"layer.tar", 0o644, layer}, file{"config.json", 0o644, config}, file{"manifest.json", 0o644, manifest})
}

type file struct {
	name    string
	mode    int64
	content []byte
}

func archiveOf(files ...file) ([]byte, error) {
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := writer.Write(f.content); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), writer.Close()
}
