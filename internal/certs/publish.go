package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// bundleKey of the Secret that the cainjector copies into the configuration has the bundle.
const bundleKey = cmmeta.TLSCAKey

// publish brings the record's CAs into the configuration, if there is one, or to the cainjector, and notes when that has been achieved.
func (k *keeper) publish(ctx context.Context, config *admissionregistrationv1.ValidatingWebhookConfiguration, handed *corev1.Secret, data map[string][]byte, c decisionInput) error {
	if config == nil {
		return nil
	}
	text, count, err := bundle(data)
	if err != nil || count == 0 { // an empty record is no reason to take away what somebody published
		return err
	}
	before := k.late
	if k.late = k.isLate(config, certificates(data, []string{k.section.caCert}), c); k.late && !before {
		log.FromContext(ctx).Info("Not ready before API servers know the CA: other CAs are trusted, so others may be serving", "settle", k.options.Settle.String())
	}
	if err := k.spread(ctx, config, handed, text, count); err != nil {
		return err
	}
	if !k.late && k.serving.Load() != nil && published(config, text) {
		k.everPublished.Store(true)
	}
	return nil
}

// spread writes the bundle where it belongs, unless it is there: at the resourceVersion that was read before the record was (see keep).
func (k *keeper) spread(ctx context.Context, config *admissionregistrationv1.ValidatingWebhookConfiguration, handed *corev1.Secret, text []byte, count int) error {
	switch {
	case k.injector && !bytes.Equal(handed.Data[bundleKey], text):
		handed.Labels = labels
		handed.Annotations = map[string]string{cmv1.AllowsInjectionFromSecretAnnotation: "true"}
		handed.Data = map[string][]byte{bundleKey: text}
		if err := k.store(ctx, handed); err != nil {
			return err
		}
		log.FromContext(ctx).Info("Wrote the CA bundle for the cainjector", "authorities", count)
	case !k.injector && !published(config, text):
		if err := patchBundle(ctx, k.client, config, text); err != nil {
			return err
		}
		log.FromContext(ctx).Info("Published the CA bundle", "authorities", count)
	}
	return nil
}

// isLate says whether API servers may not know the CA of what is served yet while they know others. A replica that was
// ready once isn't late any more, and settled CAs are known.
func (k *keeper) isLate(config *admissionregistrationv1.ValidatingWebhookConfiguration, own []*x509.Certificate, c decisionInput) bool {
	if k.everPublished.Load() || c.settled {
		return false
	}
	return k.late || c.others && (!trusts(config, own) || justWritten(config, c.now, k.options.Settle))
}

// settled says whether API servers know the record's CAs.
func (k *keeper) settled(config *admissionregistrationv1.ValidatingWebhookConfiguration, data map[string][]byte, now time.Time) (bool, error) {
	if config == nil {
		return false, nil
	}
	text, _, err := bundle(data)
	return err == nil && published(config, text) && now.Sub(k.seenAt) >= k.options.Settle, err
}

// untilSettled is how long it takes at least until what is published now is settled.
func (k *keeper) untilSettled(now time.Time) time.Duration {
	return max(k.options.Settle-now.Sub(k.seenAt), k.options.Settle/10)
}

// trusts says whether every webhook of the configuration trusts all of the CAs.
func trusts(config *admissionregistrationv1.ValidatingWebhookConfiguration, authorities []*x509.Certificate) bool {
	return everyBundle(config, func(text []byte) bool {
		trusted, err := cert.ParseCertsPEM(text)
		return err == nil && containsAll(trusted, authorities)
	})
}

// everyBundle says whether this holds for the bundle of every webhook of the configuration, of which there is one.
func everyBundle(config *admissionregistrationv1.ValidatingWebhookConfiguration, holds func(text []byte) bool) bool {
	return len(config.Webhooks) > 0 && !slices.ContainsFunc(config.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
		return !holds(w.ClientConfig.CABundle)
	})
}

// justWritten says whether somebody has changed the configuration within settle: another replica may just have published
// what this one finds published.
func justWritten(config *admissionregistrationv1.ValidatingWebhookConfiguration, now time.Time, settle time.Duration) bool {
	return slices.ContainsFunc(config.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Time != nil && now.Sub(f.Time.Time) < settle
	})
}

// published says whether every webhook of the configuration trusts exactly this bundle.
func published(config *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) bool {
	return everyBundle(config, func(text []byte) bool { return bytes.Equal(text, bundle) })
}

// patchBundle writes the bundle into the configuration, unless somebody has changed that since it was read: then it fails
// with a conflict. The configuration must have been read before the record was; see keeper.keep.
func patchBundle(ctx context.Context, c client.Client, config *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) error {
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
