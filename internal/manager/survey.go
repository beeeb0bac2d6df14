package manager

import (
	"cmp"
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/survey"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// newSurvey asks the planner of ProbeConfigs, on what the manager's informers know, and reads live only what a config names.
func newSurvey(ctx context.Context, mgr ctrl.Manager, o options, facts *kube.Facts, rights authorizer.UnconditionalAuthorizer) (*survey.Survey, error) {
	informers := &survey.Informers{Cache: mgr.GetCache(), Weeder: facts.Weeder}
	if err := informers.Follow(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make the client of discovery: %w", err)
	}
	return &survey.Survey{
		Cluster: informers,
		Objects: &survey.Live{
			Reader: mgr.GetAPIReader(), Scales: mgr.GetClient().SubResource("scale"), Kinds: kinds,
			Policy: kubeconfig.Policy{AllowLoopback: o.probeLoopback},
		},
		Rights: rights, OwnNamespace: o.namespace, Pace: survey.NewPace(),
		OwnPod: ownPod(mgr.GetAPIReader(), o.namespace),
	}, nil
}

// ownPod reads the labels of the pod that this process runs in, which POD_NAME names, or else the host's name, which is another on a
// node's network. Who runs it elsewhere has none.
func ownPod(live client.Reader, namespace string) func(context.Context) (labels.Set, error) {
	return func(ctx context.Context) (labels.Set, error) {
		host, _ := os.Hostname()
		name := cmp.Or(os.Getenv("POD_NAME"), host)
		if name == "" {
			return nil, nil
		}
		var pod metav1.PartialObjectMetadata
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		if err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &pod); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return pod.Labels, nil
	}
}
