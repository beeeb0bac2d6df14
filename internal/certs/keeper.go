package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Options of SelfSigned and CertManager. Zero durations mean the defaults.
type Options struct {
	// Namespace and SecretName of the record: the Secret with what all replicas serve and the CAs to trust.
	Namespace, SecretName string
	// WebhookConfiguration is the name of the ValidatingWebhookConfiguration whose caBundle is kept.
	WebhookConfiguration string
	// Hosts are the DNS names and IP addresses under which API servers call the webhook.
	Hosts []string
	// CALife is how long a CA is valid; a year by default. LeafLife likewise for serving certificates; 90 days.
	CALife, LeafLife time.Duration
	// Settle is how long a new CA must have been published, undisturbed, before anything is served that it signed. It must
	// be longer than API servers take to notice; 2 minutes by default.
	Settle time.Duration
	// Ours gives an error unless the configuration is this installation's to write. Default: it is.
	Ours func(context.Context) error
	// Clock is for tests.
	Clock clock.PassiveClock
}

func (o Options) withDefaults() Options {
	o.CALife, o.LeafLife = cmp.Or(o.CALife, 365*24*time.Hour), cmp.Or(o.LeafLife, 90*24*time.Hour)
	o.Settle = cmp.Or(o.Settle, 2*time.Minute)
	if o.Ours == nil {
		o.Ours = func(context.Context) error { return nil }
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

// bundleName is that of the Secret with the bundle for the cainjector.
func (o Options) bundleName() string { return o.SecretName + "-bundle" }

// askAgain is when a provider asks again whether the configuration is its own to write.
const askAgain = 2 * time.Second

// keeper keeps the record and publishes its CAs in the webhook's configuration, for the providers that embed it. Every
// replica runs one, without a leader: writes are guarded by resourceVersion, so one wins and the others follow.
type keeper struct {
	options Options
	section section
	// injector: cert-manager's cainjector copies the bundle from a Secret into the configuration, so that the manager needn't write there.
	injector bool

	client client.Client
	// reader reads from the API server: what is published must not be decided on a cache that lags.
	reader client.Reader

	serving       atomic.Pointer[tls.Certificate]
	everPublished atomic.Bool
	// problem is what keeps the provider from getting a certificate; nil when nothing does.
	problem atomic.Pointer[error]

	// seen is the configuration's resourceVersion, and seenAt when this process first saw it. late says that this process
	// has published the CA of what it serves beside CAs that were trusted already: API servers must learn of it before they
	// may call this replica instead of one that they trust. Reconcile, which never runs twice at once, owns them.
	seen   string
	seenAt time.Time
	late   bool
}

// decisionInput is what a provider decides on.
type decisionInput struct {
	now time.Time
	// settled says that the CAs in the record have been published long enough for every API server to know them.
	settled bool
	// others says that the record has CAs beside the provider's: replicas that serve something else may be running.
	others bool
}

// TLSConfig lets a server serve the current certificate; for the webhook server's TLSOpts.
func (k *keeper) TLSConfig(c *tls.Config) {
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if serving := k.serving.Load(); serving != nil {
			return serving, nil
		}
		return nil, errNothingServed
	}
}

// Ready is a readiness check: a valid certificate is served and its CA has been published. Losing the webhook's
// configuration later doesn't make it unready: that is mended as soon as there is one again, and then it must be served.
func (k *keeper) Ready(*http.Request) error {
	serving, problem := k.serving.Load(), k.problem.Load()
	switch {
	case serving == nil && problem != nil:
		return fmt.Errorf("%w: %w", errNothingServed, *problem)
	case serving == nil:
		return errNothingServed
	case expired(serving.Leaf, k.options.Clock.Now()):
		return fmt.Errorf("the serving certificate expired at %s", serving.Leaf.NotAfter.Format(time.RFC3339))
	case !k.everPublished.Load() && k.injector:
		return fmt.Errorf("the CA is not published in ValidatingWebhookConfiguration %s yet: cert-manager's cainjector must run, and that must have the annotation %s: %s/%s",
			k.options.WebhookConfiguration, cmv1.WantInjectFromSecretAnnotation, k.options.Namespace, k.options.bundleName())
	case !k.everPublished.Load():
		return fmt.Errorf("the CA is not published in ValidatingWebhookConfiguration %s yet", k.options.WebhookConfiguration)
	}
	return nil
}

// keep takes the step that is due towards what the provider offers to serve, nil for nothing, serves what came of it and publishes
// the record's CAs.
//
// What is published is read before the record and written at the resourceVersion read: had another replica published a newer
// record in between, that conflicts. So a replica that lags never takes back a CA.
func (k *keeper) keep(ctx context.Context, offered func(is state, c decisionInput) (*offer, error)) (reconcile.Result, error) {
	now := k.options.Clock.Now()
	config, err := k.readConfiguration(ctx, now)
	if err != nil {
		return reconcile.Result{}, err
	}
	var handed *corev1.Secret
	if k.injector {
		if handed, err = k.readSecret(ctx, k.options.bundleName()); err != nil {
			return reconcile.Result{}, err
		}
	}
	secret, err := k.readSecret(ctx, k.options.SecretName)
	if err != nil {
		return reconcile.Result{}, err
	}
	c := decisionInput{now: now, others: len(k.section.others(secret.Data)) > 0}
	if c.settled, err = k.settled(config, secret.Data, now); err != nil {
		return reconcile.Result{}, err
	}
	next, step, waits, err := k.advance(secret.Data, c, offered)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("rotate the serving certificate: %w", err)
	}
	if err := k.write(ctx, secret, next, step, now); err != nil {
		return reconcile.Result{}, err
	}
	k.serve(next.leaf)
	if err := k.options.Ours(ctx); err != nil { // reported by whoever else asks
		return reconcile.Result{RequeueAfter: askAgain}, nil //nolint:nilerr // it is no failure
	}
	if err := k.publish(ctx, config, handed, secret.Data, c); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: k.requeueAfter(waits, now)}, nil
}

// advance takes the one step that is due, and says which; "" when none is. Waits says that something is served once it has settled. What
// can't be read in the section is as nothing.
func (k *keeper) advance(data map[string][]byte, c decisionInput, offered func(is state, c decisionInput) (*offer, error)) (next state, step string, waits bool, err error) {
	current, unreadable := k.section.decode(data)
	current, dropped := current.withoutExpired(c.now)
	candidate, err := offered(current, c)
	if err != nil {
		return state{}, "", false, err
	}
	next, step = current.advance(candidate, c, k.options.Settle)
	switch {
	case unreadable != nil && step != "":
		step = fmt.Sprintf("the Secret was unusable (%v): %s", unreadable, step)
	case dropped && step == "":
		step = "dropped expired CAs"
	}
	return next, step, next.next != nil || candidate != nil && !next.serves(candidate.leaf), nil
}

// readConfiguration gives nil when there is none, and notes since when it has been as it is.
func (k *keeper) readConfiguration(ctx context.Context, now time.Time) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := k.reader.Get(ctx, client.ObjectKey{Name: k.options.WebhookConfiguration}, config)
	if apierrors.IsNotFound(err) {
		k.seen = ""
		return nil, nil //nolint:nilnil // its absence is a state like any other here
	}
	if err != nil {
		return nil, fmt.Errorf("read ValidatingWebhookConfiguration %s: %w", k.options.WebhookConfiguration, err)
	}
	if k.seen != config.ResourceVersion {
		k.seen, k.seenAt = config.ResourceVersion, now
	}
	return config, nil
}

// readSecret gives an empty Secret without a resourceVersion when there is none.
func (k *keeper) readSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := k.reader.Get(ctx, client.ObjectKey{Namespace: k.options.Namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.options.Namespace, Name: name}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read Secret %s/%s: %w", k.options.Namespace, name, err)
	}
	return secret, nil
}

// store writes a Secret that readSecret gave.
func (k *keeper) store(ctx context.Context, secret *corev1.Secret) error {
	write := func() error { return k.client.Update(ctx, secret) }
	if secret.ResourceVersion == "" {
		write = func() error { return k.client.Create(ctx, secret) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// write puts what the provider did into the record, at the resourceVersion it was read at.
func (k *keeper) write(ctx context.Context, secret *corev1.Secret, next state, step string, now time.Time) error {
	data, dropped := k.section.withoutDeadSections(secret.Data, now)
	if step == "" && !dropped {
		return nil
	}
	if step != "" {
		content, err := k.section.encode(next)
		if err != nil {
			return err
		}
		data = k.section.replace(data, content)
	}
	secret.Data = typed(secret, maps.Clone(data))
	if err := k.store(ctx, secret); err != nil {
		return err
	}
	logger := log.FromContext(ctx)
	if dropped {
		logger.Info("Dropped what another provider left behind: its CAs have expired")
	}
	if next.leaf != nil {
		logger = logger.WithValues("certificateExpires", next.leaf.notAfter())
	}
	if step != "" {
		logger.Info("Changed the serving certificate or its CAs", "step", step)
	}
	return nil
}

func (k *keeper) serve(leaf *pair) {
	if leaf == nil {
		return
	}
	k.serving.Store(&leaf.tls)
	expiry.Set(float64(leaf.notAfter().Unix()))
}

// fail notes what keeps the provider from getting a certificate, and logs it unless that is known; nil takes it back.
func (k *keeper) fail(ctx context.Context, problem error) {
	if problem == nil {
		k.problem.Store(nil)
		return
	}
	known := k.problem.Swap(&problem)
	if known == nil || (*known).Error() != problem.Error() {
		log.FromContext(ctx).Error(problem, "Can't get a new serving certificate, retrying", "served", k.serving.Load() != nil)
	}
}

// requeueAfter comes well before anything is due: changes by others arrive as events, and what is due only by time is due
// for a third of its life.
func (k *keeper) requeueAfter(waits bool, now time.Time) time.Duration {
	after := min(k.options.LeafLife/10, time.Hour)
	if waits || k.late {
		after = min(after, k.untilSettled(now))
	}
	return after
}
