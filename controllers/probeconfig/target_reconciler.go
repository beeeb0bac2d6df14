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
	// secretsTake bounds how long they are read: what is scaled down is given back without them.
	secretsTake = 10 * time.Second
)

// TargetReconciler keeps a target's probes going and scales its dependents.
type TargetReconciler struct {
	Observer *Observer
	Prober   *probing.Prober
	Reader   *actuate.ScaleReader
	Scales   *actuate.Scales
	// Vital is asked before anything is scaled down; nil: nobody is.
	Vital Vital
	// Live reads from the API server, past the cache.
	Live     client.Reader
	Troubles *policy.Troubles
	Report   *Reporter
}

// Reconcile looks at one target.
func (r *TargetReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Observer.Facts.Timings.TargetLook())
	defer cancel()
	key := request.NamespacedName
	is, ok := r.Observer.targets.get(key)
	if !ok {
		r.Prober.Remove(key)
		r.Troubles.Settled(key.String())
		return reconcile.Result{}, nil
	}
	place, exists := r.Observer.place(key.Namespace)
	if !exists && !r.Observer.synced.Load() {
		return reconcile.Result{RequeueAfter: policy.Delay}, nil
	}
	if !exists || place.ending {
		r.end(key)
		return reconcile.Result{}, nil
	}
	may := r.Observer.permission(&is)
	secretsDue, supplyErr := r.supply(ctx, &is, may, place)
	r.Observer.weigh(&is, place)
	scalingDue, scaleErr := r.scale(ctx, &is, may, place)
	if r.Observer.permission(&is) != may { // it depends on what was found
		r.Observer.requestTarget(key)
	}
	return r.at(secretsDue, scalingDue), errors.Join(supplyErr, scaleErr) // what is refused of one dependent is no reason to leave others late
}

// tell has the target learn what its pass came to. One that was dropped meanwhile goes on by itself.
func (r *TargetReconciler) tell(is *probe.Target, e probe.Event) {
	if now, _, ok := r.Observer.tell(keyOf(is), e); ok {
		*is = now
	} else {
		*is, _ = is.Next(e)
	}
}

// weigh tells the fleet whether a target counts for others, and whether it should be healthy.
func (o *Observer) weigh(is *probe.Target, place namespace) {
	untried := is.Supply.Probes() && !is.Works()
	o.fleet().Excuse(is.Key(), is.Config.Observe || is.Departed || untried || place.hibernated)
	if acts, known := o.acts(is); known && o.fleet().Acts(is.Key(), acts, o.Facts.Clock.Now()) {
		o.requestConfigs() // its breaker holds them all
	}
}

// end drops a target whose namespace is gone or being deleted, and with it everything that we scaled there. One that came back
// just then is looked at soon.
func (r *TargetReconciler) end(key probing.Key) {
	r.Observer.telling.Lock()
	defer r.Observer.telling.Unlock()
	if r.Observer.stands(key.Namespace) {
		return
	}
	r.Prober.Remove(key)
	r.Troubles.Settled(key.String())
	is, _, _ := r.Observer.tell(key, probe.Ended{Since: r.now()})
	if _, exists := r.Observer.place(key.Namespace); !exists && is.Departed {
		r.Observer.targets.forget(key)
	}
}

func (r *TargetReconciler) now() time.Time { return r.Observer.Facts.Clock.Now() }

// at looks again at the earlier of two times; a zero one is never.
func (r *TargetReconciler) at(a, b time.Time) reconcile.Result {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		a = b
	}
	if a.IsZero() {
		return reconcile.Result{}
	}
	return reconcile.Result{RequeueAfter: max(0, a.Sub(r.now())) + pastDeadline}
}

// supply keeps the Prober's idea of a target right, and says when to read its Secrets again.
func (r *TargetReconciler) supply(ctx context.Context, is *probe.Target, may permission, place namespace) (again time.Time, err error) {
	switch {
	case may.probes == stop || place.hibernated:
		r.Prober.Remove(keyOf(is))
		r.tell(is, probe.Halted{Since: r.now()})
		return time.Time{}, nil
	case may.probes == leave:
		return time.Time{}, nil
	}
	if due := is.Supply.Due(is.Config); r.now().Before(due) {
		return due, nil
	}
	if _, err = r.renew(ctx, is); err != nil {
		return time.Time{}, err // whatever runs goes on with what it has
	}
	return is.Supply.Due(is.Config), nil
}

// renew reads a target's Secrets and has its probes run with what they hold. Anew says that this is something else than before.
func (r *TargetReconciler) renew(ctx context.Context, is *probe.Target) (anew bool, err error) {
	read := probe.Supply{Config: is.Config, ReadAt: r.now()}
	internal, external, broken, err := secrets(ctx, r.Live, is.Config, is.Namespace)
	if err != nil {
		return false, err
	}
	if broken.Class == "" {
		read.Internal, read.External = probe.VersionOf(internal), probe.VersionOf(external)
		anew = read.Internal != is.Supply.Internal || read.External != is.Supply.External
		if anew || is.Supply.Config != is.Config {
			broken = r.use(is, internal, external, anew)
		}
	}
	if broken.Class != "" {
		r.Prober.Remove(keyOf(is))
		read.Internal, read.External, read.Unusable, anew = probe.Version{}, probe.Version{}, broken, true
	}
	// Runs that are going on by now may have begun with other ones.
	r.tell(is, probe.Supplied{Supply: read, Since: r.now(), Proven: r.Observer.proven(is)})
	return anew, nil
}

// proven is the kubeconfig of a target that had worked, as the config's status tells.
func (o *Observer) proven(is *probe.Target) string {
	j, _ := o.policies.Get(is.Config.Key())
	if j.Object == nil {
		return ""
	}
	return provenIn(j.Object.Status, is.Namespace).Mark
}

func provenIn(status v1alpha1.ProbeConfigStatus, namespace string) (proven v1alpha1.ProvenKubeconfig) {
	if i := slices.IndexFunc(status.ProvenKubeconfigs, func(p v1alpha1.ProvenKubeconfig) bool { return p.Namespace == namespace }); i >= 0 {
		return status.ProvenKubeconfigs[i]
	}
	return proven
}

// use gives the Prober what it probes with, or says why it is never used. New credentials are tried at once, to learn what they lead to.
func (r *TargetReconciler) use(is *probe.Target, internal, external []byte, anew bool) (broken probe.Outcome) {
	first := is.Config.FirstRun(rand.Float64(), r.now())
	if anew && is.Supply.Probes() {
		first = r.now()
	}
	target := probing.Target{Internal: internal, External: external, Timeout: is.Config.Timeout, NodeLeases: is.Config.Leases}
	if err := r.Prober.Set(keyOf(is), target, first); err != nil {
		broken = probing.Refused(err)
		broken.Detail = fmt.Sprintf("in Secret %s/%s or %s: %s", is.Namespace, is.Config.InternalSecret, is.Config.ExternalSecret, broken.Detail)
	}
	return broken
}

// secrets reads a target's two kubeconfigs from the API server, or finds them broken. They are never in a cache: only the names that
// configs refer to are read, and Autohealer may not list them. The error is that the API server didn't answer.
func secrets(ctx context.Context, live client.Reader, c *probe.Config, namespace string) (internal, external []byte, broken probe.Outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, secretsTake)
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
