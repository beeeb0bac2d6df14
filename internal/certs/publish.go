package certs

import (
	"bytes"
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// published says whether every webhook of the configuration trusts exactly this bundle.
func published(config *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) bool {
	for i := range config.Webhooks {
		if !bytes.Equal(config.Webhooks[i].ClientConfig.CABundle, bundle) {
			return false
		}
	}
	return len(config.Webhooks) > 0
}

// publish writes the bundle into the configuration, unless somebody has changed that since it was read: then it fails
// with a conflict. The configuration must have been read before the bundle was; see SelfSigned.Reconcile.
func publish(ctx context.Context, c client.Client, config *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) error {
	before := config.DeepCopy()
	for i := range config.Webhooks {
		config.Webhooks[i].ClientConfig.CABundle = bundle
	}
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := c.Patch(ctx, config, patch); err != nil {
		return fmt.Errorf("publish the CA bundle in ValidatingWebhookConfiguration %s: %w", config.Name, err)
	}
	return nil
}
