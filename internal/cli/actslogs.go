package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

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
)

// managerContainer is the manager's in its pods.
const managerContainer = "manager"

// errNothingLogged: no act in no log proves nothing.
var errNothingLogged = errors.New("there is nothing in it")

// actsInCluster reads the logs of the manager's pods, of all its replicas and of what ran in them before their last restart.
func (a *App) actsInCluster(ctx context.Context, since time.Duration) ([]trail.Act, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	own, err := a.find(ctx, c)
	if err != nil {
		return nil, err
	}
	pods, err := managerPods(ctx, c, own)
	if err != nil {
		return nil, fmt.Errorf("%w; logs that you kept are read with -f", err)
	}
	logs, err := a.podLogs()
	if err != nil {
		return nil, err
	}
	var acts []trail.Act
	var unread []string
	for _, log := range logsOf(pods, since) {
		found, err := log.read(ctx, logs().Namespace(own))
		if err != nil {
			unread = append(unread, fmt.Sprintf("%s: %s", log, strings.TrimSpace(err.Error()))) // kubelets end theirs with a new line
			continue
		}
		acts = append(acts, found...)
	}
	if len(unread) > 0 && len(acts) == 0 {
		return nil, fmt.Errorf("it can't be told what was done: %s", strings.Join(unread, "; "))
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

// podLog is the log of one run of the manager's container.
type podLog struct {
	pod     string
	options corev1.PodLogOptions
}

func logsOf(pods []corev1.Pod, since time.Duration) (logs []podLog) {
	for i := range pods {
		o := corev1.PodLogOptions{Container: managerContainer}
		if since > 0 {
			o.SinceSeconds = ptr.To(int64((since + time.Second - 1) / time.Second))
		}
		restarted := slices.ContainsFunc(pods[i].Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.Name == managerContainer && s.RestartCount > 0
		})
		if restarted {
			before := o
			before.Previous = true
			logs = append(logs, podLog{pods[i].Name, before})
		}
		logs = append(logs, podLog{pods[i].Name, o})
	}
	return logs
}

func (l podLog) String() string {
	if l.options.Previous {
		return "the log of pod " + l.pod + " before its container's last restart"
	}
	return "the log of pod " + l.pod
}

func (l podLog) read(ctx context.Context, request *rest.Request) (acts []trail.Act, err error) {
	stream, err := request.Name(l.pod).VersionedParams(&l.options, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	lines := bufio.NewReader(stream)
	if _, err := lines.Peek(1); errors.Is(err, io.EOF) && l.options.SinceSeconds == nil {
		return nil, errNothingLogged
	}
	return trail.Read(lines)
}
