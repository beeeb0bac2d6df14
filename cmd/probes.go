package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/resourcestack/autohealer/internal/kube"
)

// cachePatience is how long a readiness check waits for caches; the kubelet gives a probe one second by default.
const cachePatience = 500 * time.Millisecond

// addProbes says what alive and ready mean. That the rules compile is a condition for starting at all. Readiness is of
// every replica, leader or not: every one serves the webhook.
func addProbes(mgr ctrl.Manager, facts *kube.Facts, serving certificate) error {
	err := mgr.AddHealthzCheck("ping", healthz.Ping)
	for name, check := range map[string]healthz.Checker{
		"caches":      func(r *http.Request) error { return cachesSynced(r.Context(), mgr, facts) },
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

func cachesSynced(ctx context.Context, mgr ctrl.Manager, facts *kube.Facts) error {
	ctx, cancel := context.WithTimeout(ctx, cachePatience)
	defer cancel()
	if !mgr.GetCache().WaitForCacheSync(ctx) || !facts.Synced() {
		return errors.New("the caches are not filled yet")
	}
	return nil
}
