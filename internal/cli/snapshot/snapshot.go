// Package snapshot is a cluster at one moment, as far as planners look at it: read live once, or from a file that was
// written from it. The same snapshot gives the same plan, wherever and whenever it is asked.
package snapshot

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/display"
	"github.com/resourcestack/autohealer/internal/domain/guardrail"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// Snapshot is a cluster at one moment.
type Snapshot struct {
	// TakenAt is when it was read, by the clock of the machine that did.
	TakenAt metav1.Time
	// ServerTime is the API server's clock at that moment; heartbeats are judged by it.
	ServerTime metav1.Time
	// OwnNamespace is where Autohealer runs; "" when it wasn't found.
	OwnNamespace string
	// From is the API server that it was read from; "" when nobody says.
	From string
	// Trimmed: of objects there is only what planners and stored HealthCheckRegistrations read.
	Trimmed bool
	// guessed: nobody says when it was; it is the last time that an object tells of.
	guessed bool
	// unrecorded: nobody says what was asked for; all objects are there of the kinds that are.
	unrecorded bool
	Objects    *Objects

	// Rights asks the API server that it was read from; nil for a file, and when the user may not ask.
	Rights authorizer.UnconditionalAuthorizer
	// Namespace of the kubeconfig's context that it was read by; "" for a file.
	Namespace string

	// live is asked for what policies name; nil for a file, which has what stored ones do.
	live *live
	// warn is called with what ProbeConfigs name and can't be read, and then their survey goes on: it isn't known, also later from the file.
	// Nil: it ends.
	warn func(text string)
}

// Age is how old the facts are.
func (s *Snapshot) Age(now time.Time) time.Duration { return max(0, now.Sub(s.TakenAt.Time)) }

// Describe says what the facts are of, and how old they are.
func (s *Snapshot) Describe(now time.Time) string {
	of := []string{s.count("", "Node", "node")}
	if s.Complete("WeederConfig") {
		of = append(of, s.count("", "Pod", "pod"))
	}
	of = append(of, s.count(v1alpha1.GroupVersion.Group, "ConditionSet", "ConditionSet"))
	if s.Complete("WeederConfig") {
		of = append(of, s.count(v1alpha1.GroupVersion.Group, "WeederConfig", "WeederConfig"))
	}
	return fmt.Sprintf("facts of %s, %s old", display.List(of, "and"), s.Age(now).Round(time.Second))
}

func (s *Snapshot) count(group, kind, noun string) string {
	return sample.Count(len(s.Objects.all(schema.GroupKind{Group: group, Kind: kind})), noun)
}

// Complete says whether there is all that policies of a kind are planned by.
func (s *Snapshot) Complete(kind string) bool { return len(s.missing(kind)) == 0 }

// Covers fails with what it isn't known of that policies of a kind are planned by.
func (s *Snapshot) Covers(kind string) error {
	missing := s.missing(kind)
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the facts don't say which %s there are; write new ones with facts export, as a user who may list them everywhere", display.List(missing, "and"))
}

// missing are the kinds of objects of which it isn't known which there are.
func (s *Snapshot) missing(kind string) (plurals []string) {
	for i := range resources {
		if r := &resources[i]; slices.Contains(r.of, kind) && !s.lists(r) {
			plurals = append(plurals, plural(r))
		}
	}
	return plurals
}

func (s *Snapshot) lists(r *resource) bool {
	return s.Objects.covers(r.GroupKind(), types.NamespacedName{Namespace: r.namespace}, "")
}

// Gaps says what isn't known, and what follows for all that is said by the facts.
func (s *Snapshot) Gaps() (gaps []string) {
	for i := range resources {
		if r := &resources[i]; r.without != "" && !s.lists(r) {
			gaps = append(gaps, r.without)
		}
	}
	if s.guessed {
		gaps = append(gaps, "no annotation says when the facts were written; "+s.TakenAt.UTC().Format(time.RFC3339)+", the last time that an object has, is taken for it and for the API server's time")
	}
	if s.unrecorded {
		gaps = append(gaps, "no annotation says how the objects were listed, so all of their kinds are taken to be there; if they are of one namespace or one label, write the facts with kubectl autohealer facts export")
	}
	return gaps
}

// Guardrails that are stored.
func (s *Snapshot) Guardrails() []*v1alpha1.Guardrail { return allOf[v1alpha1.Guardrail](s.Objects) }

// Exceptions that are stored.
func (s *Snapshot) Exceptions() []*v1alpha1.GuardrailException {
	return allOf[v1alpha1.GuardrailException](s.Objects)
}

// Has says whether there is an object of this name.
func (s *Snapshot) Has(kind schema.GroupKind, key types.NamespacedName) bool {
	_, there := s.Objects.find(kind, key)
	return there
}

// Synced says whether the snapshot has the policies of a kind.
func (s *Snapshot) Synced(_ context.Context, kind string) bool {
	return s.Objects.covers(ours(kind).GroupKind(), types.NamespacedName{}, "")
}

// Get gives a stored policy, nil when there is none.
func (s *Snapshot) Get(_ context.Context, kind, namespace, name string) (client.Object, error) {
	one, _ := s.Objects.find(ours(kind).GroupKind(), types.NamespacedName{Namespace: namespace, Name: name})
	return one.typed, nil
}

// All are the stored policies of a kind, in the order of their names.
func (s *Snapshot) All(_ context.Context, kind string) (iter.Seq[client.Object], error) {
	return func(yield func(client.Object) bool) {
		for _, one := range s.Objects.all(ours(kind).GroupKind()) {
			if !yield(one.typed) {
				return
			}
		}
	}, nil
}

// ruleRights is the rule over what a WeederConfig's account may do.
const ruleRights = "weederconfig/account-may-not-delete"

// verdictOf is what the manager said that rules say of a policy as it is now; nil while it has said nothing.
func verdictOf(policy kinds.Object) *metav1.Condition {
	accepted := meta.FindStatusCondition(policy.GetConditions(), v1alpha1.ConditionAccepted)
	if accepted == nil || accepted.ObservedGeneration != policy.GetGeneration() {
		return nil
	}
	return accepted
}

// StateOfChecks is what a stored registration may do under a policy, by what the manager last said that rules said, and why it may
// do no more.
func StateOfChecks(hcr *v1alpha1.HealthCheckRegistration, policy guardrail.Policy) (lifecycle.State, string) {
	accepted := meta.FindStatusCondition(hcr.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case policy.Frozen():
		return lifecycle.Frozen, "everything is frozen by Guardrail " + strings.Join(policy.FrozenBy, ", ")
	case hcr.DeletionTimestamp != nil:
		return lifecycle.Deleted, "it is being deleted"
	case accepted == nil:
		return lifecycle.Deleted, "the manager hasn't judged it yet" // it decides as little as one that goes
	case verdictOf(hcr) == nil:
		return lifecycle.NotJudged, "the manager hasn't judged it as it is now"
	case hcr.Spec.Mode == v1alpha1.Observe:
		return lifecycle.Observing, ""
	case accepted.Status != metav1.ConditionTrue:
		return lifecycle.Refused, "the rules refuse HealthCheckRegistration " + hcr.Name
	case !slices.Contains(hcr.Finalizers, v1alpha1.FinalizerUndo):
		return lifecycle.Unrecorded, "the manager can't read its targets yet; see its condition Stalled"
	case policy.Paused():
		return lifecycle.Paused, "new acts are paused by Guardrail " + strings.Join(policy.PausedBy, ", ")
	}
	return lifecycle.Active, ""
}

// StateOfWeeder is what a stored config may do while acts are paused or not, by what the manager last said that rules said.
// Who asks may not be allowed to ask what the config's account may do, and a file can't be asked.
func StateOfWeeder(wc *v1alpha1.WeederConfig, paused bool) lifecycle.State {
	accepted := verdictOf(wc)
	switch {
	case accepted == nil:
		return lifecycle.NotJudged
	case accepted.Status != metav1.ConditionTrue && strings.HasPrefix(accepted.Message, ruleRights) && !strings.Contains(accepted.Message, "\n"):
		return lifecycle.Forbidden // nothing else refuses it
	case accepted.Status != metav1.ConditionTrue:
		return lifecycle.Refused
	case paused:
		return lifecycle.Paused
	}
	return lifecycle.Active
}

// FindOwn gives the namespace that Autohealer runs in: of the installation that acts, by the mark of it; without a mark its manager's,
// or without a manager, as in the midst of an uninstall, the one that is labelled as its own or has the Lease of one that ran. It is "" when there is none, when there
// are several, since nobody can tell which is meant, and for who may not look.
func FindOwn(ctx context.Context, c client.Reader) (string, error) {
	if marked, err := findMarked(ctx, c); err != nil {
		return "", fmt.Errorf("find Autohealer's namespace: %w", err)
	} else if marked != "" {
		return marked, nil
	}
	for _, query := range []struct {
		kind   schema.GroupVersionKind
		labels client.MatchingLabels
		where  func(*metav1.PartialObjectMetadata) string
	}{
		{appsv1.SchemeGroupVersion.WithKind("DeploymentList"), client.MatchingLabels{"app.kubernetes.io/name": "autohealer", "app.kubernetes.io/component": "manager"}, (*metav1.PartialObjectMetadata).GetNamespace},
		{corev1.SchemeGroupVersion.WithKind("NamespaceList"), client.MatchingLabels{"app.kubernetes.io/name": "autohealer"}, (*metav1.PartialObjectMetadata).GetName},
		{coordinationv1.SchemeGroupVersion.WithKind("LeaseList"), client.MatchingLabels{"app.kubernetes.io/name": "autohealer", "app.kubernetes.io/component": "manager"}, (*metav1.PartialObjectMetadata).GetNamespace},
	} {
		all := &metav1.PartialObjectMetadataList{}
		all.SetGroupVersionKind(query.kind)
		if err := c.List(ctx, all, query.labels); err != nil && !apierrors.IsForbidden(err) {
			return "", fmt.Errorf("find Autohealer's namespace: %w", err)
		}
		found := sets.New[string]()
		for i := range all.Items {
			found.Insert(query.where(&all.Items[i]))
		}
		if len(found) > 0 {
			namespace, _ := found.PopAny()
			if len(found) > 0 {
				namespace = ""
			}
			return namespace, nil
		}
	}
	return "", nil
}

// findMarked gives the namespace that the cluster is marked with, if that is still there and has a manager: anyone who may annotate the
// webhook's configuration can name another.
func findMarked(ctx context.Context, c client.Reader) (string, error) {
	get := func(kind schema.GroupVersionKind, namespace, name string) (*metav1.PartialObjectMetadata, error) {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(kind)
		return object, c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	}
	configuration, err := get(admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"), "", "autohealer")
	name, uid, _ := strings.Cut(configuration.Annotations[v1alpha1.AnnotationInstallation], "/")
	if err != nil || len(validation.IsDNS1123Label(name)) > 0 { // anything else can't be asked for
		return "", unlessUnseen(err)
	}
	namespace, err := get(corev1.SchemeGroupVersion.WithKind("Namespace"), "", name)
	if err != nil || string(namespace.UID) != uid {
		return "", unlessUnseen(err)
	}
	for _, kind := range []schema.GroupVersionKind{appsv1.SchemeGroupVersion.WithKind("Deployment"), corev1.SchemeGroupVersion.WithKind("ServiceAccount")} {
		_, err := get(kind, name, "autohealer-manager")
		if err == nil || apierrors.IsForbidden(err) {
			return name, nil
		}
		if !apierrors.IsNotFound(err) {
			return "", err
		}
	}
	return "", nil
}

// unlessUnseen is an error other than that there is no such object, or that the user may not see it.
func unlessUnseen(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}
