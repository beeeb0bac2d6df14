package actuate

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
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
	// Reader may be a cache: what is written fails where it is no longer what was read. Live is the API server.
	Reader, Live client.Reader
	Writer       client.Writer
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
	next := g.Wanted.Effective(g.State, doubtful, before)
	if held = e.unconfirmed(ctx, g, next.Changed(before)); len(held) > 0 {
		next = g.Wanted.Effective(g.State, doubtful, before)
	}
	if e.Leads != nil && !e.Leads() {
		return nil, fmt.Errorf("patch Gateway %s: this replica may no longer be the leader: %w", g.Gateway, ErrStale)
	}
	news := next.Changed(before)
	err = e.claim(ctx, news)
	if err == nil {
		err = e.write(ctx, g, stored, next)
	}
	if err != nil {
		return nil, fmt.Errorf("patch Gateway %s: %w", g.Gateway, err)
	}
	for p, clusters := range news {
		e.record(g, p, Act{Verb: "Patch", Reason: v1alpha1.ReasonProgrammed, RuleSet: g.Admitted[p.UID].RuleSetHash()}, clusters)
	}
	for p, clusters := range next.Removed(before) {
		e.record(g, p, Act{Verb: "Unpatch", Reason: "NoLongerPatched"}, clusters)
	}
	return held, nil
}

// claim gives policies the finalizer for which something new is patched: they go once that is undone.
func (e *EnvoyPatches) claim(ctx context.Context, news map[outlier.PatchedFor][]string) error {
	for p := range news {
		err := retry.RetryOnConflict(retry.DefaultRetry, func() error { // its status is written at the same time
			var op v1alpha1.OutlierPolicy
			if err := e.Live.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, &op); err != nil {
				return err
			}
			if op.UID != p.UID || op.DeletionTimestamp != nil {
				return fmt.Errorf("OutlierPolicy %s/%s is being deleted: %w", p.Namespace, p.Name, ErrStale)
			}
			return kube.SetFinalizer(ctx, e.Writer, &op, v1alpha1.FinalizerUndo, true)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// PatchedFor gives the EnvoyPatchPolicies that patch something for a policy, by the API server's word.
func (e *EnvoyPatches) PatchedFor(ctx context.Context, policy types.UID) (names []types.NamespacedName, err error) {
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(PatchesKind.GroupVersion().WithKind(PatchesKind.Kind + "List"))
	if err := e.Live.List(ctx, all); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list EnvoyPatchPolicies: %w", err)
	}
	for i := range all.Items {
		name, record := client.ObjectKeyFromObject(&all.Items[i]), all.Items[i].Annotations[v1alpha1.AnnotationPatchedFor]
		if _, ours := outlier.PatchedGateway(name); ours && strings.Contains(record, string(policy)) { // also in one that can't be read
			names = append(names, name)
		}
	}
	return names, nil
}

// PatchesKind is Envoy Gateway's.
var PatchesKind = outlier.PatchPolicyKind.WithVersion("v1alpha1")

// Stored is what a Gateway's clusters have by an EnvoyPatchPolicy of Autohealer's.
func (e *EnvoyPatches) Stored(ctx context.Context, gateway types.NamespacedName) (outlier.PatchSet, error) {
	_, set, err := e.read(ctx, gateway)
	return set, err
}

// read gives what is stored for a Gateway, without a UID where nothing is.
func (e *EnvoyPatches) read(ctx context.Context, gateway types.NamespacedName) (*unstructured.Unstructured, outlier.PatchSet, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(PatchesKind)
	u.SetNamespace(gateway.Namespace)
	u.SetName(outlier.PatchesName(gateway.Name))
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
		return nil, nil, fmt.Errorf("EnvoyPatchPolicy %s, annotation %s: %w; delete the EnvoyPatchPolicy, and Autohealer creates it again", key, v1alpha1.AnnotationPatchedFor, err)
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
	var admissions []kube.Admission
	for p, clusters := range news {
		v := g.Admitted[p.UID]
		observes := !slices.ContainsFunc(clusters, func(name string) bool { return !g.Wanted[name].Observes })
		if !v.Valid() || v.Generation() != p.Generation || !v.Enforces() && !observes {
			hold(p, ErrNotValidated)
			continue
		}
		admissions = append(admissions, kube.Admission{Key: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, UID: p.UID, Generation: p.Generation})
	}
	if len(admissions) == 0 {
		return held
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	wrong := e.Current.CheckAll(ctx, v1alpha1.GroupVersion.WithKind("OutlierPolicy"), admissions)
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
	if g.GatewayUID != "" { // else it is gone, and a freeze keeps what it had
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "gateway.networking.k8s.io/v1", Kind: "Gateway", Name: g.Gateway.Name, UID: g.GatewayUID}})
	}
	u.Object["spec"] = next.Spec(g.Gateway.Name)
	return u, nil
}

// record writes the audit line of an act for one policy.
func (e *EnvoyPatches) record(g GatewayPatches, p outlier.PatchedFor, act Act, clusters []string) {
	const samples = 5
	slices.Sort(clusters)
	act.PolicyKind, act.Policy, act.PolicyUID, act.PolicyGeneration = "OutlierPolicy", types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, p.UID, p.Generation
	act.TargetKind, act.Target, act.TargetUID, act.Part = "Gateway", g.Gateway, g.GatewayUID, strings.Join(clusters[:min(samples, len(clusters))], ",")
	act.record(e.Acts, "Patched how a Gateway's clusters detect outliers", "clusters", len(clusters))
}
