package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func TestTheRulesOfProbeConfigs(t *testing.T) {
	want := []string{
		"probeconfig/same-secret Deny always, by the API server too",
		"probeconfig/interval Deny always, by the API server too",
		"probeconfig/timeout Deny always, by the API server too",
		"probeconfig/thresholds Deny always, by the API server too",
		"probeconfig/single-failure Warn always, by the API server too",
		"probeconfig/jitter Deny always, by the API server too",
		"probeconfig/short-backoff Warn always, by the API server too",
		"probeconfig/no-dependents Deny always, by the API server too",
		"probeconfig/duplicate-dependent Deny always, by the API server too",
		"probeconfig/missing-scale-info Deny always, by the API server too",
		"probeconfig/negative-level Deny always, by the API server too",
		"probeconfig/levels-not-reversed Warn always, by the API server too",
		"probeconfig/untouchable-dependent Deny always, by the API server too",
		"probeconfig/slow-detection Warn always, by the API server too",
		"probeconfig/lease-fraction Deny always, by the API server too",
		"probeconfig/low-lease-fraction Warn always, by the API server too",
		"probeconfig/lease-interval Deny always, by the API server too",
		"probeconfig/short-lease-grace Deny always, by the API server too",
		"probeconfig/namespace-selector-of-tenant Deny always",
		"probeconfig/account-may-not-read Deny always",
		"probeconfig/account-may-not-scale Deny always",
		"probeconfig/unreadable-spec Deny always",
		"probeconfig/backs-probed-service Deny on change",
		"probeconfig/runs-autohealer Deny on change",
		"probeconfig/unclear-dependent Warn on change",
		"probeconfig/wide-fan-out Warn on change",
		"probeconfig/unscalable-dependent Deny on change",
		"probeconfig/shared-dependent Deny on change",
		"probeconfig/same-server Deny on change",
		"probeconfig/unsafe-kubeconfig Deny on change",
		"probeconfig/secret-missing Warn on change",
		"probeconfig/expired-kubeconfig Warn on change",
		"probeconfig/dependent-missing Warn on change",
		"probeconfig/autoscaled-dependent Warn on change",
	}
	if got := rulesOf(t, "ProbeConfig"); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}

// asking answers by a function.
type asking func(authorizer.Attributes) bool

func (may asking) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if may(a) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// TestTheAccountOfAProbeConfigMayDoAllOfIt: two Secrets and as many dependents as there may be are all asked for.
func TestTheAccountOfAProbeConfigMayDoAllOfIt(t *testing.T) {
	var dependents []string
	for i := range 8 {
		dependents = append(dependents, fmt.Sprintf("{ref: {apiVersion: apps/v1, kind: Deployment, name: d%d}, scaleUp: {level: 0}, scaleDown: {level: 0}}", i))
	}
	content := object(t, "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: ProbeConfig, metadata: {name: p, namespace: shop}, spec: {serviceAccountName: prober, "+
		"internalKubeConfigSecretName: in, externalKubeConfigSecretName: out, dependentResourceInfos: ["+strings.Join(dependents, ", ")+"]}}")
	var asked []string
	ask := func(may bool) Verdict {
		asked = nil
		g := under(t, newTestGuard(t, nil), Options{Authorizer: asking(func(a authorizer.Attributes) bool {
			asked = append(asked, fmt.Sprint(a.GetUser().GetName(), " ", a.GetVerb(), " ", a.GetAPIGroup(), "/", a.GetResource(), "/", a.GetSubresource(), " ", a.GetNamespace(), "/", a.GetName()))
			return may
		})})
		return g.Review(t.Context(), creating(t, content))
	}
	if v := ask(true); !v.Allowed || len(asked) != 10 || asked[0] != "system:serviceaccount:shop:prober get /secrets/ shop/in" ||
		asked[9] != "system:serviceaccount:shop:prober update apps/deployments/scale shop/d7" {
		t.Errorf("allowed %t after %d questions: %q\n%s", v.Allowed, len(asked), asked, v.Message())
	}
	if v := ask(false); v.Allowed || !strings.Contains(v.Message(), "may not update the scale of all of apps/deployments/d0, apps/deployments/d1") {
		t.Errorf("allowed %t: %s", v.Allowed, v.Message())
	}
}

// A planner that can't read what it needs makes rules fail; one that doesn't know makes them wait for facts.
func TestAPlannerThatReadsMayFail(t *testing.T) {
	compiled, err := builtin()
	if err != nil {
		t.Fatal(err)
	}
	request := creating(t, object(t, `{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: ProbeConfig, metadata: {name: x, namespace: autohealer-system}, spec: {
  internalKubeConfigSecretName: in, externalKubeConfigSecretName: out,
  dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: kcm}, scaleUp: {level: 0}, scaleDown: {level: 0}}]}}`))
	for name, tt := range map[string]struct {
		err     error
		allowed bool
		missing Missing
	}{
		"the API server is away":     {errors.New("the API server is away"), false, ""},
		"the file doesn't have that": {fmt.Errorf("%w: no Secret", ErrNotKnown), true, MissingFacts},
		"all is known":               {nil, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			planner := PlannerThatReads(func(ctx context.Context, pc *v1alpha1.ProbeConfig, _ limit.Limits, _ time.Time) (probe.Forecast, error) {
				if _, timely := ctx.Deadline(); !timely || pc.Spec.ExternalKubeConfigSecretName != "out" {
					t.Errorf("asked about %+v, within a deadline: %v", pc.Spec, timely)
				}
				return probe.Forecast{}, tt.err
			})
			g := under(t, compiled, Options{OwnNamespace: "autohealer-system", Facts: &plainFacts{}, Authorizer: asking(nil), Planners: map[string]Planner{"ProbeConfig": planner}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			v := g.Review(ctx, request)
			if v.Allowed != tt.allowed || (len(v.Skipped) > 0) != (tt.err != nil) {
				t.Fatalf("allowed %v, skipped %+v", v.Allowed, v.Skipped)
			}
			for _, s := range v.Skipped {
				if s.Missing != tt.missing || !strings.Contains(s.Reason, tt.err.Error()) {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// plainFacts are known, and about nothing.
type plainFacts struct{}

func (*plainFacts) Synced() bool                { return true }
func (*plainFacts) Nodes() int                  { return 0 }
func (*plainFacts) Age(time.Time) time.Duration { return 0 }
