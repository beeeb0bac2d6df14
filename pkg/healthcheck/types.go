package healthcheck

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ConditionStatus is what a check says.
type ConditionStatus string

const (
	// ConditionTrue: healthy.
	ConditionTrue ConditionStatus = "True"
	// ConditionFalse: unhealthy.
	ConditionFalse ConditionStatus = "False"
	// ConditionUnknown: the check could not be made. Return an error instead, where there is one.
	ConditionUnknown ConditionStatus = "Unknown"
	// ConditionProgressing: not healthy yet, for a reason that is expected and passes, such as a cluster that is scaled.
	ConditionProgressing ConditionStatus = "Progressing"
)

// SingleCheckResult is what one check says.
type SingleCheckResult struct {
	Status ConditionStatus
	// Detail says in a sentence what is wrong. Up to 512 bytes of it get into the condition's message. A detail that changes
	// from run to run, with a time or a counter in it, has the condition written each time.
	Detail string
	// Codes classify what is wrong, such as ERR_CONFIGURATION_PROBLEM.
	Codes []string
	// ProgressingThreshold is how long Progressing is trusted since it began; then it counts as False, until True. Without
	// one it counts as False at once: nothing would ever end it.
	ProgressingThreshold *time.Duration

	// note is what a check that comes with this package says although it is True.
	note string
}

// HealthCheck is one check of what depends on a target. A fresh one is made for each run, and used by one goroutine.
type HealthCheck interface {
	// Check judges the target of that name. An error makes the condition Unknown, and so does a panic, a nil result, and a
	// check that doesn't return by the deadline of ctx. One that ignores the deadline isn't started again for the same target
	// before it returns.
	Check(ctx context.Context, request types.NamespacedName) (*SingleCheckResult, error)
}

// ShootClient is implemented by checks that look at the shoot cluster: its client is injected before each Check. It reads
// live. InjectTargetClient, as Gardener's library has it, will do, too.
type ShootClient interface {
	InjectShootClient(client.Client)
}

// SeedClient is implemented by checks that look at the seed cluster, where the target is: its client is injected before
// each Check. It reads from the manager's cache, unstructured objects too; that something doesn't exist is confirmed by a
// live read, so NotFound may be trusted. What may not be listed or watched any more is an error. What would turn the condition False
// is confirmed by another run, of a fresh check whose client reads live. InjectSourceClient, as Gardener's library has it, will do, too.
type SeedClient interface {
	InjectSeedClient(client.Client)
}

// sourceClient and targetClient are what Gardener's own library calls them since it isn't about seeds and shoots alone.
type (
	sourceClient interface{ InjectSourceClient(client.Client) }
	targetClient interface{ InjectTargetClient(client.Client) }
)

// injectShoot gives what takes the shoot's client; nil where a check wants none.
func injectShoot(check HealthCheck) func(client.Client) {
	switch c := check.(type) {
	case ShootClient:
		return c.InjectShootClient
	case targetClient:
		return c.InjectTargetClient
	}
	return nil
}

// Referrer is implemented by checks that want to run as soon as an object of the seed changes that they look at. Others run
// when their target changes, and every sync period.
type Referrer interface {
	// Refs gives the objects: each with its name and namespace, and a type that the manager's scheme knows or unstructured. Of a
	// kind that is in no namespace the namespace says nothing.
	// It is called on an instance that no client was injected to, before each Check and within its deadline. A panic, or an
	// object of an unknown kind, makes the condition Unknown.
	Refs(target types.NamespacedName) []client.Object
}

// suffixed is what checks of Gardener's own library implement besides.
type suffixed interface {
	SetLoggerSuffix(provider, extension string)
}
