package actuate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube"
)

// ErrForeign: an object of that name is somebody else's. Nothing was written.
var ErrForeign = errors.New("it is none of Autohealer's")

// EnvoyPatches keeps an EnvoyPatchPolicy beside each Gateway that may be patched. The object is all Autohealer's, and records for whom each of its
// patches is.
type EnvoyPatches struct {
	// Reader may be a cache: what is written fails where it is no longer what was read.
	Reader client.Reader
	Writer client.Writer
	// Current confirms policies that something new is patched for.
	Current AllCurrent
	// Leads says whether this replica surely leads.
	Leads func() bool
	// Acts takes the audit trail.
	Acts logr.Logger
}

// GatewayPatches are what the clusters of one Gateway are to have.
type GatewayPatches struct {
	Gateway    types.NamespacedName
	GatewayUID types.UID
	Wanted     outlier.PatchSet
	// Doubtful says which clusters keep what they have. Default: none.
	Doubtful func(cluster string) bool
	State    lifecycle.State
	// Admitted are the admissions of the policies for which something is wanted, by UID.
	Admitted map[types.UID]AdmittedOutlier
}

// Apply has an EnvoyPatchPolicy say what is wanted, as far as the state has it, and deletes one that says nothing. Held are the clusters that keep
// what they have because a policy couldn't be confirmed, with why. An error means that nothing was written, or that nobody knows.
func (e *EnvoyPatches) Apply(ctx context.Context, g GatewayPatches) (held map[string]error, err error) {
	stored, before, err := e.read(ctx, g.Gateway)
	if err != nil {
		return nil, err
	}
	doubtful := func(cluster string) bool { return held[cluster] != nil || g.Doubtful != nil && g.Doubtful(cluster) }
	next := g.Wanted.Under(g.State, doubtful, before)
	if held = e.unconfirmed(ctx, g, next.New(before)); len(held) > 0 {
		next = g.Wanted.Under(g.State, doubtful, before)
	}
	if e.Leads != nil && !e.Leads() {
		return nil, fmt.Errorf("patch Gateway %s: this replica no longer surely leads: %w", g.Gateway, ErrStale)
	}
	if err := e.write(ctx, g, stored, next); err != nil {
		return nil, fmt.Errorf("patch Gateway %s: %w", g.Gateway, err)
	}
	for p, clusters := range next.New(before) {
		e.record(g, p, clusters)
	}
	return held, nil
}

// patchesKind is Envoy Gateway's.
var patchesKind = outlier.PatchPolicyKind.WithVersion("v1alpha1")

// PatchesName is the name of the EnvoyPatchPolicy of a Gateway.
func PatchesName(gateway string) string { return "autohealer." + gateway }

// read gives what is stored for a Gateway, without a UID where nothing is.
func (e *EnvoyPatches) read(ctx context.Context, gateway types.NamespacedName) (*unstructured.Unstructured, outlier.PatchSet, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(patchesKind)
	u.SetNamespace(gateway.Namespace)
	u.SetName(PatchesName(gateway.Name))
	key := client.ObjectKeyFromObject(u)
	err := e.Reader.Get(ctx, key, u)
	if apierrors.IsNotFound(err) {
		return u, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read EnvoyPatchPolicy %s: %w", key, err)
	}
	record, ours := u.GetAnnotations()[v1alpha1.AnnotationPatchedFor]
	if !ours {
		return nil, nil, fmt.Errorf("EnvoyPatchPolicy %s has no annotation %s: %w", key, v1alpha1.AnnotationPatchedFor, ErrForeign)
	}
	spec, _ := u.Object["spec"].(map[string]any)
	before, err := outlier.ReadPatchSet(spec, record)
	if err != nil {
		return nil, nil, fmt.Errorf("EnvoyPatchPolicy %s, annotation %s: %w; deleted, it is made anew", key, v1alpha1.AnnotationPatchedFor, err)
	}
	return u, before, nil
}

// unconfirmed gives the clusters for which something new is wanted, though a policy's admission is missing or no longer of what is stored.
func (e *EnvoyPatches) unconfirmed(ctx context.Context, g GatewayPatches, news map[outlier.PatchedFor][]string) map[string]error {
	held := map[string]error{}
	hold := func(p outlier.PatchedFor, err error) {
		for _, cluster := range news[p] {
			held[cluster] = fmt.Errorf("patch for OutlierPolicy %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	var asked []kube.Admission
	for p, clusters := range news {
		v := g.Admitted[p.UID]
		observes := !slices.ContainsFunc(clusters, func(name string) bool { return !g.Wanted[name].Observes })
		if !v.Valid() || v.Generation() != p.Generation || !v.Enforces() && !observes {
			hold(p, ErrNotValidated)
			continue
		}
		asked = append(asked, kube.Admission{Key: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, UID: p.UID, Generation: p.Generation})
	}
	if len(asked) == 0 {
		return held
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	wrong := e.Current.CheckAll(ctx, v1alpha1.GroupVersion.WithKind("OutlierPolicy"), asked)
	for p := range news {
		if err := wrong[p.UID]; err != nil {
			hold(p, err)
		}
	}
	return held
}

// write what is next, if it isn't what is stored.
func (e *EnvoyPatches) write(ctx context.Context, g GatewayPatches, stored *unstructured.Unstructured, next outlier.PatchSet) error {
	switch is := stored.GetUID() != ""; {
	case len(next) == 0 && !is:
		return nil
	case len(next) == 0:
		uid, version := stored.GetUID(), stored.GetResourceVersion()
		return client.IgnoreNotFound(e.Writer.Delete(ctx, stored, client.Preconditions{UID: &uid, ResourceVersion: &version}))
	case !is:
		u, err := patchObject(g, stored, next)
		if err != nil {
			return err
		}
		return e.Writer.Create(ctx, u, client.FieldOwner("autohealer"))
	}
	u, err := patchObject(g, stored, next)
	if err != nil || reflect.DeepEqual(u.Object, stored.Object) {
		return err
	}
	return e.Writer.Update(ctx, u, client.FieldOwner("autohealer"))
}

// patchObject gives the object as it is to be.
func patchObject(g GatewayPatches, stored *unstructured.Unstructured, next outlier.PatchSet) (*unstructured.Unstructured, error) {
	record, err := next.Record()
	if err != nil {
		return nil, err
	}
	u := stored.DeepCopy()
	annotations, labels := u.GetAnnotations(), u.GetLabels()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if labels == nil {
		labels = map[string]string{}
	}
	annotations[v1alpha1.AnnotationPatchedFor] = record
	labels["app.kubernetes.io/managed-by"] = "autohealer"
	u.SetAnnotations(annotations)
	u.SetLabels(labels)
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway", Name: g.Gateway.Name, UID: g.GatewayUID}})
	u.Object["spec"] = next.Spec(g.Gateway.Name)
	return u, nil
}

// record writes the audit line of one policy that is patched for.
func (e *EnvoyPatches) record(g GatewayPatches, p outlier.PatchedFor, clusters []string) {
	const samples = 5
	slices.Sort(clusters)
	v := g.Admitted[p.UID]
	Act{
		Verb: "Patch", Reason: v1alpha1.ReasonProgrammed,
		PolicyKind: "OutlierPolicy", Policy: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, PolicyUID: p.UID, PolicyGeneration: p.Generation, RuleSet: v.RuleSetHash(),
		TargetKind: "Gateway", Target: g.Gateway, TargetUID: g.GatewayUID, Part: strings.Join(clusters[:min(samples, len(clusters))], ","), Trigger: time.Time{},
	}.record(e.Acts, "Patched how a Gateway's clusters detect outliers", "clusters", len(clusters))
}
