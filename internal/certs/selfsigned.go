package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Options of SelfSigned. Zero durations mean the defaults.
type Options struct {
	// Namespace and SecretName of the Secret that holds CA and serving certificate for all replicas.
	Namespace, SecretName string
	// WebhookConfiguration is the name of the ValidatingWebhookConfiguration whose caBundle is kept.
	WebhookConfiguration string
	// Hosts are the DNS names and IP addresses under which API servers call the webhook.
	Hosts []string
	// CALife is how long a CA is valid; a year by default. LeafLife likewise for serving certificates; 90 days.
	CALife, LeafLife time.Duration
	// Settle is how long a new CA must have been published, undisturbed, before it signs. It must be longer than API
	// servers take to notice; 2 minutes by default.
	Settle time.Duration
	// Clock is for tests.
	Clock clock.PassiveClock
}

// SelfSigned keeps a CA and a serving certificate in a Secret, publishes the CA in the webhook's configuration, and
// rotates both. Every replica runs it, without a leader: writes are guarded by resourceVersion, so one wins and the
// others follow.
//
// Deleting the Secret renews everything at once. It is meant for a leaked key, and so doesn't keep the old CA trusted:
// admission may be refused for the seconds until every replica has the new certificate.
type SelfSigned struct {
	options  Options
	schedule schedule

	client client.Client
	// reader reads from the API server: what is published must not be decided on a cache that lags.
	reader client.Reader

	serving       atomic.Pointer[tls.Certificate]
	everPublished atomic.Bool

	// seen is the configuration's resourceVersion, and seenAt when this process first saw it. Reconcile, which never
	// runs twice at once, owns both.
	seen   string
	seenAt time.Time
}

// NewSelfSigned gives a provider that does nothing before SetupWithManager.
func NewSelfSigned(o Options) *SelfSigned {
	if o.CALife == 0 {
		o.CALife = 365 * 24 * time.Hour
	}
	if o.LeafLife == 0 {
		o.LeafLife = 90 * 24 * time.Hour
	}
	if o.Settle == 0 {
		o.Settle = 2 * time.Minute
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &SelfSigned{options: o, schedule: schedule{caLife: o.CALife, leafLife: o.LeafLife, hosts: o.Hosts}}
}

// TLSConfig lets a server serve the current certificate; for the webhook server's TLSOpts.
func (s *SelfSigned) TLSConfig(c *tls.Config) {
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if serving := s.serving.Load(); serving != nil {
			return serving, nil
		}
		return nil, errNothingServed
	}
}

// Ready is a readiness check: a valid certificate is served and its CA has been published. Losing the webhook's
// configuration later doesn't make it unready: that is mended as soon as there is one again, and then it must be served.
func (s *SelfSigned) Ready(*http.Request) error {
	serving := s.serving.Load()
	switch {
	case serving == nil:
		return errNothingServed
	case !s.options.Clock.Now().Before(serving.Leaf.NotAfter):
		return fmt.Errorf("the serving certificate expired at %s", serving.Leaf.NotAfter.Format(time.RFC3339))
	case !s.everPublished.Load():
		return fmt.Errorf("the CA is not published in ValidatingWebhookConfiguration %s yet", s.options.WebhookConfiguration)
	}
	return nil
}

// Reconcile takes the rotation step that is due, serves what the Secret holds and publishes its CAs.
//
// The configuration is read before the Secret and patched at the resourceVersion read: had another replica published a
// newer Secret in between, the patch conflicts. So a replica that lags never takes back a CA.
func (s *SelfSigned) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := s.options.Clock.Now()
	config, err := s.readConfiguration(ctx, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	secret, err := s.readSecret(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	current, bundle, err := s.rotate(ctx, secret, config, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	s.serve(current.leaf)
	if config == nil {
		return s.lookAgain(current), nil
	}
	if !published(config, bundle) {
		if err := publish(ctx, s.client, config, bundle); err != nil {
			return reconcile.Result{}, err
		}
		log.FromContext(ctx).Info("Published the CA bundle", "authorities", len(current.authorities()))
	}
	s.everPublished.Store(true)
	return s.lookAgain(current), nil
}

// readConfiguration gives nil when there is none, and notes since when it has been as it is.
func (s *SelfSigned) readConfiguration(ctx context.Context, now time.Time) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := s.reader.Get(ctx, client.ObjectKey{Name: s.options.WebhookConfiguration}, config)
	if apierrors.IsNotFound(err) {
		s.seen = ""
		return nil, nil //nolint:nilnil // its absence is a state like any other here
	}
	if err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", s.options.WebhookConfiguration, err)
	}
	if s.seen != config.ResourceVersion {
		s.seen, s.seenAt = config.ResourceVersion, now
	}
	return config, nil
}

// readSecret gives an empty Secret without a resourceVersion when there is none.
func (s *SelfSigned) readSecret(ctx context.Context) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.reader.Get(ctx, client.ObjectKey{Namespace: s.options.Namespace, Name: s.options.SecretName}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.options.Namespace, Name: s.options.SecretName},
			Type:       corev1.SecretTypeTLS,
		}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", s.options.Namespace, s.options.SecretName, err)
	}
	return secret, nil
}

// rotate takes the step that is due and gives what the Secret then holds, with the bundle to publish.
func (s *SelfSigned) rotate(ctx context.Context, secret *corev1.Secret,
	config *admissionregistrationv1.ValidatingWebhookConfiguration, now time.Time,
) (state, []byte, error) {
	current, step, err := s.nextState(secret, config, now)
	if err != nil {
		return state{}, nil, fmt.Errorf("rotate the serving certificate: %w", err)
	}
	if step != "" {
		if err := s.write(ctx, secret, current); err != nil {
			return state{}, nil, err
		}
		log.FromContext(ctx).Info("Rotated", "step", step, "certificateExpires", current.leaf.cert.NotAfter)
	}
	bundle, err := current.bundle()
	return current, bundle, err
}

func (s *SelfSigned) nextState(secret *corev1.Secret, config *admissionregistrationv1.ValidatingWebhookConfiguration, now time.Time) (state, string, error) {
	if secret.ResourceVersion == "" {
		fresh, err := s.schedule.fresh(now)
		return fresh, "there was no Secret: made a CA and a serving certificate", err
	}
	current, err := decodeState(secret.Data)
	if err != nil {
		fresh, freshErr := s.schedule.fresh(now)
		return fresh, fmt.Sprintf("the Secret was unusable: started afresh (%v)", err), freshErr
	}
	bundle, err := current.bundle()
	if err != nil {
		return state{}, "", err
	}
	settled := config != nil && published(config, bundle) && now.Sub(s.seenAt) >= s.options.Settle
	return s.schedule.advance(current, now, settled)
}

// write creates the Secret, or updates it at the resourceVersion it was read at.
func (s *SelfSigned) write(ctx context.Context, secret *corev1.Secret, next state) error {
	data, err := next.encode()
	if err != nil {
		return err
	}
	secret.Data = replaceData(secret.Data, data)
	if secret.ResourceVersion == "" {
		err = s.client.Create(ctx, secret)
	} else {
		err = s.client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

func (s *SelfSigned) serve(leaf keyPair) {
	s.serving.Store(leaf.tlsCertificate())
	expiry.Set(float64(leaf.cert.NotAfter.Unix()))
}

// lookAgain comes well before anything is due: changes by others arrive as events, and what is due only by time is due
// for a third of its life.
func (s *SelfSigned) lookAgain(current state) reconcile.Result {
	after := min(s.options.LeafLife/10, time.Hour)
	if current.next != nil {
		after = min(after, s.options.Settle/2)
	}
	return reconcile.Result{RequeueAfter: after}
}
