package actuate

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
)

// AdmittedWeeder is a WeederConfig that the rules admitted.
type AdmittedWeeder = guard.Validated[*v1alpha1.WeederConfig]

// requestTimeout bounds each question: whether the admission holds, and the deletion or eviction. The API server may ask to
// come back later, and the client would wait for that here, past everything that was checked.
const requestTimeout = 10 * time.Second

// Pods deletes pods that crash-loop.
type Pods struct {
	// Client is client-go's own: controller-runtime's decodes the deleted pod from the answer and encodes it again, which took
	// more of the manager's time than all else about a deletion.
	Client  corev1client.PodsGetter
	Current Current
	// Leads says whether this process may act at all. Default: it may.
	Leads func() bool
	// Acts takes the audit trail: one line an act.
	Acts logr.Logger
}

// PodClient makes a client for Pods. It shares the manager's connection, speaks Protobuf, and asks once.
func PodClient(manager *rest.Config, connection *http.Client) (corev1client.PodsGetter, error) {
	config := rest.CopyConfig(manager)
	config.ContentType = runtime.ContentTypeProtobuf
	once := *connection
	once.Transport = noRetries{cmp.Or(once.Transport, http.DefaultTransport)}
	client, err := corev1client.NewForConfigAndClient(config, &once)
	if err != nil {
		return nil, fmt.Errorf("make the client that deletes pods: %w", err)
	}
	return client, nil
}

// noRetries keeps client-go from sending a request again, which it does after a failure that says when to: that request goes out past all that
// is checked last, and the answer to it doesn't tell what became of the first.
type noRetries struct{ http.RoundTripper }

// RoundTrip leaves out when to ask again.
func (a noRetries) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(request)
	if response != nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// Apply carries out a plan's deletion for the config that was admitted, if the pod still is what the plan was made from. Last
// is asked right before the request is sent, and its error given as it is. After another error Certain says whether the pod
// surely stayed.
func (p *Pods) Apply(ctx context.Context, plan weeder.Plan, admitted AdmittedWeeder, last func() error) error {
	if err := p.covered(ctx, plan, admitted); err != nil {
		return err
	}
	if p.Leads != nil && !p.Leads() {
		return fmt.Errorf("delete pod %s: this replica may no longer be the leader: %w", plan.Pod.Key(), ErrStale)
	}
	if err := last(); err != nil {
		return err
	}
	if err := p.remove(ctx, plan); err != nil {
		if !Certain(err) {
			p.record(plan, admitted, err)
		}
		if apierrors.IsConflict(err) || NamespaceEnds(err) {
			err = fmt.Errorf("%w: %w", ErrStale, err)
		}
		return fmt.Errorf("%s pod %s: %w", verbOf(plan), plan.Pod.Key(), err)
	}
	p.record(plan, admitted, nil)
	return nil
}

// covered: the config's admission allows the deletion, and is still what is stored.
func (p *Pods) covered(ctx context.Context, plan weeder.Plan, v AdmittedWeeder) error {
	d := plan.Delete
	switch {
	case d == nil || plan.Pod.UID == "" || plan.Pod.ResourceVersion == "":
		return fmt.Errorf("delete pod %s: the plan has no deletion, or doesn't say of which state of the pod: %w", plan.Pod.Key(), ErrNotValidated)
	case !v.Enforces() || v.UID() != d.Config || v.Generation() != d.Generation:
		return &Unconfirmed{d.Config, fmt.Errorf("delete pod %s for WeederConfig %s: %w", plan.Pod.Key(), d.Key, ErrNotValidated)}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return confirm(ctx, p.Current, "WeederConfig", d.Key, v.UID(), v.Generation())
}

// remove deletes or evicts the pod with this UID, in the state that was judged: one that recovered meanwhile stays.
func (p *Pods) remove(ctx context.Context, plan weeder.Plan) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pods := p.Client.Pods(plan.Pod.Namespace)
	same := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &plan.Pod.UID, ResourceVersion: &plan.Pod.ResourceVersion}}
	if !plan.Delete.Evict {
		return pods.Delete(ctx, plan.Pod.Name, same)
	}
	return pods.EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: plan.Pod.Namespace, Name: plan.Pod.Name}, DeleteOptions: &same,
	})
}

func verbOf(plan weeder.Plan) string {
	if plan.Delete.Evict {
		return "evict"
	}
	return "delete"
}

// Refused says that an eviction was refused by a PodDisruptionBudget: it may be granted later.
func Refused(err error) bool {
	return apierrors.IsTooManyRequests(err) && apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause)
}

// record writes the audit line of a deletion, which unconfirmed leaves in doubt.
func (p *Pods) record(plan weeder.Plan, v AdmittedWeeder, unconfirmed error) {
	d := plan.Delete
	act := Act{
		Verb: string(v1alpha1.Delete), Reason: v1alpha1.ReasonServiceRecovered,
		PolicyKind: "WeederConfig", Policy: d.Key, PolicyUID: d.Config, PolicyGeneration: d.Generation, RuleSet: v.RuleSetHash(),
		TargetKind: "Pod", Target: plan.Pod.Key(), TargetUID: plan.Pod.UID, Part: d.Service, Trigger: d.Trigger,
		Unconfirmed: unconfirmed,
	}
	if d.Evict {
		act.Verb = string(v1alpha1.Evict)
	}
	act.record(p.Acts, "Deleted a crash-looping pod", "service", d.Service, "owner", plan.Pod.Workload().String(),
		"container", d.Loop.Container, "restarts", d.Loop.Restarts, "exitCode", d.Loop.ExitCode, "repeats", len(d.Before))
}
