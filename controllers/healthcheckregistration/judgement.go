package healthcheckregistration

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/checking"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/registration"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/judging"
)

const kindRegistration = "HealthCheckRegistration"

var everything = labels.Everything()

// judgement is what the rules said of a stored registration.
type judgement = judging.Judgement[*v1alpha1.HealthCheckRegistration, reading]

// reading is a registration made ready.
type reading struct {
	// registration is nil when the spec can't be read; unreadable says why.
	registration *registration.Registration
	unreadable   error
	// kind of the targets.
	kind schema.GroupVersionKind
}

// read keeps what it read of the same generation: expressions are compiled once.
func read(hcr *v1alpha1.HealthCheckRegistration, before reading) reading {
	if b := before.registration; b != nil && b.UID == hcr.UID && b.Generation == hcr.Generation {
		return before
	}
	reg, problems := registration.Read(hcr)
	if len(problems) > 0 {
		return reading{unreadable: errors.New(strings.Join(problems, "; ")), kind: reg.Kind}
	}
	return reading{registration: reg, kind: reg.Kind}
}

// read has what the registration reads of objects kept, before anybody can ask its checks.
func (o *Observer) read(hcr *v1alpha1.HealthCheckRegistration, before reading) reading {
	is := read(hcr, before)
	if is.registration != nil && o.Watches != nil {
		o.Watches.Keep(is.registration)
	}
	return is
}

// registration takes in a registration that is new or changed.
func (o *Observer) registration(ctx context.Context, hcr *v1alpha1.HealthCheckRegistration) {
	key := client.ObjectKeyFromObject(hcr)
	if !o.judge.Observe(hcr) {
		o.judge.Soon(key)
	}
	o.tell(ctx, key)
}

func (o *Observer) registrationGone(hcr *v1alpha1.HealthCheckRegistration) {
	o.judge.Forget(hcr)
	o.book.forget(hcr.UID)
	o.informed.forget(hcr.UID)
	o.counts.forget(hcr.UID)
	o.enqueueRegistration(client.ObjectKeyFromObject(hcr), 0) // its series go with it
}

// judgeNow asks the rules about a stored registration as it is now.
func (o *Observer) judgeNow(ctx context.Context, key types.NamespacedName) {
	if o.judge.Judge(ctx, key) {
		o.tell(ctx, key)
	}
}

// tell has all looked at that a registration, or what the rules say of it, concerns.
func (o *Observer) tell(ctx context.Context, key types.NamespacedName) {
	j, ok := o.judge.Of(key)
	if !ok {
		return
	}
	o.book.follow(j.Object, o.Facts.Clock.Now())
	o.enqueueRegistration(key, 0)
	o.inform(ctx, key)
}

// rulesChanged has the affected registrations judged again, and no others.
func (o *Observer) rulesChanged(c guard.Change) {
	if c.Policy && o.judge.FollowPolicy(o.Guard.Policy()) {
		o.lookAtAll(context.Background())
	}
	o.judge.RulesChanged(c)
}

// standing is what a registration may do now.
type standing int

const (
	// frozen: what it wrote stays as it is. The zero value.
	frozen standing = iota
	// withdrawn: it decides nothing; what it alone decided is removed.
	withdrawn
	// watching: it decides nothing, and tells what it would.
	watching
	// held: it only heals.
	held
	active
)

// decider is a registration that selects a target, or might.
type decider struct {
	registration *registration.Registration
	judgement    judgement
	standing     standing
	// object is the target in the version that the registration names.
	object *unstructured.Unstructured
}

// standing of a registration, by the latest judgement.
func (o *Observer) standing(j judgement) standing {
	paused, known := o.judge.PausedBy()
	switch {
	case paused.Frozen:
		return frozen
	case j.Object.DeletionTimestamp != nil:
		return withdrawn
	case j.Read.unreadable != nil, !known, j.Outdated, j.Generation != j.Object.Generation:
		return frozen
	case j.Object.Spec.Mode == v1alpha1.Observe:
		return watching
	case !slices.Contains(j.Object.Finalizers, v1alpha1.FinalizerUndo):
		return frozen
	case !j.Admitted.Valid(), paused.By != "":
		return held
	}
	return active
}

// view gives a target in the version that a registration names; nil when that version can't be read, which says nothing.
type view func(schema.GroupVersionKind) (*unstructured.Unstructured, error)

// deciders are the registrations that concern a target, by name. The target's kind may be named in several versions: one whose
// version can't be read leaves what it wrote as it is.
func (o *Observer) deciders(target *unstructured.Unstructured, in view, namespace labels.Set) ([]decider, error) {
	var all []decider
	for _, key := range o.judge.Keys() {
		j, ok := o.judge.Of(key)
		if !ok || j.Read.kind.GroupKind() != target.GroupVersionKind().GroupKind() {
			continue
		}
		d := decider{j.Read.registration, j, o.standing(j), target}
		switch object, err := in(j.Read.kind); {
		case err != nil:
			return nil, err
		case object != nil:
			d.object = object
		case d.standing != withdrawn:
			d.standing = frozen
		}
		if kept := hold.Of(target.GetAnnotations()); d.standing == active && kept.Holds(o.Facts.Clock.Now(), time.Time{}) {
			d.standing = held
		}
		if d.registration == nil || d.registration.Selects(d.object, namespace) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b decider) int { return strings.Compare(a.judgement.Object.Name, b.judgement.Object.Name) })
	return all, nil
}

// inDoubt says whether nothing may be taken off the objects of a kind: everything is frozen, or it isn't known what each stored
// registration about them says. What no known one decides may be that one's.
func (o *Observer) inDoubt(kind schema.GroupKind) bool {
	if paused, known := o.judge.PausedBy(); paused.Frozen || !known {
		return true
	}
	if slices.ContainsFunc(o.judge.Unjudged(), func(hcr *v1alpha1.HealthCheckRegistration) bool { return kindOf(hcr).GroupKind() == kind }) {
		return true
	}
	return slices.ContainsFunc(o.judge.Keys(), func(key types.NamespacedName) bool {
		j, ok := o.judge.Of(key)
		return !ok || j.Read.kind.GroupKind() == kind && j.Object.DeletionTimestamp == nil && (j.Outdated || j.Generation != j.Object.Generation)
	})
}

// versionsOf are the versions in which registrations name a kind, the latest first.
func (o *Observer) versionsOf(kind schema.GroupKind) []string {
	var all []string
	add := func(of schema.GroupVersionKind) {
		if of.GroupKind() == kind {
			all = append(all, of.Version)
		}
	}
	for _, hcr := range o.judge.Unjudged() {
		add(kindOf(hcr))
	}
	for _, key := range o.judge.Keys() {
		if j, ok := o.judge.Of(key); ok {
			add(j.Read.kind)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
	return slices.Compact(all)
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

// decidedBySome says whether a registration that stays is about this condition type of a kind's objects.
func (o *Observer) decidedBySome(kind schema.GroupKind, conditionType string) bool {
	for _, key := range o.judge.Keys() {
		j, ok := o.judge.Of(key)
		if !ok || j.Read.kind.GroupKind() != kind || j.Object.DeletionTimestamp != nil {
			continue
		}
		if j.Read.registration == nil || decides(j.Read.registration, conditionType) {
			return true
		}
	}
	return false
}
