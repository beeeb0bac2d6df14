// Package survey finds out what a ProbeConfig would find in a cluster before it exists: whether its Secrets can be used
// and where they lead, and whether its dependents can be scaled and who else scales them. What informers know is taken from
// them. Secrets and dependents are read one by one, and only those that the config names: Secrets are never listed, and of
// a kubeconfig nothing is kept but its server and what is wrong with it.
package survey

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

const (
	// mostTargets are looked at for one forecast. Each takes up to ten requests, and a review has five seconds; what is wrong
	// in a fan-out most often is wrong everywhere.
	mostTargets = 50
	// atOnce is how many targets are looked at at once.
	atOnce = 8
	// asksPerSecond and asksAtOnce are what reviews may ask of the API server, all of them together: nobody proves to a
	// webhook who asks, so their number is no bound. A review of the widest fan-out asks some 500 times.
	asksPerSecond = 200
	asksAtOnce    = 1000
)

// errBusy means that others' reviews came first.
var errBusy error = apierrors.NewTooManyRequests("too many ProbeConfigs are being reviewed at once; try again in a moment", 1)

// NewPace is what holds back reviews.
func NewPace() *rate.Limiter { return rate.NewLimiter(asksPerSecond, asksAtOnce) }

// Objects are read one by one. Each error means that it isn't known.
type Objects interface {
	// Kubeconfig tells what a Secret holds.
	Kubeconfig(ctx context.Context, namespace, secret string) (probe.KubeconfigFacts, error)
	// Dependent tells what the scale of an object says, and nothing else.
	Dependent(ctx context.Context, namespace string, ref probe.Ref) (probe.DependentFacts, error)
	// Annotations of what is scaled; none where they may not be read.
	Annotations(ctx context.Context, namespace string, ref probe.Ref) (map[string]string, error)
}

// Cluster is what is known without asking.
type Cluster interface {
	// Namespaces that a selector selects, hibernated and ending ones left out, sorted.
	Namespaces(ctx context.Context, selector labels.Selector) ([]string, error)
	// Holds says whether a selector selects one of these.
	Holds(ctx context.Context, selector labels.Selector, namespace string) (bool, error)
	// ServiceAt is the Service of a namespace that has such an address, "" for none.
	ServiceAt(ctx context.Context, namespace, host string) (string, error)
	// Backs says whether a pod with such labels stands behind a Service.
	Backs(service types.NamespacedName, pods labels.Selector) bool
	// RunsAutohealer says whether a pod with such labels is one of Autohealer's own.
	RunsAutohealer(namespace string, pods labels.Selector) bool
	// Autoscalers of a namespace.
	Autoscalers(ctx context.Context, namespace string) ([]Autoscaler, error)
	// Configs of a namespace. Nobody may change them.
	Configs(ctx context.Context, namespace string) ([]v1alpha1.ProbeConfig, error)
	// Counts over all configs, the same on every replica.
	Counts(ctx context.Context) (Counts, error)
}

// Autoscaler scales an object of its namespace.
type Autoscaler struct {
	// Scales the object.
	Scales probe.Ref
	// Name is that of who decides: HorizontalPodAutoscaler/web, or what that was made for, such as ScaledObject/web.
	Name string
}

// Survey asks the planner of ProbeConfigs.
type Survey struct {
	Cluster Cluster
	Objects Objects
	// Rights says whether a tenant's account may get a Secret; one that it may not is not read. Nil: the Objects are read
	// with the rights of who asks.
	Rights authorizer.UnconditionalAuthorizer
	// Pace bounds what all reviews together ask of the API server. Nil: nothing does.
	Pace *rate.Limiter
	// Annotated: what people ask for on dependents is read, too. No rule asks for it, so reviews don't pay for it.
	Annotated bool
	// OwnNamespace is Autohealer's.
	OwnNamespace string
	// OwnPod gives the labels of the pod that Autohealer runs in, nil outside of any. Nil: nobody asks.
	OwnPod func(context.Context) (labels.Set, error)
}

// Forecast tells what a config would do if it were in force now. The error is that of the first object that couldn't be read.
func (s *Survey) Forecast(ctx context.Context, pc *v1alpha1.ProbeConfig, limits limit.Limits, now time.Time) (probe.Forecast, error) {
	return s.ForecastItems(ctx, pc, limits, now, nil)
}

// ForecastItems tells it with items, where ahead isn't nil.
func (s *Survey) ForecastItems(ctx context.Context, pc *v1alpha1.ProbeConfig, limits limit.Limits, now time.Time, ahead *probe.Simulation) (probe.Forecast, error) {
	c, err := probe.NewConfig(pc, s.OwnNamespace)
	if err != nil {
		return probe.Forecast{UnreadableSpec: err.Error()}, nil //nolint:nilerr // the forecast says why, and nothing is looked at
	}
	seen, err := s.query(ctx, c)
	if err != nil {
		return probe.Forecast{}, fmt.Errorf("look at what the ProbeConfig names: %w", err)
	}
	seen.Now = now
	return probe.ForecastOf(c, limits, seen, ahead), nil
}

// query finds out all that a forecast is made of.
func (s *Survey) query(ctx context.Context, c *probe.Config) (w probe.ClusterState, err error) {
	w = probe.ClusterState{Namespaces: []string{c.Namespace}, Targets: map[string]probe.TargetFacts{}}
	if c.Namespaces != nil {
		if w.Namespaces, err = s.Cluster.Namespaces(ctx, c.Namespaces); err != nil {
			return w, err
		}
	}
	counts, err := s.Cluster.Counts(ctx)
	if err != nil {
		return w, err
	}
	w.Probed, w.ScaledDown = counts.Probed, counts.ScaledDown
	looked := w.Namespaces[:min(len(w.Namespaces), mostTargets)]
	found := make([]probe.TargetFacts, len(looked))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, namespace := range looked {
		group.Go(func() (err error) {
			found[i], err = s.target(ctx, c, namespace)
			if s.Rights != nil && apierrors.IsForbidden(err) { // to Autohealer, not to who asks
				return fmt.Errorf("%w; %s", err, probe.HintTargetRole)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return w, err
	}
	for i, namespace := range looked {
		w.Targets[namespace] = found[i]
	}
	return w, nil
}

// target finds out what a config would find in a namespace.
func (s *Survey) target(ctx context.Context, c *probe.Config, namespace string) (t probe.TargetFacts, err error) {
	if t.Internal, err = s.kubeconfig(ctx, c, namespace, c.InternalSecret); err != nil {
		return t, err
	}
	if t.External, err = s.kubeconfig(ctx, c, namespace, c.ExternalSecret); err != nil {
		return t, err
	}
	scalers, err := s.Cluster.Autoscalers(ctx, namespace)
	if err != nil {
		return t, err
	}
	others, err := s.others(ctx, namespace)
	if err != nil {
		return t, err
	}
	t.Dependents = make([]probe.DependentFacts, len(c.Dependents))
	for i, d := range c.Dependents {
		facts, err := s.dependent(ctx, namespace, d.Ref, t)
		if err != nil {
			return t, err
		}
		for _, a := range scalers {
			if same(a.Scales, d.Ref) {
				facts.Scalers = append(facts.Scalers, a.Name)
			}
		}
		for _, other := range others {
			if slices.ContainsFunc(other.Dependents, func(of probe.Dependent) bool { return same(of.Ref, d.Ref) }) {
				facts.Others = append(facts.Others, other.Key().String())
			}
		}
		t.Dependents[i] = facts
	}
	return t, nil
}

func (s *Survey) kubeconfig(ctx context.Context, c *probe.Config, namespace, secret string) (probe.KubeconfigFacts, error) {
	if s.Rights != nil && c.Namespace != s.OwnNamespace {
		if err := s.wait(ctx); err != nil {
			return probe.KubeconfigFacts{}, err
		}
		decision, _, err := s.Rights.Authorize(ctx, authorizer.AttributesRecord{
			User: serviceaccount.UserInfo(c.Namespace, c.Account, ""), Verb: "get", APIVersion: "v1",
			Resource: "secrets", Namespace: namespace, Name: secret, ResourceRequest: true,
		})
		if err != nil {
			return probe.KubeconfigFacts{}, fmt.Errorf("ask whether ServiceAccount %s may get Secret %s: %w", c.Account, secret, err)
		}
		if decision != authorizer.DecisionAllow { // a rule of its own says so
			return probe.KubeconfigFacts{}, nil
		}
	}
	if err := s.wait(ctx); err != nil {
		return probe.KubeconfigFacts{}, err
	}
	facts, err := s.Objects.Kubeconfig(ctx, namespace, secret)
	if err != nil || facts.Server == "" {
		return facts, err
	}
	facts.Service, err = s.serviceOf(ctx, namespace, facts.Server)
	return facts, err
}

func (s *Survey) dependent(ctx context.Context, namespace string, ref probe.Ref, t probe.TargetFacts) (probe.DependentFacts, error) {
	if err := s.wait(ctx); err != nil {
		return probe.DependentFacts{}, err
	}
	facts, err := s.Objects.Dependent(ctx, namespace, ref)
	if err != nil || facts.Missing || facts.Unscalable {
		return facts, err
	}
	if s.Annotated {
		annotations, err := s.Objects.Annotations(ctx, namespace, ref)
		if err != nil {
			return facts, err
		}
		facts.Ignore, facts.Hold = probe.Ignored(annotations), hold.Of(annotations)
	}
	pods, err := podsOf(facts, namespace, ref)
	if err != nil || pods == nil {
		return facts, err
	}
	facts.Own = s.Cluster.RunsAutohealer(namespace, pods)
	facts.ProbedService = s.backed(namespace, pods, t.Internal.Service, t.External.Service)
	return facts, nil
}

// wait for one more request. Where its turn would come after the review's deadline, it says so at once.
func (s *Survey) wait(ctx context.Context) error {
	if s.Pace == nil || s.Pace.Wait(ctx) == nil {
		return nil
	}
	return errBusy
}

// others are the configs that scale something in a namespace; the planner leaves out the one that is asked about.
func (s *Survey) others(ctx context.Context, namespace string) (others []*probe.Config, err error) {
	configs, err := s.Cluster.Configs(ctx, namespace)
	if err != nil {
		return nil, err
	}
	if namespace != s.OwnNamespace { // from where one may reach others
		own, err := s.Cluster.Configs(ctx, s.OwnNamespace)
		if err != nil {
			return nil, err
		}
		configs = append(slices.Clip(configs), own...)
	}
	for i := range configs {
		other, err := probe.NewConfig(&configs[i], s.OwnNamespace)
		if err != nil || configs[i].DeletionTimestamp != nil || idle(&configs[i]) {
			continue // what can't be read does nothing
		}
		reaches, err := s.reaches(ctx, other, namespace)
		if err != nil {
			return nil, err
		}
		if reaches {
			others = append(others, other)
		}
	}
	return others, nil
}

// idle says whether a config does nothing: it only observes, or rules refuse it, and it has nothing to give back. It is judged
// itself when it begins to enforce, or is changed so that rules admit it.
func idle(pc *v1alpha1.ProbeConfig) bool {
	accepted := meta.FindStatusCondition(pc.Status.Conditions, v1alpha1.ConditionAccepted)
	refused := accepted != nil && accepted.Status == metav1.ConditionFalse && accepted.ObservedGeneration == pc.Generation
	return (pc.Spec.Mode == v1alpha1.Observe || refused) && len(pc.Status.Scaled) == 0
}

func (s *Survey) reaches(ctx context.Context, c *probe.Config, namespace string) (bool, error) {
	if c.Namespaces == nil {
		return c.Namespace == namespace, nil
	}
	return s.Cluster.Holds(ctx, c.Namespaces, namespace)
}

func same(a, b probe.Ref) bool {
	return a.Name == b.Name && a.GroupVersionKind().GroupKind() == b.GroupVersionKind().GroupKind()
}
