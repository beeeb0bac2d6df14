package weederconfig

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/weeder"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

// yes lets every account do everything.
type yes struct{}

func (yes) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

func TestAnExceptionEndsWithoutAnyEvent(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for rule, selector := range map[string]string{
		"org/r":                              "{matchLabels: {app: api}}",
		"weederconfig/negative-pod-selector": "{matchExpressions: [{key: app, operator: NotIn, values: [db]}]}",
	} {
		t.Run(rule, func(t *testing.T) {
			clock := testingclock.NewFakeClock(noon)
			g, err := guard.New(guard.Options{Clock: clock, OwnNamespace: "system", Authorizer: yes{}})
			if err != nil {
				t.Fatal(err)
			}
			config := &v1alpha1.WeederConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "a", UID: "a", Generation: 1}}
			spec := "{watchDuration: 2m, servicesAndDependantSelectors: {db: {podSelectors: [" + selector + "]}}}"
			if err := yaml.UnmarshalStrict([]byte(spec), &config.Spec); err != nil {
				t.Fatal(err)
			}
			hash, err := guard.SpecHash(config)
			if err != nil {
				t.Fatal(err)
			}
			own := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "org", UID: "o"}, Spec: v1alpha1.GuardrailSpec{
				Rules: []v1alpha1.GuardrailRule{{Name: "r", Kinds: []string{"WeederConfig"}, Expression: "object.metadata.name != 'a'", Exceptable: true}},
			}}
			if !strings.HasPrefix(rule, "org/") {
				own.Spec.Rules = nil
			}
			g.SetGuardrails([]*v1alpha1.Guardrail{own})
			g.SetExceptions([]*v1alpha1.GuardrailException{{
				ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "x", CreationTimestamp: metav1.NewTime(noon)},
				Spec: v1alpha1.GuardrailExceptionSpec{
					RuleIDs: []string{rule}, TargetRef: v1alpha1.ExceptionTarget{Kind: "WeederConfig", Namespace: "system", Name: "a"}, SpecHash: hash,
					Reason: "the rack is being moved, OPS-1", ExpiresAt: v1alpha1.Timestamp(noon.Add(time.Minute).Format(time.RFC3339)),
				},
			}})
			facts := &kube.Facts{Weeder: weeder.NewState(limit.Builtin(), "system"), Clock: clock, Server: &kube.ServerClock{Clock: clock}}
			o := NewObserver(nil, policy.Options{Guard: g, Facts: facts, OwnNamespace: "system", Rejections: &kube.Rejections{}}, NewReporter(events.NewFakeRecorder(100)))
			key := client.ObjectKeyFromObject(config)
			o.policies.Seen(t.Context(), config)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				o.policies.Run(ctx)
				close(ended)
			}()
			defer func() {
				stop()
				<-ended
			}()
			NewWithT(t).Eventually(func() bool {
				j, _ := o.policies.Get(key)
				return j.Admitted.Valid()
			}, "10s").Should(BeTrue(), "before its end")
			clock.Step(time.Minute + time.Second)
			NewWithT(t).Eventually(func() string {
				j, _ := o.policies.Get(key)
				return j.Verdict.Message()
			}, "10s").Should(HavePrefix(rule+": "), "a minute later")
		})
	}
}
