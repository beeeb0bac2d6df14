package healthcheckregistration

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/policy"
)

const kindRegistration = "HealthCheckRegistration"

var allTargets = labels.Everything()

type storedRegistration = policy.Policy[*v1alpha1.HealthCheckRegistration, parsedRegistration]

// parsedRegistration is a registration made ready.
type parsedRegistration struct {
	// registration is nil when the spec can't be read; unreadable says why.
	registration *registration.Registration
	unreadable   error
	// kind of the targets.
	kind schema.GroupVersionKind
}

// Unreadable says why the spec can't be read.
func (r parsedRegistration) Unreadable() error { return r.unreadable }

// read keeps what it read of the same generation: expressions are compiled once.
func read(hcr *v1alpha1.HealthCheckRegistration, before parsedRegistration) parsedRegistration {
	if b := before.registration; b != nil && b.UID == hcr.UID && b.Generation == hcr.Generation {
		return before
	}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		return parsedRegistration{unreadable: errors.New(strings.Join(problems, "; ")), kind: reg.Kind}
	}
	return parsedRegistration{registration: reg, kind: reg.Kind}
}

// read has what the registration reads of objects kept, before anybody can ask its checks.
func (o *Observer) read(hcr *v1alpha1.HealthCheckRegistration, before parsedRegistration) parsedRegistration {
	is := read(hcr, before)
	if is.registration != nil && o.Watches != nil {
		o.Watches.AddFields(is.registration)
	}
	return is
}

// update has all targets evaluated that a registration, or what the rules say of it, concerns.
func (o *Observer) update(ctx context.Context, before, now storedRegistration) {
	if before.Read.registration != nil && before.Read.registration != now.Read.registration {
		o.closeUnusedWatches() //nolint:contextcheck // ending a watch asks nothing
	}
	o.results.update(now.Object, o.Facts.Clock.Now())
	o.notifyTargets(ctx, client.ObjectKeyFromObject(now.Object))
}

func (o *Observer) forget(hcr *v1alpha1.HealthCheckRegistration) {
	o.results.forget(hcr.UID, o.Facts.Clock.Now())
	o.closeUnusedWatches()
}

// closeUnusedWatches ends the watches of kinds that no registration names any more: they may have as many objects as a cluster.
func (o *Observer) closeUnusedWatches() {
	if o.Watches == nil {
		return
	}
	named := sets.New[schema.GroupVersionKind]()
	for _, hcr := range o.policies.Unjudged() {
		named.Insert(kindOf(hcr))
	}
	for j := range o.judgedRegistrations() {
		if named.Insert(j.Read.kind); j.Read.registration != nil {
			named.Insert(j.Read.registration.Kinds()...)
		}
	}
	o.Watches.CloseOthers(named)
}

// judgedRegistrations are the registrations that were judged.
func (o *Observer) judgedRegistrations() iter.Seq[storedRegistration] {
	return func(yield func(storedRegistration) bool) {
		for _, key := range o.policies.Keys() {
			if j, ok := o.policies.Get(key); ok && !yield(j) {
				return
			}
		}
	}
}

// registrationsFor are those of them whose targets are of a kind, in any version.
func (o *Observer) registrationsFor(kind schema.GroupKind) iter.Seq[storedRegistration] {
	return func(yield func(storedRegistration) bool) {
		for j := range o.judgedRegistrations() {
			if j.Read.kind.GroupKind() == kind && !yield(j) {
				return
			}
		}
	}
}

// activeRegistration is a registration that selects a target, or might.
type activeRegistration struct {
	registration.ActiveRegistration
	stored storedRegistration
	// object is the target in the version that the registration names.
	object *unstructured.Unstructured
}

// activeRegistrations are the registrations that concern a target, by name. The target's kind may be named in several versions: one whose
// version can't be read leaves what it wrote as it is.
func (o *Observer) activeRegistrations(target *unstructured.Unstructured, in versions, namespace labels.Set) []activeRegistration {
	var all []activeRegistration
	for j := range o.registrationsFor(target.GroupVersionKind().GroupKind()) {
		d := activeRegistration{stored: j, object: target}
		d.Registration, d.State = j.Read.registration, j.State(j.Object.Spec.Mode == v1alpha1.Observe)
		switch object := in[j.Read.kind.Version]; {
		case object != nil:
			d.object = object
		case d.State != lifecycle.Deleted:
			d.State = lifecycle.NotJudged
		}
		d.ActiveRegistration = d.OnTarget(target, o.Facts.Clock.Now())
		if d.Registration == nil || d.Selects(d.object, namespace) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b activeRegistration) int { return strings.Compare(a.stored.Object.Name, b.stored.Object.Name) })
	return all
}

// registrationsUnknown says whether nothing may be taken off the objects of a kind: everything is frozen, or it isn't known what each stored
// registration about them says. What no known one decides may be that one's.
func (o *Observer) registrationsUnknown(kind schema.GroupKind) bool {
	if paused, known := o.policies.PausedBy(); paused.Frozen || !known {
		return true
	}
	if slices.ContainsFunc(o.policies.Unjudged(), func(hcr *v1alpha1.HealthCheckRegistration) bool { return kindOf(hcr).GroupKind() == kind }) {
		return true
	}
	for j := range o.registrationsFor(kind) {
		if j.Object.DeletionTimestamp == nil && (j.Outdated || j.Generation != j.Object.Generation) {
			return true
		}
	}
	return false
}

// versionsOf are the versions in which registrations name a kind, the latest first.
func (o *Observer) versionsOf(kind schema.GroupKind) []string {
	var all []string
	for _, hcr := range o.policies.Unjudged() {
		if of := kindOf(hcr); of.GroupKind() == kind {
			all = append(all, of.Version)
		}
	}
	all = append(all, o.judgedVersionsOf(kind)...)
	slices.SortFunc(all, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return slices.Compact(all)
}

// judgedVersionsOf are those of registrations that were judged.
func (o *Observer) judgedVersionsOf(kind schema.GroupKind) (all []string) {
	for j := range o.registrationsFor(kind) {
		all = append(all, j.Read.kind.Version)
	}
	return all
}

// kindOf is the kind of a registration's targets; no kind when it can't be read.
func kindOf(hcr *v1alpha1.HealthCheckRegistration) schema.GroupVersionKind {
	target := &hcr.Spec.Target
	gv, err := schema.ParseGroupVersion(target.APIVersion)
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return gv.WithKind(target.Kind)
}

// nameOf is a target as a request has it.
func nameOf(t checking.Target) types.NamespacedName {
	return types.NamespacedName{Namespace: t.Key.Namespace, Name: t.Kind.String() + "/" + t.Key.Name}
}

// targetOf is the reverse.
func targetOf(request types.NamespacedName) checking.Target {
	kind, name, _ := strings.Cut(request.Name, "/")
	return checking.Target{Kind: schema.ParseGroupKind(kind), Key: types.NamespacedName{Namespace: request.Namespace, Name: name}}
}

// decidedByAny says whether a registration that stays is about this condition type of a kind's objects.
func (o *Observer) decidedByAny(kind schema.GroupKind, conditionType string) bool {
	for j := range o.registrationsFor(kind) {
		if j.Object.DeletionTimestamp == nil && (j.Read.registration == nil || j.Read.registration.Decides(conditionType)) {
			return true
		}
	}
	return false
}

// selected are the targets of a registration, as they were seen last; none where they can't be read.
func (o *Observer) selected(ctx context.Context, reg *registration.Registration) []checking.Target {
	objects, err := o.Watches.List(ctx, reg.Kind, "", allTargets)
	if err != nil {
		return nil
	}
	known := map[string]labels.Set{}
	among := reg.SelectTargets(objects, func(namespace string) labels.Set {
		if _, ok := known[namespace]; !ok {
			known[namespace], _ = o.labelsOf(ctx, namespace) // unknown, its objects don't count, and the breaker opens sooner
		}
		return known[namespace]
	})
	targets := make([]checking.Target, len(among))
	for i, object := range among {
		targets[i] = checking.Target{Kind: reg.Kind.GroupKind(), Key: client.ObjectKeyFromObject(object)}
	}
	return targets
}

// targetCountTTL is for how long a count of targets is taken as it is: with thousands of them, counting takes as long as a look, and
// when many turn False at once each asks.
const targetCountTTL = time.Second

// targetCount gives how many targets a registration has, or had a moment ago.
func (o *Observer) targetCount(ctx context.Context, reg *registration.Registration, by *health.Breaker) int {
	return by.TargetCount(reg.Generation, targetCountTTL, func() int { return len(o.selected(ctx, reg)) }, o.Facts.Clock.Now())
}

// labelsOf gives the labels of a namespace; none of "", where objects are that have none.
func (o *Observer) labelsOf(ctx context.Context, name string) (labels.Set, error) {
	if name == "" {
		return nil, nil
	}
	namespace := &corev1.Namespace{}
	if err := o.Cache.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return nil, fmt.Errorf("read the labels of namespace %s: %w", name, err)
	}
	return namespace.Labels, nil
}
