package manager

import (
	"errors"
	"fmt"
	"net/http"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/resourcestack/autohealer/internal/kube"
)

// addProbes says what alive and ready mean. That the rules compile is a condition for starting at all. Readiness is of
// every replica, leader or not: every one serves the webhook.
func addProbes(mgr ctrl.Manager, facts *kube.Facts, serving certificate) error {
	err := mgr.AddHealthzCheck("ping", healthz.Ping)
	for name, check := range map[string]healthz.Checker{
		"caches": func(*http.Request) error {
			if !facts.Synced() { // a cache that some set needs later, such as that of Leases, must not take the webhook away
				return errors.New("the caches are not filled yet")
			}
			return nil
		},
		"certificate": serving.Ready,
		"webhook":     mgr.GetWebhookServer().StartedChecker(),
	} {
		err = errors.Join(err, mgr.AddReadyzCheck(name, check))
	}
	if err != nil {
		return fmt.Errorf("add probes: %w", err)
	}
	return nil
}
