package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Helm runs bin/helm or bin/helm3, whichever is named, as the cluster's admin, and gives both of its outputs. Whatever this machine's
// user has of Helm's isn't read.
func (c *Cluster) Helm(ctx context.Context, binary string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.BinDir, binary), args...)
	for _, env := range os.Environ() {
		if !strings.HasPrefix(env, "HELM_") {
			cmd.Env = append(cmd.Env, env)
		}
	}
	home := c.path(binary)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+c.Kubeconfig, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	output, err := cmd.CombinedOutput()
	return string(output), err
}
