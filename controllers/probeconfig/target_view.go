package probeconfig

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// targetView is a target as the status reports it.
type targetView struct {
	probe.Target
	hibernated bool
}

func (s *targetView) internalUnhealthy() bool { return s.State.Internal.Unhealthy(s.Config.Thresholds) }
func (s *targetView) externalUnhealthy() bool { return s.State.ExternalUnhealthy(s.Config) }

// probeSide is what one probe reports of a target.
type probeSide struct {
	name               string
	counts             *probe.Counts
	healthy, unhealthy bool
	// failure is the latest that counted, unhealthySince when there were too many, and undetermined since when there is no clear answer.
	failure                      probe.Class
	unhealthySince, undetermined time.Time
}

func (s *targetView) internalSide() probeSide {
	in := &s.State.Internal
	return probeSide{"internal", in, in.Healthy(s.Config.Thresholds), s.internalUnhealthy(), in.LastFailure, s.State.InternalUnhealthySince, s.State.InternalUndetermined(s.Config)}
}

func (s *targetView) externalSide() probeSide {
	return probeSide{"external", &s.State.External, s.State.ExternalHealthy(s.Config), s.externalUnhealthy(), s.lastExternalFailure(), s.State.UnhealthySince, s.State.ExternalUndetermined(s.Config)}
}

// first gives how many targets are so, and the first of them.
func first(targets []*targetView, is func(*targetView) bool) (n int, first *targetView) {
	for _, s := range targets {
		if is(s) {
			n, first = n+1, cmp.Or(first, s)
		}
	}
	return n, first
}

// undetermined: it is probed, and nobody knows how it is.
func (s *targetView) undetermined() bool {
	return s.Credentials.Usable() && !s.hibernated && !s.State.ExternalUndetermined(s.Config).IsZero()
}

// untried: its external probe fails, and nobody knows whether it ever could succeed.
func (s *targetView) untried() bool {
	return s.Credentials.Usable() && !s.hibernated && !s.KubeconfigProven() && s.externalUnhealthy()
}

func (s *targetView) untriedMessage() string {
	return fmt.Sprintf("The external probe fails, and hasn't succeeded since Secret %s/%s was written: %s. Nothing is scaled down before it has. Look at the kubeconfig's server and certificate authority.",
		s.Namespace, s.Config.ExternalSecret, s.lastExternalFailure())
}

// scaledDown are its objects that are scaled down. One that runs isn't, whatever is recorded on it: someone scaled it up, or it gets
// its replicas just now.
func (s *targetView) scaledDown() []v1alpha1.ScaledDependent {
	if !s.ObjectsKnown() {
		return nil
	}
	var all []v1alpha1.ScaledDependent
	for _, d := range s.Config.Dependents {
		o := s.Objects[d.Ref]
		if r := o.Record; r != nil && r.Of(s.Config) && o.Replicas == 0 {
			all = append(all, v1alpha1.ScaledDependent{
				Namespace: s.Namespace, Ref: v1alpha1.DependentRef(d.Ref), PreviousReplicas: r.Replicas, Since: r.Since,
			})
		}
	}
	return all
}

// recordUnknown says whether it isn't known what is recorded on an object, or the config doesn't name it any more and it may not have back
// what was taken.
func (s *targetView) recordUnknown(of v1alpha1.DependentRef) bool {
	ref := probe.Ref(of)
	return !s.ObjectsKnown() || s.Objects[ref].Unseen || slices.Contains(s.Removed, ref)
}

// worstTargets are the targets that aren't healthy, the first by namespace.
func worstTargets(targets []*targetView) []v1alpha1.TargetState {
	var all []v1alpha1.TargetState
	for _, s := range targets {
		if len(all) == sample.Size {
			break
		}
		if w := s.worst(); w.Reason != "" {
			w.Namespace = s.Namespace
			all = append(all, w)
		}
	}
	return all
}

// worst is what is wrong with a target; no reason when nothing is.
func (s *targetView) worst() v1alpha1.TargetState {
	in, out := s.internalSide(), s.externalSide()
	switch {
	case s.Credentials.Unusable.Class != "":
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonSecretUnusable, Message: sentence(s.Credentials.Unusable), Since: seconds(s.Credentials.UnusableSince)}
	case s.undetermined():
		unclear := out
		if !in.undetermined.IsZero() {
			unclear = in
		}
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonUndetermined, Message: fmt.Sprintf("The %s probe gets no clear answer: %s.", unclear.name, unclear.counts.LastError), Since: seconds(unclear.undetermined)}
	case s.untried():
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonKubeconfigUntried, Message: s.untriedMessage(), Since: seconds(out.unhealthySince)}
	}
	for _, a := range []probeSide{out, in} {
		if a.unhealthy {
			return v1alpha1.TargetState{Reason: v1alpha1.ReasonProbeFails, Message: fmt.Sprintf("The %s probe fails: %s.", a.name, a.failure), Since: seconds(a.unhealthySince)}
		}
	}
	if taken := s.scaledDown(); len(taken) > 0 {
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonScaledDown, Message: s.waitingFor(), Since: taken[0].Since}
	}
	return v1alpha1.TargetState{}
}

// waitingFor is what must come before a target that isn't known to fail is scaled up.
func (s *targetView) waitingFor() string {
	switch {
	case s.hibernated:
		return "The target's namespace is hibernated."
	case !s.Credentials.Usable():
		return "The target isn't probed, so whether it is healthy isn't known."
	case s.State.HealthySince.IsZero():
		return "The target isn't known to be healthy again."
	}
	return "The target is healthy. Its dependents are scaled up once it has been healthy for a minute and its turn comes."
}

// lastExternalFailure is why the outer side is unhealthy.
func (s *targetView) lastExternalFailure() probe.Class {
	if th := s.Config.Thresholds; s.State.Leases.Unhealthy(th) && !s.State.External.Unhealthy(th) {
		return s.State.Leases.LastFailure
	}
	return s.State.External.LastFailure
}
