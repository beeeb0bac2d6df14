package conditionset

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube"
)

func TestAnExceptionEndsWithoutAnyEvent(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for rule, change := range map[string]func(*v1alpha1.ConditionSet){
		"org/r": func(*v1alpha1.ConditionSet) {},
		"conditionset/matches-healthy-nodes": func(cs *v1alpha1.ConditionSet) {
			cs.Spec.Conditions["KernelDeadlock"] = v1alpha1.MemberCondition{Status: v1alpha1.RequiredStatus{JSON: "false"}}
		},
	} {
		t.Run(rule, func(t *testing.T) {
			clock := testingclock.NewFakeClock(noon)
			g, err := guard.New(guard.Options{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			set := newSet("a")
			change(set)
			hash, err := guard.SpecHash(set)
			if err != nil {
				t.Fatal(err)
			}
			own := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: "org", UID: "o"}, Spec: v1alpha1.GuardrailSpec{
				Rules: []v1alpha1.GuardrailRule{{Name: "r", Kinds: []string{"ConditionSet"}, Expression: "object.metadata.name != 'a'", Exceptable: true}},
			}}
			if !strings.HasPrefix(rule, "org/") {
				own.Spec.Rules = nil
			}
			g.SetGuardrails([]*v1alpha1.Guardrail{own})
			g.SetExceptions([]*v1alpha1.GuardrailException{{
				ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "x", CreationTimestamp: metav1.NewTime(noon)},
				Spec: v1alpha1.GuardrailExceptionSpec{
					RuleIDs: []string{rule}, TargetRef: v1alpha1.ExceptionTarget{Kind: "ConditionSet", Name: "a"}, SpecHash: hash,
					Reason: "the rack is being moved, OPS-1", ExpiresAt: v1alpha1.Timestamp(noon.Add(time.Minute).Format(time.RFC3339)),
				},
			}})
			facts := &kube.Facts{Fleet: condition.NewFleet(limit.Builtin()), Clock: clock, Server: &kube.ServerClock{Clock: clock}}
			o := NewObserver(nil, g, facts, &kube.Rejections{})
			o.policies.Seen(t.Context(), set)
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
			if j, _ := o.policies.Get(types.NamespacedName{Name: "a"}); !j.Admitted.Valid() {
				t.Fatalf("before its end: %s", j.Verdict.Message())
			}
			clock.Step(time.Minute + time.Second)
			NewWithT(t).Eventually(func() string {
				j, _ := o.policies.Get(types.NamespacedName{Name: "a"})
				return j.Verdict.Message()
			}, "10s").Should(HavePrefix(rule+": "), "a minute later")
		})
	}
}
