// Package certs provides the certificate that the admission webhook serves: one that the managers make, publish and
// rotate themselves (SelfSigned), one that cert-manager issues and the managers publish (CertManager), or one that somebody
// else keeps in files (Files). None needs a restart.
//
// The first two share a record, a Secret with what every replica serves and with all CAs to trust, and the order of things:
// a CA is published first, then what it signed is served, and it is trusted until it expires. See keeper.
//
// Private keys are never logged.
package certs

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/resourcestack/autohealer/internal/metric"
)

// errNothingServed is what handshakes and readiness say before the first certificate.
var errNothingServed = errors.New("no serving certificate yet")

// expiry is for the alert that fires when rotation has failed for long.
var expiry = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "autohealer_webhook_certificate_expiry_timestamp_seconds",
	Help: "When the certificate that this replica's webhook serves expires, in seconds since 1970.",
})

func registerMetrics() error {
	return metric.Register(expiry)
}
