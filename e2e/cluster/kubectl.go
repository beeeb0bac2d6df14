package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Kubectl runs kubectl as the cluster's admin and gives its standard output; an error has its standard error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlWithInput(ctx, nil, args...)
}

// KubectlWithInput is Kubectl with a standard input, for `apply -f -`.
func (c *Cluster) KubectlWithInput(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := c.kubectl(ctx, args)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// KubectlTo runs kubectl with both of its outputs going to w in their order, as a terminal shows them: warnings of
// admission are on standard error also when kubectl succeeds.
func (c *Cluster) KubectlTo(ctx context.Context, w io.Writer, args ...string) error {
	cmd := c.kubectl(ctx, args)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

func (c *Cluster) kubectl(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(c.BinDir, "kubectl"), args...)
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+c.Kubeconfig,
		"KUBECACHEDIR="+c.path("kubectl-cache"), // else below the user's home, for ever
	)
	return cmd
}
