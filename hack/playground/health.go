package main

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// tell shows what a HealthCheckRegistration does.
func (t *tour) tell(ctx context.Context) error {
	say("A HealthCheckRegistration tells the health of what a Site depends on, in a condition on the Site")
	if err := t.showAll(ctx,
		[]string{"apply", "-f", t.here("site-kind.yaml")},
		[]string{"wait", "--for=condition=Established", "crd/sites.example.com"},
	); err != nil {
		return err
	}
	if err := t.awaitRights(ctx, harness.Username, authorizationv1.ResourceAttributes{Namespace: "default", Verb: "patch", Group: "example.com", Resource: "sites", Subresource: "status"}); err != nil {
		return err
	}
	sites := []string{"get", "sites", "-o", "custom-columns=NAME:.metadata.name,HEALTHY:.status.conditions[*].status,MESSAGE:.status.conditions[*].message"}
	if err := t.showAll(ctx,
		[]string{"apply", "-f", t.here("site.yaml")},
		[]string{"wait", "--for=condition=ComponentsHealthy", "--timeout=60s", "site/shop"},
		sites,
	); err != nil {
		return err
	}
	say("The database goes down again, and comes back")
	return t.showAll(ctx,
		[]string{"label", "pods", "-l", "app=database", unready + "=true"},
		[]string{"wait", "--for=condition=ComponentsHealthy=False", "--timeout=60s", "site/shop"},
		sites,
		[]string{"autohealer", "explain", "site/shop"},
		[]string{"label", "pods", "-l", "app=database", unready + "-"},
		[]string{"wait", "--for=condition=ComponentsHealthy", "--timeout=60s", "site/shop"},
		[]string{"delete", "-f", t.here("site.yaml"), "-f", t.here("site-kind.yaml")},
	)
}
