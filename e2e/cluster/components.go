package cluster

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed kwok.yaml
var kwokConfig []byte

//go:embed audit-policy.yaml
var auditPolicy []byte

// etcdArgs: without fsync, because the data dies with the cluster, and a killed process loses nothing by it. The quota is
// etcd's advised maximum; the default of 2 GiB stops a long benchmark.
func (c *Cluster) etcdArgs() []string {
	return []string{
		"--data-dir=" + c.path("etcd"),
		"--listen-client-urls=http://" + local(c.ports.etcd),
		"--advertise-client-urls=http://" + local(c.ports.etcd),
		"--listen-peer-urls=http://127.0.0.1:0", // a single member has no peers
		"--unsafe-no-fsync",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}
}

func (c *Cluster) apiServerArgs(o Options) []string {
	args := []string{
		"--etcd-servers=http://" + local(c.ports.etcd),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(c.ports.apiServer),
		"--endpoint-reconciler-type=none", // it refuses to publish a loopback address
		"--tls-cert-file=" + c.path("pki", "apiserver.crt"),
		"--tls-private-key-file=" + c.path("pki", "apiserver.key"),
		"--kubelet-preferred-address-types=InternalIP", // nobody resolves names of nodes
		"--kubelet-client-certificate=" + c.path("pki", "apiserver.crt"),
		"--kubelet-client-key=" + c.path("pki", "apiserver.key"),
		"--token-auth-file=" + c.tokens(),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
		"--service-cluster-ip-range=10.0.0.0/16",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("pki", "service-accounts.key"),
		"--service-account-signing-key-file=" + c.path("pki", "service-accounts.key"),
		// Priority and fairness shares the sum of the two among its levels; the defaults would be what benchmarks measure.
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
		"--audit-policy-file=" + c.path("audit-policy.yaml"),
		"--audit-log-path=" + c.AuditLog,
		"--audit-log-maxsize=0", // no rotation: readers follow one file
	}
	if !o.ControllerManager {
		args = append(args, "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
	}
	return args
}

// controllerManagerArgs: kwok renews no leases, so nodes would turn Unknown after the default grace period of 50 s.
func (c *Cluster) controllerManagerArgs(o Options) []string {
	// It annotates every node again whenever their number passes 100, 500, 1000 …; only kubelets that cache Secrets by time read that.
	controllers := "--controllers=*,-ttl-controller"
	if !o.PolicyTypes {
		controllers += ",-validatingadmissionpolicy-status-controller"
	}
	return []string{
		"--kubeconfig=" + c.path("pki", string(ControllerManager)+".kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--node-monitor-grace-period=24h",
		controllers,
		"--service-account-private-key-file=" + c.path("pki", "service-accounts.key"),
		"--root-ca-file=" + c.path("pki", "ca.crt"),
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	}
}

func (c *Cluster) schedulerArgs() []string {
	return []string{
		"--kubeconfig=" + c.path("pki", string(Scheduler)+".kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=1000",
		"--kube-api-burst=2000",
	}
}

func (c *Cluster) kwokArgs() []string {
	return []string{
		"--kubeconfig=" + c.path("pki", string(Kwok)+".kubeconfig"),
		"--config=" + c.path("kwok.yaml"),
		"--server-address=" + local(c.ports.kwok),
	}
}

// addProcesses fills c.processes with what o asks for.
func (c *Cluster) addProcesses(o Options) {
	add := func(name Component, args []string, ready func(context.Context) error) {
		c.processes[name] = &process{
			name:    name,
			path:    filepath.Join(c.BinDir, string(name)),
			args:    append(args, o.ExtraArgs[name]...),
			env:     []string{"GOGC=400"}, // with heaps as small as here, collecting garbage takes a fifth of the time
			pidFile: c.path("run", string(name)+".pid"),
			logFile: c.Log(name),
			ready:   ready,
		}
	}
	add(Etcd, c.etcdArgs(), HTTPReady("http://"+local(c.ports.etcd)+"/health"))
	add(APIServer, c.apiServerArgs(o), c.apiServerReady)
	if o.ControllerManager {
		add(ControllerManager, c.controllerManagerArgs(o), c.controllerManagerReady)
	}
	if o.Scheduler { // it serves nothing that would tell; that it runs must do
		add(Scheduler, c.schedulerArgs(), func(context.Context) error { return nil })
	}
	if o.Kwok {
		add(Kwok, c.kwokArgs(), HTTPReady("http://"+local(c.ports.kwok)+"/readyz"))
	}
}

func (c *Cluster) apiServerReady(ctx context.Context) error {
	return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// controllerManagerReady: without the default service account no pod can be created in the namespace default.
func (c *Cluster) controllerManagerReady(ctx context.Context) error {
	_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("no default service account yet: %w", err)
	}
	return err
}

// HTTPReady gives nil once a GET of the URL is answered with 200; it is what AddProgram takes.
func HTTPReady(url string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", url, response.Status)
		}
		return nil
	}
}
