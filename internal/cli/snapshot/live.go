package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
	"github.com/resourcestack/autohealer/internal/kube/survey"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

const (
	// defaultPageSize keeps an answer of nodes at a few megabytes.
	defaultPageSize = 500
	// checksPerSecond is how many objects a second are read for HealthCheckRegistrations, each by itself.
	checksPerSecond = 500
)

// Live reads a cluster once.
type Live struct {
	Config *rest.Config
	Clock  clock.PassiveClock
	// PageSize is how many objects are asked for at a time. Default: 500.
	PageSize int64
	// Progress is told how many objects of a kind were read so far.
	Progress func(kind string, n int)
	// Policy judges the kubeconfigs that ProbeConfigs name. Default: as the manager does in a cluster.
	Policy kubeconfig.Policy
	// Warn is told what couldn't be read and what follows.
	Warn func(text string)
}

// Read reads everything that planners look at. A cluster without our kinds has none of their objects.
func (l Live) Read(ctx context.Context) (*Snapshot, error) {
	known := runtime.NewScheme()
	if err := scheme.AddToScheme(known); err != nil {
		return nil, fmt.Errorf("prepare client: %w", err)
	}
	if err := v1alpha1.AddToScheme(known); err != nil {
		return nil, fmt.Errorf("prepare client: %w", err)
	}
	cfg := rest.CopyConfig(l.Config)
	server := &kube.ServerClock{Clock: l.Clock}
	server.Watch(cfg)
	c, err := client.New(cfg, client.Options{Scheme: known})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	s := &Snapshot{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, written: specs{}}
	if s.OwnNamespace, err = FindOwn(ctx, c); err != nil {
		return nil, err
	}
	s.live = &survey.Live{Reader: c, Scales: c.SubResource("scale"), Kinds: kinds, Policy: l.Policy}
	quick := rest.CopyConfig(cfg)
	quick.QPS, quick.Burst = checksPerSecond, 2*checksPerSecond
	many, err := client.New(quick, client.Options{Scheme: known, Mapper: c.RESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	s.dependents = &dependents.Live{Reader: many, Mapper: c.RESTMapper(), Policy: l.Policy}
	if err := l.readAll(ctx, c, s); err != nil {
		return nil, err
	}
	// Whole seconds, as the file has them: the plan now and the plan from the file must be one.
	s.TakenAt = metav1.NewTime(l.Clock.Now().UTC().Truncate(time.Second))
	s.ServerTime = metav1.NewTime(server.Now().UTC().Truncate(time.Second))
	return s, nil
}

func (l Live) readAll(ctx context.Context, c client.Client, s *Snapshot) error {
	if err := list(ctx, l, c, "nodes", &corev1.NodeList{}, "", s.addNode); err != nil {
		return err
	}
	err := list(ctx, l, c, "leases", &coordinationv1.LeaseList{}, corev1.NamespaceNodeLease, s.addLease)
	if apierrors.IsForbidden(err) {
		l.Warn("node leases can't be read, so conditions that carry no heartbeat, such as NetworkUnavailable, seem silent: " + err.Error())
		err = nil
	}
	if err != nil {
		return err
	}
	if err := list(ctx, l, c, "daemonsets", &appsv1.DaemonSetList{}, "", s.addDaemonSet); err != nil {
		return err
	}
	if err := l.readPolicies(ctx, c, s); err != nil {
		return err
	}
	if err := l.readProbed(ctx, c, s); err != nil {
		return err
	}
	if err := l.readRouted(ctx, c, s); err != nil {
		return err
	}
	workloads, err := l.readWorkloads(ctx, c)
	if apierrors.IsForbidden(err) {
		l.Warn("nothing is known of what WeederConfigs, ProbeConfigs and OutlierPolicies would do: " + err.Error())
		return nil
	}
	s.Workloads = workloads
	return err
}

// readPolicies reads those that nothing else of the cluster is read for.
func (l Live) readPolicies(ctx context.Context, c client.Client, s *Snapshot) error {
	if err := listPolicies(ctx, l, c, s, "conditionsets", "ConditionSet", s.addConditionSet); err != nil {
		return err
	}
	if err := listPolicies(ctx, l, c, s, "guardrails", "Guardrail", s.addGuardrail); err != nil {
		return err
	}
	if err := listPolicies(ctx, l, c, s, "guardrailexceptions", "GuardrailException", s.addException); err != nil {
		return err
	}
	if err := listPolicies(ctx, l, c, s, "weederconfigs", "WeederConfig", s.addWeederConfig); err != nil {
		return err
	}
	return listPolicies(ctx, l, c, s, "healthcheckregistrations", "HealthCheckRegistration", s.addRegistration)
}

func (l Live) readProbed(ctx context.Context, c client.Client, s *Snapshot) error {
	probed := &Probed{}
	err := listPolicies(ctx, l, c, s, "probeconfigs", "ProbeConfig", s.addProbeConfig)
	if err == nil {
		err = list(ctx, l, c, "horizontalpodautoscalers", &autoscalingv2.HorizontalPodAutoscalerList{}, "", probed.addAutoscaler)
	}
	if apierrors.IsForbidden(err) {
		l.Warn("nothing is known of what ProbeConfigs would do: " + err.Error())
		return nil
	}
	s.Probed = probed
	return err
}

// readRouted reads routes of those kinds that the cluster has.
func (l Live) readRouted(ctx context.Context, c client.Client, s *Snapshot) error {
	routed := &Routed{}
	err := listPolicies(ctx, l, c, s, "outlierpolicies", "OutlierPolicy", s.addOutlierPolicy)
	for _, kind := range outlier.RouteKinds {
		if err != nil {
			break
		}
		var mapping *meta.RESTMapping
		if mapping, err = c.RESTMapper().RESTMapping(kind); meta.IsNoMatchError(err) {
			err = nil
			continue
		}
		if err == nil {
			routes := &unstructured.UnstructuredList{}
			routes.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
			err = list(ctx, l, c, mapping.Resource.Resource, routes, "", routed.addRoute)
		}
	}
	if apierrors.IsForbidden(err) {
		l.Warn("nothing is known of what OutlierPolicies would do: " + err.Error())
		return nil
	}
	s.Routed = routed
	return err
}

func (l Live) readWorkloads(ctx context.Context, c client.Client) (*Workloads, error) {
	w := &Workloads{}
	if err := list(ctx, l, c, "namespaces", &corev1.NamespaceList{}, "", w.addNamespace); err != nil {
		return nil, err
	}
	if err := list(ctx, l, c, "services", &corev1.ServiceList{}, "", w.addService); err != nil {
		return nil, err
	}
	if err := list(ctx, l, c, "endpointslices", &discoveryv1.EndpointSliceList{}, "", w.addSlice); err != nil {
		return nil, err
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		workloads := &metav1.PartialObjectMetadataList{}
		workloads.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(kind + "List"))
		add := func(m *metav1.PartialObjectMetadata) { w.addHeld(kind, m) }
		if err := list(ctx, l, c, strings.ToLower(kind)+"s", workloads, "", add); err != nil {
			return nil, err
		}
	}
	return w, list(ctx, l, c, "pods", &corev1.PodList{}, "", w.addPod)
}

// list reads all objects of a kind, page by page.
func list[O any](ctx context.Context, l Live, c client.Client, kind string, empty client.ObjectList, namespace string, add func(*O)) error {
	n := 0
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		page := empty.DeepCopyObject().(client.ObjectList)
		if opts.Continue == "" {
			n = 0 // the pages expired, and it begins anew
		}
		if err := c.List(ctx, page, &client.ListOptions{Namespace: namespace, Limit: opts.Limit, Continue: opts.Continue}); err != nil {
			return nil, err
		}
		if pods, ok := page.(*corev1.PodList); ok {
			forgetUnread(pods)
		}
		n += meta.LenList(page)
		l.Progress(kind, n)
		return page, nil
	})
	pages.PageSize = cmp.Or(l.PageSize, defaultPageSize)
	all, _, err := pages.List(ctx, metav1.ListOptions{})
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return nil // Autohealer isn't installed, or an older one
	case err != nil:
		return fmt.Errorf("list %s: %w", kind, err)
	}
	return meta.EachListItem(all, func(item runtime.Object) error {
		object, ok := any(item).(*O)
		if !ok {
			return fmt.Errorf("list %s: got a %T", kind, item)
		}
		add(object)
		return nil
	})
}
