package probeconfig

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// sight is a target as status tells of it.
type sight struct {
	probe.Target
	hibernated bool
}

func (s *sight) internalUnhealthy() bool { return s.State.Internal.Unhealthy(s.Config.Thresholds) }
func (s *sight) externalUnhealthy() bool { return s.State.OuterUnhealthy(s.Config) }

// aspect is what one probe tells of a target.
type aspect struct {
	name               string
	counts             *probe.Counts
	healthy, unhealthy bool
	// failure is the latest that counted, unhealthySince when there were too many, and undetermined since when there is no clear answer.
	failure                      probe.Class
	unhealthySince, undetermined time.Time
}

func (s *sight) inside() aspect {
	in := &s.State.Internal
	return aspect{"internal", in, in.Healthy(s.Config.Thresholds), s.internalUnhealthy(), in.LastFailure, s.State.InternalUnhealthySince, s.State.InternalUndetermined(s.Config)}
}

func (s *sight) outside() aspect {
	return aspect{"external", &s.State.External, s.State.OuterHealthy(s.Config), s.externalUnhealthy(), s.lastOuterFailure(), s.State.UnhealthySince, s.State.ExternalUndetermined(s.Config)}
}

// first gives how many targets are so, and the first of them.
func first(sights []*sight, is func(*sight) bool) (n int, first *sight) {
	for _, s := range sights {
		if is(s) {
			n, first = n+1, cmp.Or(first, s)
		}
	}
	return n, first
}

// undetermined: it is probed, and nobody knows how it is.
func (s *sight) undetermined() bool {
	return s.Supply.Probes() && !s.hibernated && !s.State.ExternalUndetermined(s.Config).IsZero()
}

// untried: its external probe fails, and nobody knows whether it ever could succeed.
func (s *sight) untried() bool {
	return s.Supply.Probes() && !s.hibernated && !s.Works() && s.externalUnhealthy()
}

func (s *sight) saysUntried() string {
	return fmt.Sprintf("The external probe fails, and hasn't succeeded since Secret %s/%s was written: %s. Nothing is scaled down before it has. Look at the kubeconfig's server and certificate authority.",
		s.Namespace, s.Config.ExternalSecret, s.lastOuterFailure())
}

// taken are its objects that are scaled down. One that runs isn't, whatever is recorded on it: someone scaled it up, or it gets
// its replicas just now.
func (s *sight) taken() []v1alpha1.ScaledDependent {
	if !s.Known() {
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

// unclear says whether it isn't known what is recorded on an object, or the config doesn't name it any more and it may not have back
// what was taken.
func (s *sight) unclear(of v1alpha1.DependentRef) bool {
	ref := probe.Ref(of)
	return !s.Known() || s.Objects[ref].Unseen || slices.Contains(s.Former, ref)
}

// worst are the targets that aren't healthy, the first by namespace.
func worst(sights []*sight) []v1alpha1.TargetState {
	var all []v1alpha1.TargetState
	for _, s := range sights {
		if len(all) == probe.SampleSize {
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
func (s *sight) worst() v1alpha1.TargetState {
	in, out := s.inside(), s.outside()
	switch {
	case s.Supply.Unusable.Class != "":
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonSecretUnusable, Message: sentence(s.Supply.Unusable), Since: seconds(s.Supply.UnusableSince)}
	case s.undetermined():
		unclear := out
		if !in.undetermined.IsZero() {
			unclear = in
		}
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonUndetermined, Message: fmt.Sprintf("The %s probe gets no clear answer: %s.", unclear.name, unclear.counts.LastError), Since: seconds(unclear.undetermined)}
	case s.untried():
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonKubeconfigUntried, Message: s.saysUntried(), Since: seconds(out.unhealthySince)}
	}
	for _, a := range []aspect{out, in} {
		if a.unhealthy {
			return v1alpha1.TargetState{Reason: v1alpha1.ReasonProbeFails, Message: fmt.Sprintf("The %s probe fails: %s.", a.name, a.failure), Since: seconds(a.unhealthySince)}
		}
	}
	if taken := s.taken(); len(taken) > 0 {
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonScaledDown, Message: s.waitsFor(), Since: taken[0].Since}
	}
	return v1alpha1.TargetState{}
}

// waitsFor is what must come before a target that isn't known to fail is scaled up.
func (s *sight) waitsFor() string {
	switch {
	case s.hibernated:
		return "Its namespace is hibernated."
	case !s.Supply.Probes():
		return "It isn't probed, and nobody knows whether it is healthy."
	case s.State.HealthySince.IsZero():
		return "It isn't known to be healthy again."
	}
	return "It is healthy, and scaled up when it was for a minute and its turn comes."
}

// lastOuterFailure is why the outer side is unhealthy.
func (s *sight) lastOuterFailure() probe.Class {
	if th := s.Config.Thresholds; s.State.Leases.Unhealthy(th) && !s.State.External.Unhealthy(th) {
		return s.State.Leases.LastFailure
	}
	return s.State.External.LastFailure
}
