//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

// startTimeout bounds what a loaded machine with two cores needs for containerd, the image and the kubelet together.
const startTimeout = 2 * time.Minute

// Options describe a node.
type Options struct {
	// Name of the Node. Default: "real-0".
	Name string
	// Labels that the kubelet gives to the Node; those of kubernetes.io must be ones that a kubelet may set.
	Labels map[string]string
	// Out receives one line when the node is ready. Default: nowhere.
	Out io.Writer
}

// Node is a machine of the cluster with a real kubelet and a real containerd.
type Node struct {
	Name string
	// Dir has the node's files: var/log/pods, var/lib/kubelet. It goes with the node.
	Dir string
	// Kubelet and Containerd are programs of the cluster, for StartComponent, StopComponent, Kill and Log.
	Kubelet, Containerd cluster.Component

	port, healthzPort int
	sandbox           *sandbox
	stopOnce          sync.Once
	stopErr           error
}

// Start starts a node and returns when it is Ready, and without the taint of new nodes. ctx bounds the start only. The
// cluster needs a controller manager, and no kwok that would play the node. Stop the node before the cluster; an error
// leaves nothing behind.
func Start(ctx context.Context, c *cluster.Cluster, o Options) (*Node, error) {
	if o.Name == "" {
		o.Name = "real-0"
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	began := time.Now()
	n := &Node{
		Name: o.Name, Kubelet: cluster.Component("kubelet-" + o.Name), Containerd: cluster.Component("containerd-" + o.Name),
	}
	if err := n.start(ctx, c, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start node %s: %w", o.Name, err), n.Stop())
	}
	if o.Out != nil {
		_, _ = fmt.Fprintf(o.Out, "node %s ready after %.1fs\n", n.Name, time.Since(began).Seconds()) // nobody reads: no reason to fail
	}
	return n, nil
}

func (n *Node) start(ctx context.Context, c *cluster.Cluster, o Options) error {
	var err error
	for _, port := range []*int{&n.port, &n.healthzPort} {
		if *port, err = cluster.FreePort(); err != nil {
			return err
		}
	}
	name := fmt.Sprintf("autohealer-node-%08x", rand.Uint32())
	n.sandbox, err = newSandbox(name, c.BinDir, []string{"cni", "var/lib/kubelet", "var/log", "var/tmp"})
	n.Dir = n.sandbox.dir
	if err != nil {
		return err
	}
	if err := n.writeConfigs(c); err != nil {
		return err
	}
	if err := n.startContainerd(ctx, c); err != nil {
		return err
	}
	if err := n.loadImages(ctx); err != nil {
		return err
	}
	if err := n.startKubelet(ctx, c, o.Labels); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return n.waitUsable(ctx, client)
}

func (n *Node) startContainerd(ctx context.Context, c *cluster.Cluster) error {
	return n.startProgram(ctx, c, n.Containerd, func(ctx context.Context) error {
		_, err := n.sandbox.run(ctx, "ctr", "version")
		return err
	}, "containerd", "--config=/run/node/containerd.toml")
}

func (n *Node) startKubelet(ctx context.Context, c *cluster.Cluster, labels map[string]string) error {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return n.startProgram(ctx, c, n.Kubelet, n.kubeletHealthy,
		"kubelet", "--config=/run/node/kubelet.yaml", "--kubeconfig=/run/node/kubelet.kubeconfig",
		"--hostname-override="+n.Name, "--node-labels="+strings.Join(pairs, ","))
}

func (n *Node) startProgram(ctx context.Context, c *cluster.Cluster, name cluster.Component, ready func(context.Context) error, command ...string) error {
	program, args := n.sandbox.inside(command...)
	path, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	if err := c.AddProgram(name, path, args, ready); err != nil {
		return err
	}
	return c.StartComponent(ctx, name)
}

func (n *Node) kubeletHealthy(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/healthz", n.healthzPort), nil)
	if err != nil {
		return err
	}
	request.Close = true // an idle connection would outlive the node
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the kubelet's health: %s", response.Status)
	}
	return nil
}

func (n *Node) waitUsable(ctx context.Context, client kubernetes.Interface) error {
	var why error
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		why = n.usable(ctx, client)
		return why == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the node to be Ready: %w: %w", err, why)
	}
	return nil
}

func (n *Node) usable(ctx context.Context, client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady {
			return fmt.Errorf("it has the taint %s", taint.ToString())
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return errors.New(condition.Message)
		} else if condition.Type == corev1.NodeReady {
			return nil
		}
	}
	return errors.New("it has no condition Ready")
}

// Stop ends kubelet, containerd and every container as a power failure does, and returns once nothing of the node is
// left on the machine. The Node stays in the cluster. Further calls do nothing and give the first one's error.
func (n *Node) Stop() error {
	n.stopOnce.Do(func() {
		if n.sandbox == nil {
			return
		}
		if err := n.sandbox.remove(); err != nil {
			n.stopErr = fmt.Errorf("stop node %s: %w", n.Name, err)
		}
	})
	return n.stopErr
}
