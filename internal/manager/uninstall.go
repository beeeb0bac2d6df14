package manager

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/certs"
	"github.com/resourcestack/autohealer/internal/domain/lease"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/installation"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// uninstallCheck is the argument with which the program only says whether it may go. The Helm chart asks before it deletes the manager:
// policies whose finalizer waits for a manager would wait for ever.
const uninstallCheck = "uninstall-check"

// checkUninstall gives the exit code: 0 the manager may go, 1 it may not, 2 that can't be known.
func checkUninstall(ctx context.Context, flags *flag.FlagSet, args []string, out io.Writer) int {
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		fmt.Fprintf(out, "autohealer: %s takes no argument but --kubeconfig\n", uninstallCheck)
		return 2
	}
	var pending []string
	config, err := ctrl.GetConfig()
	if err == nil {
		var client metadata.Interface
		if client, err = metadata.NewForConfig(config); err == nil {
			pending, err = notUndone(ctx, client)
		}
	}
	switch {
	case err != nil:
		fmt.Fprintf(out, "Can't find out whether Autohealer has something to undo: %v\n", err)
		return 2
	case len(pending) > 0:
		fmt.Fprint(out, refusal(pending))
		return 1
	}
	fmt.Fprintln(out, "No policy keeps a record of what it did: the manager may go.")
	return 0
}

// notUndone names the policies with the finalizer. A kind that isn't installed has none.
func notUndone(ctx context.Context, client metadata.Interface) (pending []string, err error) {
	for _, k := range finalized() {
		resource := client.Resource(v1alpha1.GroupVersion.WithResource(k.Plural()))
		list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return resource.List(ctx, o) })
		err := list.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			policy := object.(*metav1.PartialObjectMetadata)
			if !slices.Contains(policy.Finalizers, v1alpha1.FinalizerUndo) {
				return nil
			}
			name := k.Name() + " " + policy.Name
			if policy.Namespace != "" {
				name += " in namespace " + policy.Namespace
			}
			pending = append(pending, name)
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("list %s: %w", k.Plural(), err)
		}
	}
	return pending, nil
}

// finalized are the kinds whose policies keep a finalizer until what they did is undone.
func finalized() []*kinds.Kind {
	return slices.DeleteFunc(slices.Clone(kinds.All), func(k *kinds.Kind) bool { return !k.Finalizer })
}

func refusal(pending []string) string {
	what := fmt.Sprintf("%d policies are", len(pending))
	if len(pending) == 1 {
		what = "1 policy is"
	}
	var plurals []string
	for _, k := range finalized() {
		plurals = append(plurals, k.Plural())
	}
	return fmt.Sprintf(`Autohealer isn't uninstalled: %s stored. Without the manager nobody undoes what they did, and they can't be deleted any more.
  %s
Delete them while the manager runs, and uninstall when they are gone:
  kubectl delete %s --all -A
Or have all of Autohealer removed, whatever state it is in, and uninstall then:
  kubectl autohealer uninstall
`, what, sample.List(pending, "\n  "), strings.Join(plurals, ","))
}

// newMarker makes what tells whether the cluster is this installation's. Its requests end in time for a renewal of the Lease.
func newMarker(config *rest.Config, o options) (*installation.Marker, error) {
	config = rest.CopyConfig(config)
	config.Timeout = lease.RenewDeadline / 4
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("make the client of the installation's mark: %w", err)
	}
	return &installation.Marker{Client: c, Configuration: webhookConfiguration, Namespace: o.namespace}, nil
}

// addMarker has every replica look whose the cluster is. A manager that isn't elected waits here until it is its own.
func addMarker(ctx context.Context, mgr ctrl.Manager, o options, marker *installation.Marker) error {
	if err := installation.RegisterMetrics(); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("installation", marker.Ready); err != nil {
		return fmt.Errorf("add the probe of the installation: %w", err)
	}
	if err := mgr.Add(installation.Watcher{Marker: marker, Cache: mgr.GetCache(), Elected: o.leaderElect}); err != nil {
		return fmt.Errorf("add the watch over the installation's mark: %w", err)
	}
	if o.leaderElect {
		return nil
	}
	return marker.Await(ctx)
}

// Values of --cert-provider.
const (
	selfSigned  = "self-signed"
	certManager = "cert-manager"
	files       = "files"
)

// Names of the objects in config/.
const (
	webhookConfiguration = "autohealer"
	webhookService       = "autohealer-webhook"
	metricsService       = "autohealer-metrics"
)

// certificate is what a certificate provider does for the manager.
type certificate interface {
	TLSConfig(*tls.Config)
	Ready(*http.Request) error
	SetupWithManager(ctrl.Manager) error
}

func newCertificate(o options, ours func(context.Context) error) certificate {
	kept := certs.Options{
		Namespace: o.namespace, SecretName: o.certSecret, WebhookConfiguration: webhookConfiguration, Settle: o.certSettle, Ours: ours,
		Hosts: slices.Concat(serviceHosts(webhookService, o.namespace), serviceHosts(metricsService, o.namespace), o.webhookHosts),
	}
	if o.certIssuer.Name == "" { // config/prometheus is the same in every namespace by the short name, which not every CA signs
		kept.Hosts = append(kept.Hosts, metricsService)
	}
	if o.envoys.clientCA != "" {
		kept.Hosts = append(kept.Hosts, serviceHosts(xdsService, o.namespace)...)
	}
	switch o.certProvider {
	case files:
		return certs.NewFiles(o.certDir)
	case certManager:
		return certs.NewCertManager(kept, o.certIssuer)
	default:
		return certs.NewSelfSigned(kept)
	}
}

func serviceHosts(service, namespace string) []string {
	host := service + "." + namespace + ".svc"
	return []string{host, host + ".cluster.local"}
}
