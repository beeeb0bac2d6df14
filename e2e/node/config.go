//go:build linux

package node

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

//go:embed containerd.toml
var containerdConfig string

//go:embed kubelet.yaml
var kubeletConfig string

const cniConfig = `{"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "loopback"}]}`

// writeConfigs writes what containerd and the kubelet read, into the sandbox's directory, which they see as /run/node.
func (n *Node) writeConfigs(c *cluster.Cluster) error {
	kubelet := strings.NewReplacer("CGROUP", n.sandbox.name, "HEALTHZ_PORT", strconv.Itoa(n.healthzPort), "KUBELET_PORT", strconv.Itoa(n.port))
	for path, content := range map[string]string{
		"containerd.toml":      strings.ReplaceAll(containerdConfig, "PAUSE_IMAGE", pauseImage),
		"kubelet.yaml":         kubelet.Replace(kubeletConfig),
		"cni/10-none.conflist": cniConfig,
		"ca.crt":               string(c.CACert),
	} {
		if err := os.WriteFile(filepath.Join(n.Dir, path), []byte(content), 0o600); err != nil {
			return fmt.Errorf("write the node's configuration: %w", err)
		}
	}
	return n.writeKubeconfig(c)
}

// writeKubeconfig gives the kubelet the admin's credentials to act as the node: the API server's node authorizer judges
// what it asks for, as with any kubelet, and nobody has to sign certificates.
func (n *Node) writeKubeconfig(c *cluster.Cluster) error {
	config, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("read the admin's kubeconfig: %w", err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:node:" + n.Name
		user.ImpersonateGroups = []string{"system:nodes"}
	}
	if err := clientcmd.WriteToFile(*config, filepath.Join(n.Dir, "kubelet.kubeconfig")); err != nil {
		return fmt.Errorf("write the kubelet's kubeconfig: %w", err)
	}
	return nil
}
