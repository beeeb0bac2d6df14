package soundness

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// webhookConfiguration is the webhook's.
const webhookConfiguration = "autohealer"

// soon is how long before its end a CA is told of. The manager makes the next one long before.
const soon = 7 * 24 * time.Hour

// certificates looks at the CAs by which the API server knows the webhook. Whether they are the right ones, the verdicts tell.
func (c *Checker) certificates(ctx context.Context) ([]Finding, error) {
	var stored admissionregistrationv1.ValidatingWebhookConfiguration
	err := c.Client.Get(ctx, types.NamespacedName{Name: webhookConfiguration}, &stored)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if len(stored.Webhooks) == 0 {
		return []Finding{{"there is no CA bundle, since there is no webhook in validatingwebhookconfiguration/" + webhookConfiguration, reapply}}, nil
	}
	var found []Finding
	for _, hook := range stored.Webhooks {
		if why := badBundle(hook.ClientConfig.CABundle, c.Clock.Now()); why != "" {
			found = append(found, Finding{"the CA bundle of webhook " + hook.Name + " " + why, "The manager publishes it, once it runs and may patch that configuration. " + c.logs()})
		}
	}
	return found, nil
}

// badBundle says what is wrong with a CA bundle; "" when one of its CAs holds now and will for a while.
func badBundle(bundle []byte, now time.Time) string {
	if len(bundle) == 0 {
		return "is empty"
	}
	authorities, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		return fmt.Sprintf("can't be read: %v", err)
	}
	begun := slices.DeleteFunc(slices.Clone(authorities), func(a *x509.Certificate) bool { return now.Before(a.NotBefore) })
	if len(begun) == 0 {
		return "isn't valid before " + authorities[0].NotBefore.UTC().Format(time.RFC3339)
	}
	last := slices.MaxFunc(begun, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	switch left := last.NotAfter.Sub(now); {
	case left <= 0:
		return "expired " + last.NotAfter.UTC().Format(time.RFC3339)
	case left < soon:
		return "expires " + last.NotAfter.UTC().Format(time.RFC3339) + ", and no other CA follows"
	}
	return ""
}
