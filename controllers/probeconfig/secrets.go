package probeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
	"github.com/resourcestack/autohealer/internal/probing"
)

const (
	// secretKey is the key of a Secret that holds the kubeconfig.
	secretKey = "kubeconfig"
	// A Secret is read again after a while, and sooner when it can't be used or the API server doesn't take its credentials.
	// Before anything is scaled down it is read in any case.
	secretsKept, brokenSecretsKept, doubtedSecretsKept = 10 * time.Minute, 15 * time.Second, 5 * time.Second
	// secretsTake bounds how long they are read: what is scaled down is given back without them.
	secretsTake = 10 * time.Second
)

// supply is what a target's probes run with.
type supply struct {
	// internal and external are the kubeconfigs' versions, of this config; config is nil while no probes run.
	internal, external probing.Version
	config             *probe.Config
	// readAt is when they were read; doubted: the API server didn't take the credentials since.
	readAt  time.Time
	doubted bool
}

// dueAt is when the Secrets are to be read again.
func (s supply) dueAt(usable bool) time.Time {
	switch {
	case s.readAt.IsZero():
		return time.Time{}
	case !usable:
		return s.readAt.Add(brokenSecretsKept)
	case s.doubted:
		return s.readAt.Add(doubtedSecretsKept)
	}
	return s.readAt.Add(secretsKept)
}

// secretError is a Secret that can't be used, in our own words; nothing of the Secret is in it.
type secretError struct{ outcome probe.Outcome }

func (e *secretError) Error() string { return e.outcome.Detail }

func unusable(class probe.Class, format string, args ...any) error {
	return &secretError{probe.Outcome{Class: class, Detail: fmt.Sprintf(format, args...)}}
}

// secrets reads a target's two Secrets from the API server. They are never in a cache: only the names that configs refer to
// are read, and Autohealer may not list them. The error is a secretError unless the API server didn't answer.
func secrets(ctx context.Context, live client.Reader, c *probe.Config, namespace string) (internal, external probing.Credentials, err error) {
	ctx, cancel := context.WithTimeout(ctx, secretsTake)
	defer cancel()
	var internalErr, externalErr error
	var reading sync.WaitGroup // at once: before a scaling down it is waited for
	reading.Go(func() { internal, internalErr = credentials(ctx, live, namespace, c.InternalSecret) })
	reading.Go(func() { external, externalErr = credentials(ctx, live, namespace, c.ExternalSecret) })
	reading.Wait()
	return internal, external, cmp.Or(internalErr, externalErr)
}

func credentials(ctx context.Context, live client.Reader, namespace, name string) (probing.Credentials, error) {
	var secret corev1.Secret
	err := live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &secret)
	switch {
	case apierrors.IsNotFound(err):
		return probing.Credentials{}, unusable(probe.SecretMissing, "there is no Secret %s/%s", namespace, name)
	case apierrors.IsForbidden(err):
		return probing.Credentials{}, unusable(probe.SecretForbidden, "Autohealer's account may not get Secret %s/%s; %s", namespace, name, probe.HintTargetRole)
	case err != nil:
		return probing.Credentials{}, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
	case len(secret.Data[secretKey]) == 0:
		return probing.Credentials{}, unusable(probe.SecretMissing, "Secret %s/%s has no key %s", namespace, name, secretKey)
	}
	return probing.Credentials{Kubeconfig: secret.Data[secretKey]}, nil
}

// refused tells of a kubeconfig that is never used.
func refused(c *probe.Config, namespace string, err error) error {
	var refusal kubeconfig.Refusal
	if !errors.As(err, &refusal) {
		return err
	}
	class := probe.KubeconfigInvalid
	switch {
	case refusal.Address():
		class = probe.AddressRefused
	case refusal.Unsafe():
		class = probe.KubeconfigUnsafe
	}
	return unusable(class, "in Secret %s/%s or %s: %s", namespace, c.InternalSecret, c.ExternalSecret, refusal.Error())
}
