package healthcheck

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/pkg/healthcheck"
)

// always is a check with one result.
type always healthcheck.ConditionStatus

// Check gives it.
func (a always) Check(context.Context, types.NamespacedName) (*healthcheck.SingleCheckResult, error) {
	return &healthcheck.SingleCheckResult{Status: healthcheck.ConditionStatus(a), Detail: "always"}, nil
}

func suspended(client.Object) bool { return true }

// dial is a check whose result the spec turns.
type dial struct {
	status    atomic.Value
	threshold atomic.Int64 // of progress, in nanoseconds
}

func newDial(status string) *dial {
	d := &dial{}
	d.threshold.Store(int64(time.Hour))
	d.status.Store(status)
	return d
}

// Check gives what the dial stands at: Error, Panic, Hang, or a status.
func (d *dial) Check(ctx context.Context, _ types.NamespacedName) (*healthcheck.SingleCheckResult, error) {
	switch status := d.status.Load().(string); status {
	case "Error":
		return nil, errors.New("no answer")
	case "Panic":
		panic("a mistake")
	case "Hang":
		<-make(chan struct{}) // for ever, whatever ctx says
		return nil, ctx.Err()
	default:
		return &healthcheck.SingleCheckResult{Status: healthcheck.ConditionStatus(status), Detail: "dialled", Codes: []string{"ERR_DIAL"}, ProgressingThreshold: ptr.To(time.Duration(d.threshold.Load()))}, nil
	}
}

func (d *dial) new() healthcheck.HealthCheck { return d }

// identity is a check as authors write it for Gardener's library, with every interface of it: the shoot is the one that the
// target's namespace says.
type identity struct {
	seed, shoot client.Client
	suffix      string
}

// InjectSeedClient takes the seed's.
func (i *identity) InjectSeedClient(c client.Client) { i.seed = c }

// InjectShootClient takes the shoot's.
func (i *identity) InjectShootClient(c client.Client) { i.shoot = c }

// SetLoggerSuffix takes what logs would have.
func (i *identity) SetLoggerSuffix(provider, extension string) { i.suffix = provider + "-" + extension }

// Check compares who the shoot says it is with what the seed says of it.
func (i *identity) Check(ctx context.Context, request types.NamespacedName) (*healthcheck.SingleCheckResult, error) {
	var want, got corev1.ConfigMap
	if err := i.seed.Get(ctx, types.NamespacedName{Namespace: request.Namespace, Name: "expected"}, &want); err != nil {
		return nil, err
	}
	if err := i.shoot.Get(ctx, types.NamespacedName{Namespace: "default", Name: "identity"}, &got); err != nil {
		return nil, err
	}
	if want.Data["is"] != got.Data["is"] || i.suffix != "identity-Worker" {
		return &healthcheck.SingleCheckResult{Status: healthcheck.ConditionFalse, Detail: "another shoot"}, nil
	}
	return &healthcheck.SingleCheckResult{Status: healthcheck.ConditionTrue}, nil
}
