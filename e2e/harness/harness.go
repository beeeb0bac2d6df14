// Package harness installs Autohealer on a real control plane and runs its manager as users do: the whole binary, under
// its own service account and rights, behind its real webhook. End-to-end tests, benchmarks and the playground share it.
package harness

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

const (
	// Namespace and ServiceAccount are those of config/default.
	Namespace      = "autohealer-system"
	ServiceAccount = "autohealer-manager"
	// Username is how the API server sees the manager.
	Username = "system:serviceaccount:" + Namespace + ":" + ServiceAccount
	// Manager is the manager's name among the cluster's programs.
	Manager cluster.Component = "manager"
)

// Options say what to start; the zero value is a control plane with everything and a manager.
type Options struct {
	Cluster cluster.Options
	// ManagerArgs are added to the manager's flags.
	ManagerArgs []string
	// Timings of the manager: timings.OfSuites(), or by default production's.
	Timings timing.Timings
	// From is the tree whose config is installed. Default: this one.
	From string
	// Out receives progress. Default: nowhere.
	Out io.Writer
}

// Harness is a control plane with Autohealer on it.
type Harness struct {
	*cluster.Cluster
	// Client has an admin's rights and no cache.
	Client client.Client
	// Program is what managers that are started from now on run; by default bin/manager, or bin/manager-e2e for the short timings.
	Program string

	root       string
	kubeconfig string
	ports      map[cluster.Component]managerPorts
	args       []string
	out        io.Writer
}

type managerPorts struct{ webhook, health, metrics, profiles int }

// Scheme knows Kubernetes' kinds and ours.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		panic(err) // a mistake in the program, not in its input
	}
	return scheme
}

// Start starts a control plane and installs Autohealer; the manager is started apart, by StartManager.
func Start(ctx context.Context, o Options) (*Harness, error) {
	o.Cluster.ControllerManager, o.Cluster.Scheduler, o.Cluster.Kwok = true, true, true
	if o.Cluster.Out == nil {
		o.Cluster.Out = o.Out
	}
	c, err := cluster.Start(ctx, o.Cluster)
	if err != nil {
		return nil, err
	}
	h, err := on(ctx, c, o)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return h, nil
}

func on(ctx context.Context, c *cluster.Cluster, o Options) (*Harness, error) {
	h := &Harness{Cluster: c, ports: map[cluster.Component]managerPorts{}, args: o.ManagerArgs, out: o.Out}
	h.Program = filepath.Join(c.BinDir, "manager")
	if !o.Timings.Production() {
		h.Program += "-e2e"
	}
	var err error
	if h.root, err = moduleRoot(); err != nil {
		return nil, err
	}
	if h.Client, err = client.New(c.Config, client.Options{Scheme: Scheme()}); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if h.ports[Manager], err = freePorts(); err != nil {
		return nil, err
	}
	return h, h.InstallFrom(ctx, cmp.Or(o.From, h.root))
}

// Install applies config/e2e, which is config/default without Deployment and Service, with the webhook's URL. After an
// uninstall, or after a test that changed it, it does so again; a manager is started anew then, by a token of its new account.
func (h *Harness) Install(ctx context.Context) error { return h.InstallFrom(ctx, h.root) }

// InstallFrom does so with the manifests of another version's tree.
func (h *Harness) InstallFrom(ctx context.Context, root string) error {
	manifests, err := h.Kubectl(ctx, "kustomize", filepath.Join(root, "config", "e2e"))
	if err != nil {
		return fmt.Errorf("build config/e2e: %w", err)
	}
	manifests = strings.ReplaceAll(manifests, "https://127.0.0.1:9443/", fmt.Sprintf("https://127.0.0.1:%d/", h.ports[Manager].webhook))
	if _, err := h.KubectlWithInput(ctx, strings.NewReader(manifests), "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		return fmt.Errorf("install Autohealer: %w", err)
	}
	if _, err := h.Kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "crd", "-l", "app.kubernetes.io/name=autohealer"); err != nil {
		return fmt.Errorf("wait for the CRDs: %w", err)
	}
	h.kubeconfig, err = h.ServiceAccountKubeconfig(ctx, Namespace, ServiceAccount)
	return err
}

// Deploy applies the Deployment of config/default in a namespace. kwok plays its pods, and the manager that works is a process still: it is
// for what asks whether an installation is complete.
func (h *Harness) Deploy(ctx context.Context, namespace string) error {
	manifests, err := h.Kubectl(ctx, "kustomize", filepath.Join(h.root, "config", "default"))
	if err != nil {
		return fmt.Errorf("build config/default: %w", err)
	}
	for manifest := range strings.SplitSeq(manifests, "\n---\n") {
		if strings.Contains(manifest, "\nkind: Deployment\n") {
			_, err := h.Apply(ctx, strings.ReplaceAll(manifest, Namespace, namespace))
			return err
		}
	}
	return errors.New("config/default has no Deployment")
}

// StartManager starts the manager and returns when it is ready: caches full, rules compiled, certificate served.
func (h *Harness) StartManager(ctx context.Context, args ...string) error {
	return h.StartReplica(ctx, Manager, args...)
}

// StartReplica starts a further manager beside the first; its webhook isn't the one that the API server calls.
func (h *Harness) StartReplica(ctx context.Context, name cluster.Component, args ...string) error {
	p, ok := h.ports[name]
	if !ok {
		var err error
		if p, err = freePorts(); err != nil {
			return err
		}
		h.ports[name] = p
	}
	flags := []string{
		"--kubeconfig=" + h.kubeconfig, "--namespace=" + Namespace, "--webhook-host=127.0.0.1",
		"--webhook-port=" + strconv.Itoa(p.webhook), "--health-probe-bind-address=127.0.0.1:" + strconv.Itoa(p.health),
		"--metrics-bind-address=127.0.0.1:" + strconv.Itoa(p.metrics), "--pprof-bind-address=127.0.0.1:" + strconv.Itoa(p.profiles),
	}
	flags = append(append(flags, h.args...), args...)
	if err := h.AddProgram(name, h.Program, flags, readyz(p.health)); err != nil {
		return fmt.Errorf("%w (run `make build manager-e2e`)", err)
	}
	return h.StartComponent(ctx, name)
}

// Ready asks a manager that was started whether it is ready now; the error has what isn't.
func (h *Harness) Ready(ctx context.Context, name cluster.Component) error {
	return readyz(h.ports[name].health)(ctx)
}

func readyz(port int) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/readyz?verbose", port), nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("not ready: %s", bytes.TrimSpace(body))
		}
		return nil
	}
}

// Apply runs `kubectl apply -f -` as the admin, and gives kubectl's output or its error with what the user would see.
func (h *Harness) Apply(ctx context.Context, manifest string, flags ...string) (string, error) {
	return h.KubectlWithInput(ctx, strings.NewReader(manifest), append([]string{"apply", "-f", "-"}, flags...)...)
}

// LetProbe lets the manager act on ProbeConfigs' targets in a namespace, as docs/concepts/probe-configs.md says, and returns
// when the API server's authorizer knows.
func (h *Harness) LetProbe(ctx context.Context, namespace string) error {
	const role = "autohealer-probe-target"
	err := h.Client.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: ServiceAccount}},
	})
	if client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: Username, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets", Namespace: namespace, Name: "any"},
		}}
		err := h.Client.Create(ctx, review)
		return review.Status.Allowed, err
	})
}

// Root is the repository's root.
func (h *Harness) Root() string { return h.root }

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "crds", "embed.go")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the repository's root: run this from inside the repository")
		}
		dir = parent
	}
}

func freePorts() (p managerPorts, err error) {
	for _, port := range []*int{&p.webhook, &p.health, &p.metrics, &p.profiles} {
		if *port, err = cluster.FreePort(); err != nil {
			return managerPorts{}, err
		}
	}
	return p, nil
}

// Within is how long end-to-end tests wait for something that takes no timer: generous, since machines are slow, and
// never waited out in full unless something is broken.
const Within = time.Minute
