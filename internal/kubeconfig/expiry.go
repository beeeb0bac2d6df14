package kubeconfig

import (
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// Expiry is when a kubeconfig stops working by itself. The zero value is that it doesn't, as far as it tells.
type Expiry struct {
	// Of says what ends then.
	Of string
	At time.Time
}

// expiryOf is that of the client certificate, unless there are other credentials, which the API server takes then; or of the last
// certificate authority, whichever ends first. Without any authority the system's count.
func expiryOf(config *rest.Config, authorization string) (first Expiry) {
	if own, err := certutil.ParseCertsPEM(config.CertData); err == nil && authorization == "" {
		first = Expiry{"client certificate", own[0].NotAfter}
	}
	authorities, err := certutil.ParseCertsPEM(config.CAData)
	if err != nil { // none
		return first
	}
	last := Expiry{Of: "last certificate authority"}
	for _, authority := range authorities {
		if authority.NotAfter.After(last.At) {
			last.At = authority.NotAfter
		}
	}
	if first.At.IsZero() || last.At.Before(first.At) {
		return last
	}
	return first
}
