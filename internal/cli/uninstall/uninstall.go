// Package uninstall removes Autohealer from a cluster so that nothing of it stays: it stops what acts, takes back what was
// done, and then deletes what was installed, each before what it needs to go.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/undo"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Uninstaller removes one installation.
type Uninstaller struct {
	// Client writes; with DryRun, one whose writes are dry runs.
	Client client.Client
	// Kinds tells which kinds the cluster has.
	Kinds discovery.CachedDiscoveryInterface
	Clock clock.PassiveClock
	// Namespace is Autohealer's own. Manager names its Deployment and its Lease.
	Namespace, Manager string
	// Leads says whether a manager holds the Lease; known is false when that can't be read, and when no manager wrote it so, which doubt says.
	Leads func(context.Context) (leads, known bool, doubt string)
	// Timeout bounds each wait for something to be gone.
	Timeout time.Duration
	// DryRun waits for nothing, since nothing goes.
	DryRun bool
	// Report is called with what was done, a line each, and Progress with how far a step is.
	Report, Progress func(string)
}

// Stopped is an uninstall that ended before its end. What was done until then holds, and the next one goes on from there.
type Stopped struct {
	Step string
	Err  error
}

func (s *Stopped) Error() string { return s.Step + ": " + s.Err.Error() }
func (s *Stopped) Unwrap() error { return s.Err }

// Run does what a look found, in the order that leaves nothing stuck:
//
//   - Nothing is undone before nobody does anything new, or it would be done again.
//   - No policy loses its finalizer before everything is undone, or nobody would know any more that there is something to undo.
//   - The freeze is deleted after the manager, or the manager would go on.
//   - The kinds go after their objects, so that an object that waits for somebody's finalizer is named and not its kind.
//   - The rights go last but for the namespace: whoever runs this may have theirs by them.
func (u *Uninstaller) Run(ctx context.Context, s *Survey) error {
	for _, step := range []struct {
		name string
		do   func(context.Context, *Survey) error
	}{
		{"stop what acts", u.freeze},
		{"undo", u.undo},
		{"release what is held", u.release},
		{"delete " + deleted[policies], u.deleteOwn(policies, v1alpha1.FinalizerUndo)},
		{"undo what only policies kept", u.undoAgain},
		{"delete " + deleted[admissionGates], u.deleteFound(admissionGates)},
		{"delete " + deleted[manager], u.deleteManager},
		{"delete " + deleted[guardrails], u.deleteOwn(guardrails, "")},
		{"delete " + deleted[definitions], u.deleteFound(definitions)},
		{"delete " + deleted[rights], u.deleteFound(rights)},
		{"delete " + deleted[ownNamespace], u.deleteFound(ownNamespace)},
		{"look whether anything came back", u.undoAgain},
	} {
		if err := step.do(ctx, s); err != nil {
			return &Stopped{step.name, err}
		}
	}
	return nil
}

// rounds bounds how often records are looked for again: Kubernetes copies those of Deployments to their ReplicaSets, at any
// time until it has seen that the Deployment's is gone.
const rounds = 5

// undo takes back what was done, by the records on the objects.
func (u *Uninstaller) undo(ctx context.Context, _ *Survey) error {
	for range rounds {
		by := &undo.Undoer{Client: u.Client, Clock: u.Clock} // it reads anew which policies there are
		found, blind := by.Find(ctx, served{u.Kinds}, "")
		if blind != nil {
			return blind
		}
		did, err := u.undoEach(ctx, by, found)
		if err != nil || did == 0 || u.DryRun {
			return err
		}
	}
	return nil
}

// undoAgain takes back what an earlier step left, or let go of.
func (u *Uninstaller) undoAgain(ctx context.Context, s *Survey) error {
	if u.DryRun {
		return nil // it was reported already
	}
	return u.undo(ctx, s)
}

func (u *Uninstaller) undoEach(ctx context.Context, by *undo.Undoer, objects []undo.Object) (did int, failed error) {
	for i, o := range objects {
		u.Progress(fmt.Sprintf("undo: %d of %d", i+1, len(objects)))
		r := by.Undo(ctx, o)
		if r.Err != nil && !apierrors.IsNotFound(r.Err) { // what is gone needs no undoing
			failed = errors.Join(failed, fmt.Errorf("%s: %w", o.Title, r.Err))
			continue
		}
		for _, text := range r.Did {
			did++
			u.Report(o.Title + ": " + text)
		}
	}
	return did, failed
}

// release takes off what keeps Autohealer from objects: when it is gone, nobody ends that.
func (u *Uninstaller) release(ctx context.Context, _ *Survey) error {
	by := &undo.Undoer{Client: u.Client, Clock: u.Clock}
	held, blind := by.FindHeld(ctx, served{u.Kinds})
	failed := blind
	for i, o := range held {
		u.Progress(fmt.Sprintf("release: %d of %d", i+1, len(held)))
		if err := by.Release(ctx, o); err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", o.Title, err))
			continue
		}
		u.Report(o.Title + ": " + released)
	}
	return failed
}

const released = "hold removed"

// Write tells what would be done, step by step, and what stays.
func (s *Survey) Write(w io.Writer) {
	if s.attemptsFreeze() {
		section(w, "Freeze: nothing new is done while this works", []string{"guardrail/" + v1alpha1.FreezeGuardrail})
	}
	var undone, held []string
	for _, r := range s.Undo {
		for _, did := range r.Did {
			undone = append(undone, r.Object.Title+": "+did)
		}
	}
	for _, o := range s.Held {
		held = append(held, o.Title+": "+released)
	}
	section(w, "Undo", undone)
	section(w, "Release what people keep Autohealer from", held)
	for of, what := range deleted {
		var titles []string
		for _, o := range s.Delete[stage(of)] {
			titles = append(titles, title(o))
		}
		section(w, "Delete "+what, titles)
	}
}

func section(w io.Writer, heading string, lines []string) {
	if len(lines) > 0 {
		fmt.Fprintf(w, "%s\n  %s\n", heading, sample.List(lines, "\n  "))
	}
}

// surveyBindings finds who was given one of our roles: they are people's, and name a role that will be gone.
func (u *Uninstaller) surveyBindings(ctx context.Context, s *Survey) error {
	var inAll rbacv1.ClusterRoleBindingList
	var inOne rbacv1.RoleBindingList
	for _, list := range []client.ObjectList{&inAll, &inOne} {
		if err := u.Client.List(ctx, list); err != nil {
			return fmt.Errorf("look for bindings of Autohealer's roles: %w", err)
		}
	}
	roles := component{kind: clusterRoleKind}.names()
	report := func(kindOf string, o metav1.ObjectMeta, role rbacv1.RoleRef) {
		if role.Kind == "ClusterRole" && slices.Contains(roles, role.Name) && o.Labels[label] != ours && o.Namespace != u.Namespace {
			binding := about(kind(rbacv1.GroupName, kindOf), o.Namespace, o.Name)
			s.Remaining = append(s.Remaining, fmt.Sprintf("%s binds a role of Autohealer's that will be gone: kubectl delete %s", title(binding), named(binding)))
		}
	}
	for i := range inAll.Items {
		report("ClusterRoleBinding", inAll.Items[i].ObjectMeta, inAll.Items[i].RoleRef)
	}
	for i := range inOne.Items {
		report("RoleBinding", inOne.Items[i].ObjectMeta, inOne.Items[i].RoleRef)
	}
	return nil
}

// surveyNamespace says whether our namespace can go: not while there is something of others in it.
func (u *Uninstaller) surveyNamespace(ctx context.Context, s *Survey) error {
	ns, err := u.get(ctx, about(namespaceKind, "", u.Namespace))
	if err != nil || ns == nil {
		return err
	}
	if !labelled(ns) {
		s.Remaining = append(s.Remaining, fmt.Sprintf("%s has no label %s=%s, so somebody else made it. If nobody needs it: kubectl delete %s", title(ns), label, ours, named(ns)))
		return nil
	}
	others, err := u.others(ctx, s)
	if err != nil {
		return err
	}
	if len(others) > 0 {
		s.Remaining = append(s.Remaining, fmt.Sprintf("%s holds what isn't Autohealer's: %s. If nobody needs it: kubectl delete %s", title(ns), sample.List(others, ", "), named(ns)))
		return nil
	}
	s.Delete[ownNamespace] = []*object{ns}
	return nil
}

// others are the objects in our namespace that are neither ours, nor Kubernetes', nor somebody's that goes with them.
func (u *Uninstaller) others(ctx context.Context, s *Survey) (found []string, err error) {
	kinds, err := u.kinds(func(_ schema.GroupVersion, r metav1.APIResource) bool { return r.Namespaced && keeps(r) })
	if err != nil {
		return nil, err
	}
	known := []string{"configmap/kube-root-ca.crt", "serviceaccount/default"}
	for _, o := range s.all() {
		known = append(known, strings.ToLower(o.Kind)+"/"+o.Name)
	}
	for _, kind := range kinds {
		there, err := u.list(ctx, kind, client.InNamespace(u.Namespace))
		if err != nil {
			return nil, err
		}
		for _, o := range there {
			goesWith := len(o.OwnerReferences) > 0 || o.Annotations[corev1.ServiceAccountNameKey] != ""
			if name := strings.ToLower(o.Kind) + "/" + o.Name; !goesWith && !slices.Contains(known, name) {
				found = append(found, name)
			}
		}
	}
	return found, nil
}

// keeps says whether objects of a resource are somebody's: Events and Endpoints are Kubernetes' own, and what can't be made and
// deleted is only a view.
func keeps(r metav1.APIResource) bool {
	return !strings.Contains(r.Name, "/") && r.Name != "events" && r.Name != "endpoints" &&
		slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "delete")
}
