package uninstall

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/undo"
)

// object is one of any kind.
type object = metav1.PartialObjectMetadata

// Survey is what there is of an installation.
type Survey struct {
	// Undo is what was done and would be taken back.
	Undo []undo.Result
	// Held are objects that people keep Autohealer from.
	Held []undo.Object
	// Delete has what goes, by its stage. Autohealer's own namespace isn't there where it isn't ours to delete.
	Delete map[stage][]*object
	// Remaining says what stays, and what to do about it.
	Remaining []string
	// Blocked says why it can't begin, and what to do about that.
	Blocked []string
}

// Nothing says whether there is nothing to remove.
func (s *Survey) Nothing() bool {
	return len(s.Undo)+len(s.Held)+len(s.all()) == 0
}

// all that is to be deleted.
func (s *Survey) all() []*object { return slices.Concat(slices.Collect(maps.Values(s.Delete))...) }

// Survey finds all that there is of an installation, and whether it can all be removed. It writes nothing.
func (u *Uninstaller) Survey(ctx context.Context) (*Survey, error) {
	s := &Survey{Delete: map[stage][]*object{}}
	for _, survey := range []func(context.Context, *Survey) error{u.surveyGroups, u.surveyKinds, u.surveyComponents, u.surveyLeader, u.surveyNamespace, u.surveyBindings, u.surveyRecords, u.surveyRights} {
		if err := survey(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// surveyKinds finds the definitions of our kinds, of whatever version, and all of their objects.
func (u *Uninstaller) surveyKinds(ctx context.Context, s *Survey) error {
	all, err := u.list(ctx, crdKind)
	if err != nil {
		return err
	}
	for _, crd := range all {
		if _, group, _ := strings.Cut(crd.Name, "."); group == v1alpha1.GroupVersion.Group {
			s.Delete[definitions] = append(s.Delete[definitions], crd)
		}
	}
	own, err := u.own(ctx)
	maps.Copy(s.Delete, own)
	return err
}

// own are all objects of our kinds that the API server serves, by their stage.
func (u *Uninstaller) own(ctx context.Context) (map[stage][]*object, error) {
	u.Kinds.Invalidate() // they go while this works
	kinds, err := u.kinds(func(gv schema.GroupVersion, r metav1.APIResource) bool {
		return gv.Group == v1alpha1.GroupVersion.Group && !strings.Contains(r.Name, "/")
	})
	if err != nil {
		return nil, err
	}
	all := map[stage][]*object{}
	for _, kind := range kinds {
		found, err := u.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		of := stageOf(kind)
		all[of] = append(all[of], found...)
	}
	return all, nil
}

// kinds are those of the cluster that are wanted and can be listed, each in one version.
func (u *Uninstaller) kinds(wanted func(schema.GroupVersion, metav1.APIResource) bool) ([]schema.GroupVersionKind, error) {
	kinds, err := undo.KindsOf(served{u.Kinds}, func(gv schema.GroupVersion, r metav1.APIResource, _ []metav1.APIResource) bool { return wanted(gv, r) })
	if err != nil {
		return nil, fmt.Errorf("see which kinds the cluster has: %w", err)
	}
	return kinds, nil
}

// served are the kinds of the groups that are served now. A group whose own API server is down, as often that of metrics is,
// keeps nothing of ours.
type served struct {
	discovery.CachedDiscoveryInterface
}

func (s served) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, lists, err := s.CachedDiscoveryInterface.ServerGroupsAndResources()
	if discovery.IsGroupDiscoveryFailedError(err) {
		err = nil
	}
	return groups, lists, err
}

// surveyGroups names those that aren't served: a ProbeConfig may have scaled something of theirs.
func (u *Uninstaller) surveyGroups(_ context.Context, s *Survey) error {
	_, _, err := u.Kinds.ServerGroupsAndResources()
	if discovery.IsGroupDiscoveryFailedError(err) {
		s.Remaining = append(s.Remaining, fmt.Sprintf("Objects of kinds that the API server doesn't serve now can't be read: %v. Once they are served: kubectl autohealer undo --all", err))
	}
	return nil
}

// surveyComponents finds what was installed, by its name. What doesn't say that it is ours stays, and so does what says so and isn't known:
// another version may have installed it, or another product.
func (u *Uninstaller) surveyComponents(ctx context.Context, s *Survey) error {
	for _, p := range components {
		names := p.names()
		found, err := u.list(ctx, p.kind, client.InNamespace(u.in(p.namespace)))
		if err != nil {
			return err
		}
		for _, o := range found {
			switch known := slices.Contains(names, o.Name); {
			case known && (p.unlabelled || labelled(o)):
				s.Delete[p.stage] = append(s.Delete[p.stage], o)
			case known:
				s.Remaining = append(s.Remaining, fmt.Sprintf("%s has no label %s=%s, so it may be somebody else's. If it isn't: kubectl delete %s", title(o), label, ours, named(o)))
			case p.namespace == "" && labelled(o): // what else is in our namespace is looked at with that
				s.Remaining = append(s.Remaining, fmt.Sprintf("%s says that it is Autohealer's, and this version doesn't know it. If it is: kubectl delete %s", title(o), named(o)))
			}
		}
	}
	return nil
}

// surveyLeader finds a manager that nothing here runs, and that so goes on whatever is deleted: it may confirm the freeze, so that
// all but itself would be gone when its turn comes.
func (u *Uninstaller) surveyLeader(ctx context.Context, s *Survey) error {
	leads, _, doubt := u.Leads(ctx)
	switch {
	case has(s.Delete[manager], deploymentKind):
	case doubt != "":
		s.Blocked = append(s.Blocked, fmt.Sprintf("It isn't known whether a manager leads, and there is no Deployment %[1]s in namespace %[2]s that could run it: the Lease %[1]s %[3]s. "+
			"When none does, kubectl -n %[2]s delete lease %[1]s", u.Manager, u.Namespace, doubt))
	case leads:
		s.Blocked = append(s.Blocked, fmt.Sprintf("A manager leads, and there is no Deployment %[1]s in namespace %[2]s that could run it: stop it, or if there is none, "+
			"kubectl -n %[2]s delete lease %[1]s. One that ended without a word leads for some seconds more", u.Manager, u.Namespace))
	}
	return nil
}

func (u *Uninstaller) in(namespace string) string {
	if namespace == own {
		return u.Namespace
	}
	return namespace
}

// surveyRecords finds what was done to objects of others, and says what of it can't be taken back.
func (u *Uninstaller) surveyRecords(ctx context.Context, s *Survey) error {
	by := &undo.Undoer{Client: u.Client, Clock: u.Clock, DryRun: true}
	found, blind := by.Find(ctx, served{u.Kinds}, "")
	for _, o := range found {
		r := by.Undo(ctx, o)
		switch {
		case apierrors.IsNotFound(r.Err):
		case r.Err != nil:
			s.Blocked = append(s.Blocked, fmt.Sprintf("%s can't be undone: %v", o.Title, r.Err))
		case len(r.Did) > 0:
			s.Undo = append(s.Undo, r)
		}
	}
	var blindToo error
	s.Held, blindToo = by.FindHeld(ctx, served{u.Kinds})
	if blind := errors.Join(blind, blindToo); blind != nil {
		s.Blocked = append(s.Blocked, fmt.Sprintf("There may be more to undo: %v", blind))
	}
	return nil
}

// get reads an object's metadata; nil when there is none.
func (u *Uninstaller) get(ctx context.Context, o *object) (*object, error) {
	kind := o.GroupVersionKind()
	err := u.Client.Get(ctx, client.ObjectKeyFromObject(o), o)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", title(o), err)
	}
	o.SetGroupVersionKind(kind)
	return o, nil
}

// list reads the metadata of all objects of a kind; none when the kind isn't there.
func (u *Uninstaller) list(ctx context.Context, kind schema.GroupVersionKind, options ...client.ListOption) (found []*object, err error) {
	err = undo.Each(ctx, u.Client, kind, func(o *object) { found = append(found, o) }, options...)
	return found, err
}
