package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// ownNamespace is Autohealer's.
const ownNamespace = "autohealer-system"

// pods follows all pods and Services through a replay.
type pods struct {
	options    Options
	services   *services
	rights     rights
	namespaces map[string]map[string]string
	// whole is each pod's last version before its deletion began.
	whole map[types.UID]seen
	// places are those of pods that the manager hasn't deleted, in their lineages. Vacant, by workload, are those after a deletion that
	// no pod has.
	places map[types.UID]*place
	vacant map[string][]*deletion
	// ranWell has the pods that were restarted, and how they ran before: one that ran well replaces nothing any more.
	ranWell map[types.UID]bool
	notes   map[types.UID]*notes // by config
	done    []*deletion
}

// seen is a pod at a version. An eviction first marks the pod in its status; marked is the version of that.
type seen struct {
	version, marked uint64
	pod             *pod
}

// deletion is one of the manager's.
type deletion struct {
	stamp
	pod      *pod
	evicted  bool
	policy   *Policy
	uid      types.UID // of the policy
	spec     weeding
	number   int64 // the spec's generation
	service  types.NamespacedName
	recovery stamp
	// former: an earlier window was open until just before, which it may still have been counted for.
	former bool
	// after is the deletion of the pod that this one had replaced; nil for none.
	after *deletion
}

func newPods(o Options) *pods {
	return &pods{
		options: o, services: newServices(o.Lag), namespaces: map[string]map[string]string{},
		places: map[types.UID]*place{}, vacant: map[string][]*deletion{}, whole: map[types.UID]seen{}, ranWell: map[types.UID]bool{}, notes: map[types.UID]*notes{},
	}
}

func (s *pods) View(object []byte) (View, error) { return parseForWeeder(object) }

// Note takes in what a config's status tells of deletions.
func (s *pods) Note(_ time.Time, config types.UID, p *Policy) {
	if s.notes[config] == nil {
		s.notes[config] = newNotes(p)
	}
	s.notes[config].read(p)
}

// OnlyOurs: anyone may delete a pod.
func (s *pods) OnlyOurs(View, View) bool { return false }

func (s *pods) Read(w *World, c Change) Finding {
	at := stamp{c.Version, c.At}
	switch kind := cmp.Or(c.After, c.Before).(type) {
	case *slice:
		before, _ := c.Before.(*slice)
		after, _ := c.After.(*slice)
		s.services.slice(at, before, after)
	case *selector:
		if s.services.own[kind.key] = kind.pairs; c.After == nil {
			delete(s.services.own, kind.key)
		}
	case *namespace:
		if s.namespaces[kind.name] = kind.labels; c.After == nil {
			delete(s.namespaces, kind.name)
		}
	case *role:
		s.rights.role(c.At, kind, c.After == nil)
	case *binding:
		s.rights.binding(c.At, kind, c.After == nil)
	case *pod:
		return s.pod(w, c, at)
	}
	return Finding{NotMine: c.Ours}
}

func (s *pods) pod(w *World, c Change, at stamp) Finding {
	before, _ := c.Before.(*pod)
	after, _ := c.After.(*pod)
	f := Finding{}
	if c.Ours {
		f = s.ours(w, c, at, before)
	}
	if before == nil && after != nil {
		s.settle(after, at.at)
	}
	if after != nil && after.restarted {
		if _, known := s.ranWell[after.uid]; !known {
			s.ranWell[after.uid] = after.ranWell
		}
	}
	s.see(c.Version, before, after)
	s.services.pod(at, before, after)
	return f
}

func (s *pods) see(version uint64, before, after *pod) {
	switch {
	case after == nil || after.terminating:
	case after.disrupted && before != nil && !before.disrupted:
		last := s.whole[after.uid]
		last.marked = version
		s.whole[after.uid] = last
	default:
		s.whole[after.uid] = seen{version: version, pod: after}
	}
}

// ours judges a write of the manager to a pod.
func (s *pods) ours(w *World, c Change, at stamp, p *pod) Finding {
	evicts := c.Subresource == "eviction"
	if p == nil || !evicts && (c.Verb != "delete" || c.Subresource != "") {
		return Finding{NotMine: true}
	}
	if reason := s.untouchable(p.uid, judgedAt(c.Request, evicts)); reason != "" {
		return broken(Validated, "the manager deleted %s", reason)
	}
	d, reason := s.reason(w, deletion{stamp: at, pod: s.whole[p.uid].pod, evicted: evicts})
	if reason != "" {
		return broken(Validated, "the manager deleted a pod: %s", reason)
	}
	f := Finding{Acts: []Act{{Policy: d.uid, Generation: d.number, What: fmt.Sprintf("deletion for Service %s", d.service)}}}
	s.done = append(s.done, &d)
	s.notes[d.uid].done++
	f.Broken = append(f.Broken, s.limits(w, &d)...)
	return f
}

// untouchable says of pods that are never deleted what they are. Version is the one that the request named, which the API
// server has compared.
func (s *pods) untouchable(uid types.UID, version uint64) string {
	last := s.whole[uid]
	p := last.pod
	switch {
	case version == 0:
		return "a pod without saying which, by UID and resource version"
	case version != last.version && version != last.marked:
		return "a pod that was being deleted"
	case p.mirror:
		return "a static pod's image"
	case p.workload == "":
		return "a pod that nothing replaces"
	case p.key.Namespace == ownNamespace && p.labels["app.kubernetes.io/name"] == "autohealer":
		return "a pod of Autohealer"
	case !p.main && !p.init:
		return "a pod that didn't crash-loop"
	}
	return ""
}

// judgedAt is the version that the request's preconditions name; 0 when they don't name UID and version. One deletion may make
// two revisions of a pod: its end begins, and it is gone.
func judgedAt(request []byte, evicts bool) uint64 {
	p := preconditions(request, evicts)
	if ptr.Deref(p.UID, "") == "" {
		return 0
	}
	return versionOf(ptr.Deref(p.ResourceVersion, ""))
}

// reason finds the config and Service that a pod was deleted for, or says why there is none: the ones that a note in a status
// names, or any whose status counts a deletion that it doesn't name.
func (s *pods) reason(w *World, d deletion) (deletion, string) {
	why := "no WeederConfig's status told of it before"
	for _, named := range []bool{true, false} {
		for _, uid := range slices.Sorted(maps.Keys(s.notes)) {
			service := s.notes[uid].services[d.pod.uid]
			if named != (service != "") || !named && !s.notes[uid].unnamed() {
				continue
			}
			d.policy, d.uid = w.Policies[uid], uid
			found, reason := s.reasonOf(d, service)
			if reason == "" {
				return found, ""
			}
			why = d.policy.Name + ": " + reason
		}
		if d.policy != nil {
			break
		}
	}
	return d, why
}

// reasonOf looks for a reason in the config's specs in force, for one Service or for any.
func (s *pods) reasonOf(d deletion, service string) (_ deletion, why string) {
	for _, spec := range d.policy.InForce(d.at, s.options.Lag) {
		d.number = spec.Generation
		var err error
		if d.spec, err = weedingOf(spec.Object); err != nil {
			return d, err.Error()
		}
		why = cmp.Or(why, fmt.Sprintf("generation %d names no Service %q", spec.Generation, service))
		for _, name := range slices.Sorted(maps.Keys(d.spec.Services)) {
			if service != "" && name != service {
				continue
			}
			d.service = types.NamespacedName{Namespace: d.pod.key.Namespace, Name: name}
			if why = s.unreasonable(&d); why == "" {
				return d, ""
			}
		}
	}
	return d, why
}

// unreasonable says why a Service's recovery is no reason; "" when it is one.
func (s *pods) unreasonable(d *deletion) string {
	open := s.services.windows(readiness{d.service, d.spec.ReadyPolicy == "AllReady"}, d.spec.WatchDuration.Duration, d.at)
	switch {
	case !d.spec.holdsIn(d.pod.key.Namespace, s.namespaces[d.pod.key.Namespace]):
		return "it doesn't hold in namespace " + d.pod.key.Namespace
	case !d.spec.selects(d.service.Name, d.pod):
		return fmt.Sprintf("it doesn't select the pod for Service %s", d.service)
	case d.spec.Mode == "Observe":
		return "it only observes"
	case len(open) == 0:
		return fmt.Sprintf("Service %s didn't turn Ready within %s before, or has been notReady since", d.service, d.spec.WatchDuration.Duration)
	case s.services.backs(d.service, d.pod):
		return fmt.Sprintf("the pod is one of Service %s's own", d.service)
	case !d.pod.main && !d.spec.Init:
		return "only an init container crash-loops"
	case d.evicted != (d.spec.Deletion == "Evict"):
		return fmt.Sprintf("its deletion is %q", cmp.Or(d.spec.Deletion, "Delete"))
	case !s.entitled(d):
		return fmt.Sprintf("ServiceAccount %s may not delete pods in namespace %s", d.spec.Account, d.spec.Namespace)
	}
	d.recovery = open[0]
	d.former = len(open) > 1 && d.at.Sub(d.recovery.at) <= s.options.Lag
	return ""
}

// entitled: a tenant's config does no more than an account of the tenant's may.
func (s *pods) entitled(d *deletion) bool {
	account := types.NamespacedName{Namespace: d.spec.Namespace, Name: d.spec.Account}
	had := func(verb, resource string) bool {
		return s.rights.had(account, right{verb: verb, resource: resource, namespace: account.Namespace}, d.at, s.options.RightsHold+s.options.Lag)
	}
	return d.spec.Namespace == ownNamespace || had("delete", "pods") && (!d.evicted || had("create", "pods/eviction"))
}
