package main

import (
	"crypto/tls"
	"net/http"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/resourcestack/autohealer/internal/certs"
)

// Values of --cert-provider.
const (
	selfSigned = "self-signed"
	files      = "files"
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

func newCertificate(o options) certificate {
	if o.certProvider == files {
		return certs.NewFiles(o.certDir)
	}
	return certs.NewSelfSigned(certs.Options{
		Namespace: o.namespace, SecretName: o.certSecret, WebhookConfiguration: webhookConfiguration,
		Hosts: slices.Concat(serviceHosts(webhookService, o.namespace), serviceHosts(metricsService, o.namespace), o.webhookHosts),
	})
}

func serviceHosts(service, namespace string) []string {
	host := service + "." + namespace + ".svc"
	return []string{host, host + ".cluster.local"}
}
