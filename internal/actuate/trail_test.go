package actuate

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func TestTheSameActHasTheSameNameAndAnotherAnother(t *testing.T) {
	act := Act{Verb: "Taint", PolicyUID: "set", PolicyGeneration: 3, TargetUID: "node", Part: key}
	with := func(change func(*Act)) Act {
		other := act
		change(&other)
		return other
	}
	if again := with(func(*Act) {}); again.ID() != act.ID() {
		t.Error("one act has two names")
	}
	for what, other := range map[string]Act{
		"another node":       with(func(a *Act) { a.TargetUID = "other" }),
		"a later transition": with(func(a *Act) { a.Trigger = time.Unix(60, 0) }),
		"another key":        with(func(a *Act) { a.Part = foreign }),
		"another generation": with(func(a *Act) { a.PolicyGeneration = 4 }),
		"another set":        with(func(a *Act) { a.PolicyUID = "other" }),
		"another verb":       with(func(a *Act) { a.Verb = "Untaint" }),
	} {
		if other.ID() == act.ID() {
			t.Errorf("%s has the same name", what)
		}
	}
}

func TestANamespacedActTellsItsNamespaces(t *testing.T) {
	var line string
	act := Act{Verb: "Delete", PolicyKind: "WeederConfig", Policy: types.NamespacedName{Namespace: "shoot", Name: "etcd"}, TargetKind: "Pod",
		Target: types.NamespacedName{Namespace: "shoot", Name: "api-0"}}
	act.record(funcr.New(func(_, args string) { line = args }, funcr.Options{}), "Deleted a pod")
	for _, want := range []string{`"policyNamespace"="shoot"`, `"policy"="etcd"`, `"targetNamespace"="shoot"`, `"target"="api-0"`} {
		if !strings.Contains(line, want) {
			t.Errorf("%s is missing in %s", want, line)
		}
	}
}

func TestAnAuditLineHasWhatTheStepHas(t *testing.T) {
	_, admitted := set(t)
	at := time.Date(2026, 11, 21, 4, 0, 0, 0, time.UTC)
	node := &condition.Node{Name: "a", UID: "node-uid", Owned: condition.Ownership{History: []condition.PastTaint{
		{Set: "set-uid", At: metav1.NewTime(at)}, {Set: "other", At: metav1.NewTime(at.Add(time.Minute))}, {Set: "set-uid", At: metav1.NewTime(at.Add(time.Second))},
	}}}
	taint := condition.Step{Verb: "Taint", Reason: "ConditionsMatched", Set: "set-uid", SetName: "kernel", Generation: 3, Key: key, To: corev1.TaintEffectNoSchedule, Trigger: at}
	forget := condition.Step{Verb: "Repair", Reason: "PolicyDeletedOrObserving", Set: "set-uid", SetName: "kernel", Generation: 3}
	for name, c := range map[string]struct {
		step        condition.Step
		unconfirmed error
		want, never []string
	}{
		"one of which the answer didn't come": {taint, context.DeadlineExceeded, []string{`"after"="NoSchedule" "unconfirmed"="context deadline exceeded" "trigger"`}, nil},
		"a taint": {taint, nil, []string{
			`"msg"="Changed a node's taint"`, `"policyKind"="ConditionSet" "policy"="kernel" "policyUID"="set-uid" "policyGeneration"=3 "ruleSet"="` + admitted.RuleSetHash(),
			`"targetKind"="Node" "target"="a" "targetUID"="node-uid"`, `"taintKey"="` + key + `" "before"="" "after"="NoSchedule" "trigger"="2026-11-21 04:00:00 +0000 UTC"`,
		}, []string{"amespace", "unconfirmed"}},
		"a step that only forgets has no taint, and answers the last one": {forget, nil, []string{
			`"msg"="Forgot a node's past taints"`, `"verb"="Repair" "reason"="PolicyDeletedOrObserving"`, `"trigger"="2026-11-21 04:00:01 +0000 UTC"`,
		}, []string{"taintKey", "before", "after"}},
	} {
		t.Run(name, func(t *testing.T) {
			var line string
			writer := &Taints{Acts: funcr.New(func(_, args string) { line = args }, funcr.Options{})}
			writer.record(condition.Plan{Node: node, Steps: []condition.Step{c.step}}, []Admitted{admitted}, c.unconfirmed)
			for _, want := range c.want {
				if !strings.Contains(line, want) {
					t.Errorf("%s is missing in %s", want, line)
				}
			}
			for _, never := range c.never {
				if strings.Contains(line, never) {
					t.Errorf("%s is in %s", never, line)
				}
			}
		})
	}
}
