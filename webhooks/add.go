package webhooks

import (
	"fmt"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/resourcestack/autohealer/internal/guard"
)

// Path serves the reviews of every kind: the review itself says which kind it is about.
const Path = "/validate"

// AddToManager serves admission on the manager's webhook server, for all kinds that the guard judges.
func AddToManager(mgr manager.Manager, g *guard.Guard) error {
	if err := registerMetrics(); err != nil {
		return fmt.Errorf("register admission metrics: %w", err)
	}
	mgr.GetWebhookServer().Register(Path, bounding(New(g)))
	return nil
}

// New is the webhook by itself. A panic is answered with a refusal, by controller-runtime's default.
func New(g *guard.Guard) *admission.Webhook {
	return &admission.Webhook{Handler: &Handler{Guard: g}, WithContextFunc: withDeadline, LogConstructor: logOf}
}

// logOf logs nothing of a request that can't be read: whoever sends it is told, and decides how many there are.
func logOf(base logr.Logger, req *admission.Request) logr.Logger {
	if req == nil {
		return logr.Discard()
	}
	return admission.DefaultLogConstructor(base, req)
}
