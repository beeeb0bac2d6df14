package manager

import (
	"context"
	"crypto/tls"
	"net/http"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/resourcestack/autohealer/internal/certs"
)

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
