package probeconfig

import (
	"fmt"
	"slices"
	"time"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// sight is a target as status tells of it.
type sight struct {
	namespace string
	config    *probe.Config
	state     probe.State
	// probed: its probes run. read: its objects are known.
	probed, read, hibernated bool
	unusable                 probe.Outcome
	unusableSince            time.Time
	objects                  []probe.Object
	former                   []probe.Dependent
	findings                 []probe.Finding
	held                     probe.Permit
}

func (t *target) sight(place namespace) sight {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := sight{
		namespace: t.key.Namespace, config: t.config, state: t.state, probed: t.secrets.config != nil, read: t.objectsOf == t.config,
		hibernated: place.hibernated, unusable: t.unusable, unusableSince: t.unusableSince, former: slices.Clone(t.former),
		findings: t.findings, held: t.held,
	}
	if s.read {
		s.objects = t.objects
	}
	return s
}

func (s *sight) internalUnhealthy() bool { return s.state.Internal.Unhealthy(s.config.Thresholds) }
func (s *sight) externalUnhealthy() bool { return s.state.OuterUnhealthy(s.config) }

// undetermined: it is probed, and nobody knows how it is.
func (s *sight) undetermined() bool {
	return s.probed && !s.hibernated && !s.state.ExternalUndetermined(s.config).IsZero()
}

// taken are its objects that are scaled down. One that runs isn't, whatever is recorded on it: someone scaled it up, or it gets
// its replicas just now.
func (s *sight) taken() []v1alpha1.ScaledDependent {
	var all []v1alpha1.ScaledDependent
	for i, o := range s.objects {
		if r := o.Record; r != nil && r.Of(s.config) && o.Replicas == 0 {
			ref := s.config.Dependents[i].Ref
			all = append(all, v1alpha1.ScaledDependent{
				Namespace: s.namespace, Ref: v1alpha1.DependentRef{APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name},
				PreviousReplicas: r.Replicas, Since: r.Since,
			})
		}
	}
	return all
}

// isUnseen says whether it isn't known what is recorded on an object that the config names.
func (s *sight) isUnseen(ref v1alpha1.DependentRef) bool {
	for i, o := range s.objects {
		if d := s.config.Dependents[i].Ref; o.Unseen && d.APIVersion == ref.APIVersion && d.Kind == ref.Kind && d.Name == ref.Name {
			return true
		}
	}
	return false
}

// isFormer says whether the config doesn't name the object any more, and it may not have back what was taken.
func (s *sight) isFormer(ref v1alpha1.DependentRef) bool {
	return slices.ContainsFunc(s.former, func(d probe.Dependent) bool {
		return d.Ref.APIVersion == ref.APIVersion && d.Ref.Kind == ref.Kind && d.Ref.Name == ref.Name
	})
}

// worst are the targets that aren't healthy, the first by namespace.
func worst(sights []sight) []v1alpha1.TargetState {
	var all []v1alpha1.TargetState
	for i := range sights {
		if w := sights[i].worst(); w.Reason != "" {
			w.Namespace = sights[i].namespace
			if all = append(all, w); len(all) == probe.SampleSize {
				break
			}
		}
	}
	return all
}

// worst is what is wrong with a target; no reason when nothing is.
func (s *sight) worst() v1alpha1.TargetState {
	switch {
	case s.unusable.Class != "":
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonSecretUnusable, Message: sentence(s.unusable), Since: seconds(s.unusableSince)}
	case s.undetermined():
		side, class, since := "internal", s.state.Internal.LastError, s.state.InternalUndetermined(s.config)
		if since.IsZero() {
			side, class, since = "external", s.state.External.LastError, s.state.ExternalUndetermined(s.config)
		}
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonUndetermined, Message: fmt.Sprintf("The %s probe gets no clear answer: %s.", side, class), Since: seconds(since)}
	case s.externalUnhealthy():
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonProbeFails, Message: "The external probe fails: " + string(s.lastOuterError()) + ".", Since: seconds(s.state.UnhealthySince)}
	case s.internalUnhealthy():
		return v1alpha1.TargetState{Reason: v1alpha1.ReasonProbeFails, Message: "The internal probe fails: " + string(s.state.Internal.LastError) + ".", Since: seconds(s.state.InternalUnhealthySince)}
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
	case !s.probed:
		return "It isn't probed, and nobody knows whether it is healthy."
	case s.state.HealthySince.IsZero():
		return "It isn't known to be healthy again."
	}
	return "It is healthy, and scaled up when it was for a minute and its turn comes."
}

// lastOuterError is why the outer side is unhealthy, or what the external probe found last that was no success.
func (s *sight) lastOuterError() probe.Class {
	if th := s.config.Thresholds; s.state.Leases.Unhealthy(th) && !s.state.External.Unhealthy(th) {
		return s.state.Leases.LastError
	}
	return s.state.External.LastError
}
