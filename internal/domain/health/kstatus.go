package health

import (
	"fmt"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ByStatus judges an object of any kind by what kstatus makes of its generation and conditions: Current is healthy, Failed
// unhealthy, InProgress and Terminating are Progressing. An object that carries neither observedGeneration nor conditions
// is healthy by these rules.
func ByStatus(object *unstructured.Unstructured, timeout time.Duration) Result {
	computed, err := status.Compute(object)
	if err != nil {
		return Error(fmt.Errorf("compute the status of %s %s: %w", object.GetKind(), object.GetName(), err))
	}
	detail := fmt.Sprintf("%s is %s: %s", object.GetKind(), computed.Status, computed.Message)
	switch computed.Status {
	case status.CurrentStatus:
		return healthy()
	case status.FailedStatus:
		return named(unhealthy(detail), object, timeout)
	case status.InProgressStatus, status.TerminatingStatus:
		return named(progressing(detail), object, timeout)
	}
	return named(unknown(detail), object, timeout)
}
