package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/resourcestack/autohealer/internal/cli/trail"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// pastActs is what history tells.
type pastActs struct {
	Items []trail.Act `json:"items"`
}

type historyOptions struct {
	filename string
	since    time.Duration
	output   *output[pastActs]
}

func (a *App) history() *cobra.Command {
	o := &historyOptions{}
	offered := []string{"node", "pod", "deployment", "statefulset", "service"}
	for _, policy := range kinds.Policies() {
		offered = append(offered, strings.ToLower(policy.Name()))
	}
	cmd := &cobra.Command{
		Use:   "history [KIND/NAME ...]",
		Short: "Show what was done, from the audit trail in the managers' logs",
		Long: `Show what was done, from the audit trail in the managers' logs: each act with its time, its target, its policy and its
reason. It reads the logs of the manager's pods, of all replicas, and what their containers logged before their last restart; or
with -f logs that you kept. Lines that are no acts are passed over. With arguments it shows only acts on these objects, or for
these policies or Services, in whatever namespace. To read the pods' logs takes get on deployments and pods/log and list on pods in
Autohealer's namespace.

Exit code: 0 it is shown; 2 the command line is wrong or the command failed.`,
		Example: `  kubectl autohealer history --since=1h
  kubectl autohealer history node/worker-7
  kubectl autohealer history -f manager.log conditionset/kernel-deadlock -o json`,
		ValidArgsFunction: a.completeObjects(offered...),
		RunE:              func(cmd *cobra.Command, args []string) error { return a.runHistory(cmd.Context(), o, args) },
	}
	cmd.Flags().StringVarP(&o.filename, "filename", "f", "", "file with logs, or - for standard input, in place of the pods' logs")
	cmd.Flags().DurationVar(&o.since, "since", 0, "only acts that are younger, such as 1h")
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.MarkFlagFilename("filename", "log", "json", "txt")
	o.output = outputFlag(cmd, "History", map[string]printer[pastActs]{"": a.historyTable})
	a.addCluster(cmd, "since")
	return cmd
}

func (a *App) runHistory(ctx context.Context, o *historyOptions, args []string) error {
	wanted, err := a.wanted(args, o.filename == "")
	if err != nil {
		return err
	}
	show, err := o.output.printer()
	if err != nil {
		return err
	}
	acts, err := a.readActs(ctx, o)
	if err != nil {
		return err
	}
	now := a.Clock.Now()
	if a.cluster != nil {
		now = a.cluster.Now()
	}
	acts = slices.DeleteFunc(acts, func(act trail.Act) bool {
		concerned := slices.ContainsFunc(wanted, func(w [2]string) bool { return act.Concerns(w[0], w[1]) })
		return o.since > 0 && now.Sub(act.Time) > o.since || len(args) > 0 && !concerned
	})
	return show.write(pastActs{append([]trail.Act{}, acts...)}, a.Out)
}

// wanted reads kinds and names, of kinds as kubectl calls them: no and nodes are Node. Without a cluster nobody knows the short names.
func (a *App) wanted(args []string, inCluster bool) (wanted [][2]string, err error) {
	for _, arg := range args {
		kind, name, slashed := strings.Cut(arg, "/")
		if !slashed || kind == "" || name == "" {
			return nil, fmt.Errorf("%q: write a kind and a name, such as node/worker-7", arg)
		}
		if inCluster {
			mapping, err := a.mappingOf(arg, kind)
			if err != nil {
				return nil, err
			}
			kind = mapping.GroupVersionKind.Kind
		}
		kind, _, _ = strings.Cut(kind, ".")
		wanted = append(wanted, [2]string{kind, name})
	}
	return wanted, nil
}

func (a *App) historyTable(w io.Writer, h pastActs) error {
	if len(h.Items) == 0 {
		_, err := fmt.Fprintln(a.ErrOut, "These logs record no act.")
		return err
	}
	return trail.Table(w, h.Items)
}

func (a *App) readActs(ctx context.Context, o *historyOptions) ([]trail.Act, error) {
	if o.filename == "" {
		return a.actsInCluster(ctx, o.since)
	}
	logs := a.In
	if o.filename != "-" {
		file, err := os.Open(o.filename)
		if err != nil {
			return nil, fmt.Errorf("--filename: %w", err)
		}
		defer func() { _ = file.Close() }() // it was only read
		logs = file
	}
	lines := bufio.NewReader(logs)
	if _, err := lines.Peek(1); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("--filename %s: %w", o.filename, errNothingLogged)
	}
	return trail.Read(lines)
}

// managerContainer is the manager's in its pods.
const managerContainer = "manager"

// errNothingLogged: no act in no log proves nothing.
var errNothingLogged = errors.New("there is nothing in it")

// actsInCluster reads the logs of the manager's pods, of all its replicas and of what ran in them before their last restart.
func (a *App) actsInCluster(ctx context.Context, since time.Duration) ([]trail.Act, error) {
	c, own, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := managerPods(ctx, c, own)
	if err != nil {
		return nil, fmt.Errorf("%w; a log in a file, such as that of the manager of make run, is read with -f", err)
	}
	logs, err := a.podLogs()
	if err != nil {
		return nil, err
	}
	var acts []trail.Act
	var unread []string
	for i := range pods {
		for _, log := range logsOf(&pods[i], since) {
			found, err := readLog(ctx, logs().Namespace(own).Name(pods[i].Name), log)
			if err != nil {
				what := "the log of pod " + pods[i].Name
				if log.Previous {
					what += " before its container's last restart"
				}
				unread = append(unread, what+": "+strings.TrimSpace(err.Error())) // kubelets end theirs with a new line
			}
			acts = append(acts, found...)
		}
	}
	if len(unread) > 0 && len(acts) == 0 {
		return nil, fmt.Errorf("can't read what was done: %s", strings.Join(unread, "; "))
	}
	for _, log := range unread {
		fmt.Fprintf(a.ErrOut, "warning: acts may be missing: %s\n", log)
	}
	slices.SortStableFunc(acts, func(a, b trail.Act) int { return a.Time.Compare(b.Time) })
	return acts, nil
}

// podLogs begins requests for the logs of pods, which controller-runtime's client can't read.
func (a *App) podLogs() (get func() *rest.Request, err error) {
	cfg, err := a.restConfig()
	if err != nil {
		return nil, err
	}
	through, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	core, err := apiutil.RESTClientForGVK(corev1.SchemeGroupVersion.WithKind("Pod"), false, false, cfg, scheme.Codecs, through)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return func() *rest.Request { return core.Get().Resource("pods").SubResource("log") }, nil
}

// managerPods are those of the manager's Deployment.
func managerPods(ctx context.Context, c client.Reader, namespace string) ([]corev1.Pod, error) {
	var manager appsv1.Deployment
	if err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: managerName}, &manager); err != nil {
		return nil, fmt.Errorf("find the manager: %w", err)
	}
	selector, err := metav1.LabelSelectorAsSelector(manager.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("find the manager's pods: %w", err)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("find the manager's pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return nil, fmt.Errorf("the manager has no pods in namespace %s", namespace)
	}
	return pods.Items, nil
}

// logsOf are those of the manager's container in a pod: of the run before its last restart, and of the one that there is.
func logsOf(pod *corev1.Pod, since time.Duration) []corev1.PodLogOptions {
	now := corev1.PodLogOptions{Container: managerContainer}
	if since > 0 {
		now.SinceSeconds = ptr.To(int64((since + time.Second - 1) / time.Second))
	}
	restarted := slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == managerContainer && s.RestartCount > 0
	})
	if !restarted {
		return []corev1.PodLogOptions{now}
	}
	before := now
	before.Previous = true
	return []corev1.PodLogOptions{before, now}
}

func readLog(ctx context.Context, request *rest.Request, options corev1.PodLogOptions) (acts []trail.Act, err error) {
	stream, err := request.VersionedParams(&options, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	lines := bufio.NewReader(stream)
	if _, err := lines.Peek(1); errors.Is(err, io.EOF) && options.SinceSeconds == nil {
		return nil, errNothingLogged
	}
	return trail.Read(lines)
}
