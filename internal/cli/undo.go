package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/internal/cli/undo"
	"github.com/resourcestack/autohealer/internal/domain/hold"
)

type undoOptions struct {
	all    bool
	dryRun dryRun
	hold   time.Duration
	reason string
}

func (a *App) undo() *cobra.Command {
	o := &undoOptions{}
	cmd := &cobra.Command{
		Use:   "undo (KIND/NAME ... | --all)",
		Short: "Take back what was done to objects, by the records on them, and keep it off for a while",
		Long: `Take back what was done to objects: taints are removed from nodes, what was scaled down gets its replicas back, and EnvoyPatchPolicies are deleted. It goes by the
records on the objects alone, so it works while the manager is stopped, the webhook is down, and even when Autohealer's kinds
are gone. Deleted pods don't come back; their owners replaced them.

It says of each object what it did, and which policy would do it again. With --hold it annotates the objects first, so that
nothing new is done to them for that time; objects that are named are held also if nothing was done to them. Repeated, it finds
nothing more to do. It goes on after one object failed.

With --all it finds every object with a record in the cluster, or with -n those of one namespace. It doesn't ask: look with
--dry-run first.

Exit code: 0 all is undone, or there was nothing, or with --dry-run all can be undone; 1 something could not be undone, or looked
at; 2 the command line is wrong or the command failed.`,
		Example: `  kubectl autohealer undo node/worker-7 --hold=2h --reason="INC-4711: look at it by hand"
  kubectl autohealer undo -n shop deployment/cart statefulset/queue
  kubectl autohealer undo --all --dry-run`,
		ValidArgsFunction: a.completeObjects("node", "deployment", "statefulset"), // which have records in most clusters
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runUndo(cmd.Context(), o, args) },
	}
	cmd.Flags().BoolVar(&o.all, "all", false, "undo everything that has a record, in the cluster or in the namespace of -n")
	o.dryRun = dryRunFlag(cmd)
	cmd.Flags().DurationVar(&o.hold, "hold", 0, "keep new acts from the objects for so long, such as 2h; at most 168h")
	cmd.Flags().StringVar(&o.reason, "reason", "", "why they are held, for those who find it")
	for _, flag := range []string{"hold", "reason"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions) // it fails for a flag that isn't there
	}
	a.addConfig(cmd)
	return cmd
}

func (o *undoOptions) validate(args []string) error {
	switch {
	case o.all && len(args) > 0:
		return errors.New("--all: name objects or give --all, not both")
	case !o.all && len(args) == 0:
		return errors.New("name what to undo, such as node/worker-7, or give --all")
	case o.hold < 0 || o.hold > hold.MaxDuration:
		return fmt.Errorf("--hold=%s: must be between 0s and %s", o.hold, hold.MaxDuration)
	case o.reason != "" && o.hold == 0:
		return errors.New("--reason is why objects are held; give --hold, too")
	}
	return nil
}

func (a *App) runUndo(ctx context.Context, o *undoOptions, args []string) error {
	if err := o.validate(args); err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	u := &undo.Undoer{Client: o.dryRun.writes(c), Clock: a.cluster, DryRun: o.dryRun.value == "client", Hold: o.hold, Reason: o.reason}
	var objects []undo.Object
	var blind error // what could not be looked at
	if o.all {
		objects, blind, err = a.findUndoable(ctx, u)
	} else {
		objects, err = a.undoable(args)
	}
	if err != nil {
		return err
	}
	failed := a.undoEach(ctx, u, objects, o.dryRun.suffix())
	if blind != nil {
		fmt.Fprintf(a.ErrOut, "error: %v\nThere may be more to undo.\n", blind)
		failed++
	}
	if o.all && len(objects) == 0 && blind == nil {
		fmt.Fprintln(a.Out, "Nothing is to be undone: no object has a record.")
	}
	if failed > 0 {
		return exitStatus(exitFound)
	}
	return nil
}

// findUndoable finds all objects with a record; blind is what it could not look at.
func (a *App) findUndoable(ctx context.Context, u *undo.Undoer) (found []undo.Object, unreadable, err error) {
	kinds, err := a.kinds()
	if err != nil {
		return nil, nil, err
	}
	if err := unreachable(kinds); err != nil {
		return nil, nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	found, unreadable = u.Find(ctx, kinds, ptr.Deref(a.Config.Namespace, ""))
	return found, unreadable, nil
}

// kinds tells which kinds the cluster has now.
func (a *App) kinds() (discovery.CachedDiscoveryInterface, error) {
	kinds, err := a.Config.ToDiscoveryClient()
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	kinds.Invalidate() // a file may remember kinds that are gone, and not know new ones
	return kinds, nil
}

// unreachable says why no API server answers. One that forbids the question has answered.
func unreachable(server discovery.ServerVersionInterface) error {
	if _, err := server.ServerVersion(); err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		return err
	}
	return nil
}

// undoable reads names of objects of any kind, as kubectl does.
func (a *App) undoable(args []string) ([]undo.Object, error) {
	namespace, _, err := a.Config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, fmt.Errorf("find the namespace: %w", err)
	}
	var objects []undo.Object
	for _, arg := range args {
		kind, name, slashed := strings.Cut(arg, "/")
		if !slashed || kind == "" || name == "" {
			return nil, fmt.Errorf("%q: write a kind and a name, such as node/worker-7 or deployment/cart", arg)
		}
		mapping, err := a.mappingOf(arg, kind)
		if err != nil {
			return nil, err
		}
		key := types.NamespacedName{Name: name}
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			key.Namespace = cmp.Or(namespace, metav1.NamespaceDefault)
		}
		objects = append(objects, undo.Object{Kind: mapping.GroupVersionKind, Key: key, Title: undo.Title(mapping.GroupVersionKind, key.Namespace, name)})
	}
	return objects, nil
}

// mappingOf finds a kind of an argument by what kubectl calls it: deploy, deployments, deployments.apps, deployments.v1.apps.
func (a *App) mappingOf(arg, name string) (*meta.RESTMapping, error) {
	mapper, err := a.Config.ToRESTMapper()
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	versioned, resource := schema.ParseResourceArg(strings.ToLower(name))
	var kind schema.GroupVersionKind
	if versioned != nil {
		kind, _ = mapper.KindFor(*versioned) // it may be a group with a dot
	}
	if kind.Empty() {
		if kind, err = mapper.KindFor(resource.WithVersion("")); err != nil {
			return nil, fmt.Errorf("%q: %w", arg, err)
		}
	}
	mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", arg, err)
	}
	return mapping, nil
}

// undoEach counts the objects where it failed.
func (a *App) undoEach(ctx context.Context, u *undo.Undoer, objects []undo.Object, suffix string) (failed int) {
	for _, object := range objects {
		r := u.Undo(ctx, object)
		if r.Err == nil {
			a.printUndone(r, suffix)
			continue
		}
		failed++
		fmt.Fprintf(a.ErrOut, "error: %s: %v%s\n", object.Title, r.Err, rightsFor(r.Err))
		if r.Held != nil {
			fmt.Fprintf(a.ErrOut, "%s: %s\n", object.Title, a.heldText(r.Held))
		}
	}
	return failed
}

func (a *App) printUndone(r undo.Result, suffix string) {
	fmt.Fprintf(a.Out, "%s%s\n", r.Object.Title, suffix)
	if len(r.Did) == 0 {
		fmt.Fprintln(a.Out, "  nothing is to be undone")
	}
	for _, did := range r.Did {
		fmt.Fprintf(a.Out, "  %s\n", did)
	}
	if r.Held != nil {
		fmt.Fprintf(a.Out, "  %s\n", a.heldText(r.Held))
	}
	if r.Again != "" {
		fmt.Fprintf(a.Out, "  %s\n", r.Again)
	}
}

// heldText says until when nothing new is done to an object, and what is wrong with that.
func (a *App) heldText(h *hold.Hold) string {
	text := "held: nothing new is done to it"
	if !h.Until.IsZero() {
		text += " until " + hold.Text(h.Until)
	}
	if fault := h.Fault(a.cluster.Now()); fault != "" {
		text += ": " + fault
	}
	return text
}

// rightsFor says which role has the rights that an undo lacks, on a line of its own; "" where the error says enough.
func rightsFor(err error) string {
	if strings.Contains(err.Error(), "orbidden") { // also as the policy over records says it
		return "\nNodes take the ClusterRole autohealer-operator, workloads take autohealer-workload-operator, EnvoyPatchPolicies take autohealer-envoy-patches."
	}
	return ""
}
