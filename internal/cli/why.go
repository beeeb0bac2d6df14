package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/explain"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
)

// explainableKinds are the kinds that explain knows, with the names that kubectl has for them; the first is what is shown.
var explainableKinds = []struct {
	kind  schema.GroupVersionKind
	names []string
}{
	{schema.GroupVersionKind{Version: "v1", Kind: "Node"}, []string{"node", "nodes", "no"}},
	{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, []string{"pod", "pods", "po"}},
	{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, []string{"deployment", "deployments", "deploy"}},
	{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "StatefulSet"}, []string{"statefulset", "statefulsets", "sts"}},
	{schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, []string{"daemonset", "daemonsets", "ds"}},
	{schema.GroupVersionKind{Version: "v1", Kind: "Service"}, []string{"service", "services", "svc"}},
}

// target is what one asks about, by the first of its kind's names.
type target struct{ kind, name string }

func (a *App) why() *cobra.Command {
	from := &clusterFlags{}
	var kinds []string
	for _, e := range explainableKinds {
		kinds = append(kinds, e.names[0])
	}
	cmd := &cobra.Command{
		Use:   "explain (node|pod|deployment|statefulset|daemonset|service|KIND)/NAME ...",
		Short: "Show what Autohealer did to an object, and what it would do and why it doesn't",
		Long: `Show what Autohealer did to an object, for which policy and because of which condition, since when, and what would end it; and
what it would do and why it doesn't: the limit, the hold time, the rule or the Guardrail that is in the way. A KIND may also be one
that ProbeConfigs scale, or that HealthCheckRegistrations are about: of such an object it shows what each check looks at and
says of it, and what follows for the condition.

Of a pod behind a Service, and of a Service, it shows whom Envoys have ejected, as far as the manager knows it; it asks them every 5s where it was
started with --ejections-from.

It reads the cluster once, or a file with --facts, and asks the planner that the manager asks. It knows when conditions turned, as their reporters wrote
it; a manager that started after that may wait up to a minute longer.

Exit code: 0 it is shown; 2 there is no such object, the command line is wrong, or the command failed.`,
		Example: `  kubectl autohealer explain node/worker-7
  kubectl autohealer explain -n shop deployment/cart service/database
  kubectl autohealer explain -n shoot--foo--bar worker/bar`,
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: a.completeObjects(kinds...),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runWhy(cmd.Context(), args, *from) },
	}
	a.addFacts(cmd, from)
	return cmd
}

func targets(args []string) ([]target, error) {
	if len(args) == 2 && !strings.Contains(args[0], "/") && !strings.Contains(args[1], "/") {
		args = []string{args[0] + "/" + args[1]}
	}
	var all []target
	for _, arg := range args {
		kind, name, slashed := strings.Cut(arg, "/")
		if !slashed || name == "" {
			return nil, fmt.Errorf("%q: write a kind and a name, such as node/worker-7; kinds are node, pod, deployment, statefulset, daemonset and service, and those that ProbeConfigs scale or HealthCheckRegistrations are about", arg)
		}
		all = append(all, target{shownKind(kind), name})
	}
	return all, nil
}

// shownKind is the first of a kind's names, of which any may have the kind's group, as in deployment.apps; of a kind that isn't
// explainable by itself, its name in lower case.
func shownKind(kind string) string {
	kind = strings.ToLower(kind)
	for _, e := range explainableKinds {
		name, group, grouped := strings.Cut(kind, ".")
		if slices.Contains(e.names, name) && (!grouped || group == e.kind.Group) {
			return e.names[0]
		}
	}
	return kind
}

func (a *App) runWhy(ctx context.Context, args []string, from clusterFlags) error {
	all, err := targets(args)
	if err != nil {
		return err
	}
	from.live = from.facts == ""
	s, err := a.readSnapshot(ctx, from)
	if err != nil {
		return err
	}
	w, err := newAnswers(ctx, a, s)
	if err != nil {
		return err
	}
	namespace := cmp.Or(ptr.Deref(a.Config.Namespace, ""), s.Namespace, metav1.NamespaceDefault)
	var texts []string
	for _, t := range all {
		text, err := w.of(ctx, t, namespace)
		if err != nil {
			return err
		}
		texts = append(texts, text)
	}
	_, err = fmt.Fprint(a.Out, w.preamble()+strings.Join(texts, "\n"))
	return err
}

// explainer is what explain knows.
type explainer struct {
	snapshot *snapshot.Snapshot
	facts    *snapshot.Facts
	guard    *guard.Guard
	weeders  snapshot.Weeders
}

func newAnswers(ctx context.Context, a *App, s *snapshot.Snapshot) (*explainer, error) {
	stored := policies{s.Guardrails(), s.Exceptions()}
	g, err := stored.guard(guard.Options{Clock: a.Clock, Authorizer: s.Rights, OwnNamespace: a.ownNamespaceOr(s)}) //nolint:contextcheck // compiling waits for nothing
	if err != nil {
		return nil, err
	}
	w := &explainer{snapshot: s, guard: g}
	if w.facts, err = snapshot.NewWatchedFacts(ctx, s, g, a.ownNamespaceOr(s)); err != nil {
		return nil, err
	}
	w.weeders = w.facts.ViewWeeders(g.Policy())
	return w, nil
}

// preamble tells what concerns everything.
func (w *explainer) preamble() string {
	switch p := w.guard.Policy(); {
	case p.Frozen():
		return "Everything is frozen by Guardrail " + strings.Join(p.FrozenBy, ", ") + ": nothing is done and nothing undone.\n\n"
	case p.Paused():
		return "Everything is paused by Guardrail " + strings.Join(p.PausedBy, ", ") + ": nothing new is done.\n\n"
	}
	return ""
}

func (w *explainer) of(ctx context.Context, t target, namespace string) (string, error) {
	key := types.NamespacedName{Namespace: namespace, Name: t.name}
	text, err := w.ofActs(ctx, t.kind, key)
	if err != nil || text != "" && !slices.Contains(w.facts.TargetKinds(), t.kind) {
		return text, err
	}
	checked, err := w.ofChecked(ctx, t.kind, key)
	if text != "" {
		_, checked, _ = strings.Cut(checked, "\n") // the title
	}
	return text + checked, err
}

// ofActs tells of what ConditionSets, WeederConfigs, OutlierPolicies and ProbeConfigs are about; "" when they aren't about a kind.
func (w *explainer) ofActs(ctx context.Context, shown string, key types.NamespacedName) (string, error) {
	switch shown {
	case "node":
		return w.ofNode(key.Name)
	case "service":
		return w.ofService(key)
	case "pod":
		return w.ofPod(key)
	}
	for _, e := range explainableKinds {
		if shown == e.names[0] {
			return w.ofWorkload(ctx, shown, e.kind.Kind, key)
		}
	}
	if kind := w.facts.DependentKind(shown); kind != "" {
		return w.ofWorkload(ctx, shown, kind, key)
	}
	return "", nil
}

func (w *explainer) ofNode(name string) (string, error) {
	views := w.facts.ViewNodes(name)
	if len(views) == 0 {
		return "", fmt.Errorf("there is no node %q", name)
	}
	return explain.Node(views[0]), nil
}

func (w *explainer) ofService(key types.NamespacedName) (string, error) {
	if !w.snapshot.Has(schema.GroupKind{Kind: "Service"}, key) {
		return "", fmt.Errorf("there is no service %q in namespace %s", key.Name, key.Namespace)
	}
	assignments, unknown := w.facts.HostAssignments(key.Namespace, func(c outlier.Key, _ outlier.Host) bool { return c.Service.Name == key.Name })
	now := w.snapshot.ServerTime.Time
	return explain.Service(key, w.weeders, now) + explain.Ejections(assignments, unknown, now), nil
}

func (w *explainer) ofPod(key types.NamespacedName) (string, error) {
	p, found := w.facts.Pod(key)
	if !found {
		return "", fmt.Errorf("there is no pod %q in namespace %s", key.Name, key.Namespace)
	}
	ours := func(d v1alpha1.PodDeletion) bool {
		return d.Namespace == key.Namespace && (d.Pod == key.Name || d.Owner == p.Workload().String())
	}
	now := w.snapshot.ServerTime.Time
	assignments, unknown := w.facts.HostAssignments(key.Namespace, func(_ outlier.Key, h outlier.Host) bool { return h.Pod == key.Name })
	return explain.Workload("pod/"+key.Name, explain.Dependent{Namespace: key.Namespace}, []*weeder.Pod{p}, w.weeders, now, ours) + explain.Ejections(assignments, unknown, now), nil
}

func (w *explainer) ofWorkload(ctx context.Context, shown, kind string, key types.NamespacedName) (string, error) {
	owner := weeder.Workload{Namespace: key.Namespace, Kind: kind, Name: key.Name}
	pods := w.facts.PodsOf(owner)
	d := explain.Dependent{Namespace: key.Namespace, Kind: kind, Name: key.Name, Configs: w.facts.ViewProbers(ctx, w.guard.Policy(), key.Namespace, kind, key.Name), Hold: w.facts.HoldOn(owner), Unknown: w.snapshot.Covers("ProbeConfig")}
	if len(d.Configs) == 0 {
		d.Orphan = w.facts.OrphanOn(ctx, key.Namespace, kind, key.Name)
	}
	if len(pods) == 0 && len(d.Configs) == 0 && d.Hold == nil && d.Orphan == nil {
		return "", fmt.Errorf("%s %q in namespace %s has no pods, or there is none", shown, key.Name, key.Namespace)
	}
	ours := func(d v1alpha1.PodDeletion) bool { return d.Namespace == key.Namespace && d.Owner == owner.String() }
	return explain.Workload(shown+"/"+key.Name, d, pods, w.weeders, w.snapshot.ServerTime.Time, ours), nil
}

// ofChecked tells of an object that HealthCheckRegistrations are about.
func (w *explainer) ofChecked(ctx context.Context, kind string, key types.NamespacedName) (string, error) {
	var kinds []string
	for _, e := range explainableKinds {
		kinds = append(kinds, e.names[0])
	}
	kinds = append(kinds, w.facts.TargetKinds()...)
	view, found, err := w.facts.ViewChecks(ctx, w.guard.Policy(), kind, key)
	views := view.Checks
	unknown := cmp.Or(w.snapshot.Covers("ProbeConfig"), w.snapshot.Covers("HealthCheckRegistration"))
	switch {
	case err != nil:
		return "", fmt.Errorf("explain %s/%s: %w", kind, key.Name, err)
	case len(views) == 0 && slices.Contains(kinds, strings.TrimSuffix(kind, "s")):
		return "", fmt.Errorf("%s/%s: the facts have nothing of what HealthCheckRegistrations are about; write new ones with facts export", kind, key.Name)
	case len(views) == 0 && unknown != nil:
		return "", fmt.Errorf("%s/%s: whether a ProbeConfig scales this kind, or a HealthCheckRegistration is about it, isn't known: %w", kind, key.Name, unknown)
	case len(views) == 0:
		return "", fmt.Errorf("\"%s/%s\": no ProbeConfig scales this kind, and no HealthCheckRegistration is about it; kinds are %s", kind, key.Name, strings.Join(kinds, ", "))
	case !found:
		return "", fmt.Errorf("there is no %s %q in namespace %s", kind, key.Name, key.Namespace)
	}
	namespace := key.Namespace
	if slices.ContainsFunc(views, func(v snapshot.ChecksView) bool { return v.Target != nil && v.Target.Namespace == "" }) {
		namespace = ""
	}
	return explain.Checked(kind+"/"+key.Name, namespace, view, w.snapshot.ServerTime.Time), nil
}
