package probeconfig

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/actuate"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/policy"
	"github.com/resourcestack/autohealer/internal/probing"
)

const (
	// pastDeadline lets a deadline lie behind us when it is looked at.
	pastDeadline = time.Millisecond
	// secretKey is the key of a Secret that holds the kubeconfig.
	secretKey = "kubeconfig"
	// secretsTimeout bounds how long they are read: what is scaled down is given back without them.
	secretsTimeout = 10 * time.Second
)

// TargetReconciler keeps a target's probes going and scales its dependents.
type TargetReconciler struct {
	Observer *Observer
	Prober   *probing.Prober
	Reader   *actuate.ScaleReader
	Scales   *actuate.Scales
	// Protection is asked before anything is scaled down; nil protects nothing.
	Protection Protection
	// Live reads from the API server, past the cache.
	Live   client.Reader
	Errors *policy.ErrorTracker
	Report *Reporter
}

// Reconcile reconciles one target.
func (r *TargetReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Observer.Facts.Timings.TargetTimeout())
	defer cancel()
	key := request.NamespacedName
	target, ok := r.Observer.targets.get(key)
	if !ok {
		r.Prober.Remove(key)
		r.Errors.Clear(key.String())
		return reconcile.Result{}, nil
	}
	nsState, exists := r.Observer.namespaceState(key.Namespace)
	if !exists && !r.Observer.synced.Load() {
		return reconcile.Result{RequeueAfter: policy.Delay}, nil
	}
	if !exists || nsState.terminating {
		r.endTarget(key)
		return reconcile.Result{}, nil
	}
	perm := r.Observer.permission(&target)
	secretsDue, credentialsErr := r.credentials(ctx, &target, perm, nsState)
	r.Observer.updateCounted(&target, nsState)
	scalingDue, scaleErr := r.scale(ctx, &target, perm, nsState)
	if r.Observer.permission(&target) != perm { // it depends on what was found
		r.Observer.requestTarget(key)
	}
	return r.requeueAt(secretsDue, scalingDue), errors.Join(credentialsErr, scaleErr) // what is refused of one dependent is no reason to leave others late
}

// apply gives the target the event that this pass led to. A target that was removed meanwhile is changed in this pass alone.
func (r *TargetReconciler) apply(target *probe.Target, e probe.Event) {
	if now, _, ok := r.Observer.apply(keyOf(target), e); ok {
		*target = now
	} else {
		*target, _ = target.Next(e)
	}
}

// updateCounted sets in the fleet whether a target counts for others, and whether it should be healthy.
func (o *Observer) updateCounted(target *probe.Target, nsState namespaceState) {
	untried := target.Credentials.Usable() && !target.KubeconfigProven()
	o.fleet().SetExempt(target.Key(), target.Config.Observe || target.Deselected || untried || nsState.hibernated)
	if acts, known := o.countsForFleet(target); known && o.fleet().SetActive(target.Key(), acts, o.Facts.Clock.Now()) {
		o.requestConfigs() // its breaker holds them all
	}
}

// endTarget drops a target whose namespace is gone or being deleted, and with it everything that we scaled there. One that came back
// just then is looked at soon.
func (r *TargetReconciler) endTarget(key probing.Key) {
	r.Observer.assigning.Lock()
	defer r.Observer.assigning.Unlock()
	if r.Observer.namespaceActive(key.Namespace) {
		return
	}
	r.Prober.Remove(key)
	r.Errors.Clear(key.String())
	target, _, _ := r.Observer.apply(key, probe.NamespaceGone{Since: r.now()})
	if _, exists := r.Observer.namespaceState(key.Namespace); !exists && target.Deselected {
		r.Observer.targets.forget(key)
	}
}

func (r *TargetReconciler) now() time.Time { return r.Observer.Facts.Clock.Now() }

// requeueAt looks again at the earlier of two times; a zero one is never.
func (r *TargetReconciler) requeueAt(a, b time.Time) reconcile.Result {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		a = b
	}
	if a.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(0, a.Sub(r.now())) + pastDeadline}
}

// credentials sets the Prober's target, and says when to read its Secrets again.
func (r *TargetReconciler) credentials(ctx context.Context, target *probe.Target, perm permission, nsState namespaceState) (again time.Time, err error) {
	switch {
	case perm.probes == stopProbes || nsState.hibernated:
		r.Prober.Remove(keyOf(target))
		r.apply(target, probe.ProbesStopped{Since: r.now()})
		return time.Time{}, nil
	case perm.probes == keepProbes:
		return time.Time{}, nil
	}
	if due := target.Credentials.NextRead(target.Config); r.now().Before(due) {
		return due, nil
	}
	if _, err = r.readCredentials(ctx, target); err != nil {
		return time.Time{}, err // whatever runs goes on with what it has
	}
	return target.Credentials.NextRead(target.Config), nil
}

// readCredentials reads a target's Secrets and has its probes run with what they hold. Again says whether they changed.
func (r *TargetReconciler) readCredentials(ctx context.Context, target *probe.Target) (again bool, err error) {
	read := probe.Credentials{Config: target.Config, ReadAt: r.now()}
	internal, external, broken, err := secrets(ctx, r.Live, target.Config, target.Namespace)
	if err != nil {
		return false, err
	}
	if broken.Class == "" {
		read.Internal, read.External = probe.VersionOf(internal), probe.VersionOf(external)
		again = read.Internal != target.Credentials.Internal || read.External != target.Credentials.External
		if again || target.Credentials.Config != target.Config {
			broken = r.setProber(target, internal, external, again)
		}
	}
	if broken.Class != "" {
		r.Prober.Remove(keyOf(target))
		read.Internal, read.External, read.Unusable, again = probe.Version{}, probe.Version{}, broken, true
	}
	// Runs that are going on by now may have begun with other ones.
	r.apply(target, probe.CredentialsRead{Credentials: read, Since: r.now(), ProvenMark: r.Observer.provenMark(target)})
	return again, nil
}

// provenMark is the kubeconfig of a target that had worked, by the config's status.
func (o *Observer) provenMark(target *probe.Target) string {
	j, _ := o.policies.Get(target.Config.Key())
	if j.Object == nil {
		return ""
	}
	return provenKubeconfig(j.Object.Status, target.Namespace).Mark
}

func provenKubeconfig(status v1alpha1.ProbeConfigStatus, namespace string) (proven v1alpha1.ProvenKubeconfig) {
	if i := slices.IndexFunc(status.ProvenKubeconfigs, func(p v1alpha1.ProvenKubeconfig) bool { return p.Namespace == namespace }); i >= 0 {
		return status.ProvenKubeconfigs[i]
	}
	return proven
}

// setProber gives the Prober what it probes with, or says why it is never used. New credentials are tried at once, to learn what they lead to.
func (r *TargetReconciler) setProber(target *probe.Target, internal, external []byte, again bool) (broken probe.Outcome) {
	first := target.Config.FirstRun(rand.Float64(), r.now())
	if again && target.Credentials.Usable() {
		first = r.now()
	}
	spec := probing.Target{Internal: internal, External: external, Timeout: target.Config.Timeout, NodeLeases: target.Config.Leases}
	if err := r.Prober.Set(keyOf(target), spec, first); err != nil {
		broken = probing.OutcomeOf(err)
		broken.Detail = fmt.Sprintf("in Secret %s/%s or %s: %s", target.Namespace, target.Config.InternalSecret, target.Config.ExternalSecret, broken.Detail)
	}
	return broken
}

// secrets reads a target's two kubeconfigs from the API server, or finds them broken. They are never in a cache: only the names that
// configs refer to are read, and Autohealer may not list them. The error is that the API server didn't answer.
func secrets(ctx context.Context, live client.Reader, c *probe.Config, namespace string) (internal, external []byte, broken probe.Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, secretsTimeout)
	defer cancel()
	var otherBroken probe.Outcome
	var otherErr error
	var reading sync.WaitGroup // at once: before a scaling down it is waited for
	reading.Go(func() { internal, broken, err = secret(ctx, live, namespace, c.InternalSecret) })
	reading.Go(func() { external, otherBroken, otherErr = secret(ctx, live, namespace, c.ExternalSecret) })
	reading.Wait()
	if broken.Class == "" && err == nil {
		broken, err = otherBroken, otherErr
	}
	return internal, external, broken, err
}

func secret(ctx context.Context, live client.Reader, namespace, name string) (kubeconfig []byte, broken probe.Outcome, err error) {
	var stored corev1.Secret
	err = live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &stored)
	kubeconfig = stored.Data[secretKey]
	switch {
	case apierrors.IsNotFound(err):
		broken = probe.Outcome{Class: probe.SecretMissing, Detail: fmt.Sprintf("there is no Secret %s/%s", namespace, name)}
	case apierrors.IsForbidden(err):
		broken = probe.Outcome{Class: probe.SecretForbidden, Detail: fmt.Sprintf("Autohealer's account may not get Secret %s/%s; %s", namespace, name, probe.HintTargetRole)}
	case err != nil:
		return nil, broken, fmt.Errorf("read Secret %s/%s: %w", namespace, name, err)
	case len(kubeconfig) == 0:
		broken = probe.Outcome{Class: probe.SecretMissing, Detail: fmt.Sprintf("Secret %s/%s has no key %s", namespace, name, secretKey)}
	}
	return kubeconfig, broken, nil
}
