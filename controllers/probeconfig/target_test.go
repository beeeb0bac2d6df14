package probeconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/kube"
	"github.com/resourcestack/autohealer/internal/policy"
)

func (w *env) condition(kind string) string {
	w.t.Helper()
	w.keep()
	c := meta.FindStatusCondition(w.stored().Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

func TestAProtectionFromItsBeginToItsEnd(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.probe("shoot-0", probe.OK, probe.OK)
	for i := range 2 {
		w.probe("shoot-0", probe.OK, probe.Timeout)
		w.want("shoot-0", "3 3", "below the threshold")
		if i == 1 {
			break
		}
	}
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.want("shoot-0", "0r 0r", "unhealthy outside")
	if got := w.condition("ProtectionActive"); got != "True ScaledDown" {
		t.Errorf("ProtectionActive is %q", got)
	}
	if s := w.stored().Status; len(s.Scaled) != 2 || s.Scaled[0].PreviousReplicas != 3 || s.Targets.ScaledDown != 1 || s.Targets.ExternalUnhealthy != 1 {
		t.Errorf("status %+v", s)
	}
	for range 6 {
		w.probe("shoot-0", probe.OK, probe.OK)
		w.want("shoot-0", "0r 0r", "it only just recovered")
	}
	w.probe("shoot-0", probe.OK, probe.OK)
	w.want("shoot-0", "3 3", "60 s later")
	if got := w.condition("ProtectionActive"); got != "False NothingScaledDown" {
		t.Errorf("ProtectionActive is %q", got)
	}
}

func TestTheNextManagerGoesOnFromTheRecords(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "the first")
	w.manage(fixedAuthorizer{allowed: true})
	w.want("shoot-0", "0r 0r", "nothing is known yet")
	if _, down := w.Observer.fleet().Counts(); down != 1 {
		t.Errorf("%d targets count as down, want 1", down)
	}
	for range 7 {
		w.probe("shoot-0", probe.OK, probe.OK)
	}
	w.want("shoot-0", "3 3", "the second")
}

func TestLevelsWaitForEachOther(t *testing.T) {
	w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Spec.DependentResourceInfos[1].ScaleDown.InitialDelay = "5s" })
	w.fail("shoot-0")
	w.want("shoot-0", "3 3", "its delay isn't over, and the next level waits")
	w.clock.Step(6 * time.Second)
	w.settle()
	w.want("shoot-0", "0r 0r", "then")
}

func TestDoubtScalesNothingDown(t *testing.T) {
	for name, doubt := range map[string]func(*env){
		"the API server itself is down": func(w *env) {
			for range 3 {
				w.probe("shoot-0", probe.Timeout, "")
			}
		},
		"credentials that aren't taken": func(w *env) {
			for range 3 {
				w.probe("shoot-0", probe.OK, probe.Unauthorized)
			}
		},
		"a Secret that changed since": func(w *env) {
			w.probe("shoot-0", probe.OK, probe.Timeout)
			w.probe("shoot-0", probe.OK, probe.Timeout)
			w.edit(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: "external"}}, w.rotated("external"))
			w.probe("shoot-0", probe.OK, probe.Timeout)
		},
		"a Secret that is gone": func(w *env) {
			w.probe("shoot-0", probe.OK, probe.Timeout)
			w.probe("shoot-0", probe.OK, probe.Timeout)
			if err := w.api.Delete(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: "internal"}}); err != nil {
				w.t.Fatal(err)
			}
			w.probe("shoot-0", probe.OK, probe.Timeout)
		},
		"a run that is stale": func(w *env) {
			w.probe("shoot-0", probe.OK, probe.Timeout)
			w.probe("shoot-0", probe.OK, probe.Timeout)
			w.api.down = true
			w.runs.Observe(w.Observer.targets.keys()[0], probe.Run{Started: w.clock.Now(), Ended: w.clock.Now(), Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.Timeout}})
			w.clock.Step(time.Minute)
			w.api.down = false
			w.settle()
		},
		"a namespace that is hibernated, of which no watch told": func(w *env) {
			w.probe("shoot-0", probe.OK, probe.Timeout)
			w.probe("shoot-0", probe.OK, probe.Timeout)
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0", Labels: map[string]string{"role": "hosted"}, Annotations: map[string]string{"autohealer.resourcestack.com/hibernated": "true"}}}
			if err := w.api.Update(w.t.Context(), ns); err != nil {
				w.t.Fatal(err)
			}
			w.probe("shoot-0", probe.OK, probe.Timeout)
		},
		"a pause": func(w *env) {
			w.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "freeze"}, Spec: v1alpha1.GuardrailSpec{Paused: true}}})
			w.fail("shoot-0")
		},
		"a clock that stepped": func(w *env) {
			w.Observer.fleet().SuspendScaleDown(w.clock.Now().Add(time.Hour))
			w.fail("shoot-0")
		},
		"a config that changed since it was judged": func(w *env) {
			w.probe("shoot-0", probe.OK, probe.Timeout)
			w.probe("shoot-0", probe.OK, probe.Timeout)
			pc := w.stored()
			pc.Generation++
			if err := w.api.Update(w.t.Context(), pc); err != nil {
				w.t.Fatal(err)
			}
			w.probe("shoot-0", probe.OK, probe.Timeout)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 1, nil)
			w.probe("shoot-0", probe.OK, probe.OK)
			doubt(w)
			w.want("shoot-0", "3 3", name)
		})
	}
}

func TestARefusedConfigProbesNothingAndScalesNothing(t *testing.T) {
	w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Spec.ExternalKubeConfigSecretName = "internal" })
	if got := w.condition("Accepted"); got != "False RuleViolated" {
		t.Errorf("Accepted is %q", got)
	}
	if s := w.stored().Status; s.Targets.Probed != 0 {
		t.Errorf("%d targets are probed", s.Targets.Probed)
	}
	w.fail("shoot-0")
	w.want("shoot-0", "3 3", "refused")
}

// othersOnly is a rule that refuses the config.
var othersOnly = []*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "org"}, Spec: v1alpha1.GuardrailSpec{
	Rules: []v1alpha1.GuardrailRule{{Name: "no", Kinds: []string{"ProbeConfig"}, Severity: "Deny", Expression: "object.metadata.name == 'other'"}},
}}}

func TestARuleThatComesLaterLetsWhatIsHealthyBeGivenBack(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.guard.SetGuardrails(othersOnly)
	w.see()
	if got := w.condition("Accepted"); got != "False RuleViolated" {
		t.Errorf("Accepted is %q", got)
	}
	for range 7 {
		w.probe("shoot-0", probe.OK, probe.OK)
	}
	w.want("shoot-0", "3 3", "healthy again")
	w.fail("shoot-0")
	w.want("shoot-0", "3 3", "nothing new")
}

func TestWhatWithdrawsAConfigGivesBackAtOnce(t *testing.T) {
	for name, withdraw := range map[string]func(*env){
		"deletion": func(w *env) {
			if err := w.api.Delete(w.t.Context(), w.stored()); err != nil {
				w.t.Fatal(err)
			}
			w.see()
			w.keep()
			if w.stored() == nil {
				w.t.Fatal("it is gone before anything is given back")
			}
		},
		"mode Observe": func(w *env) { w.edit(w.stored(), `{"metadata":{"generation":2},"spec":{"mode":"Observe"}}`) },
		"another label": func(w *env) {
			w.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0"}}, `{"metadata":{"labels":{"role":null}}}`)
		},
		"other dependents": func(w *env) {
			w.edit(w.stored(), `{"metadata":{"generation":2},"spec":{"dependentResourceInfos":[{"ref":{"apiVersion":"apps/v1","kind":"Deployment","name":"other"},"scaleUp":{"level":0},"scaleDown":{"level":0}}]}}`)
		},
		"other dependents, while no manager runs": func(w *env) {
			w.keep()
			w.edit(w.stored(), `{"metadata":{"generation":2},"spec":{"dependentResourceInfos":[{"ref":{"apiVersion":"apps/v1","kind":"Deployment","name":"other"},"scaleUp":{"level":0},"scaleDown":{"level":0}}]}}`)
			w.manage(fixedAuthorizer{allowed: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 1, nil)
			w.fail("shoot-0")
			w.want("shoot-0", "0r 0r", "before")
			withdraw(w)
			w.settle()
			w.want("shoot-0", "3 3", "after")
			if name != "deletion" {
				return
			}
			if w.keep(); w.stored() != nil {
				t.Error("it isn't let go")
			}
		})
	}
}

func TestAConfigIsChangedWhileANamespaceIsBeingDeleted(t *testing.T) {
	w := newEnv(t, 2, nil)
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "before")
	ending := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0"}}
	w.edit(ending, `{"metadata":{"finalizers":["example.com/held"]}}`)
	if err := w.api.Delete(t.Context(), ending); err != nil {
		t.Fatal(err)
	}
	w.see()
	w.settle()
	w.edit(w.stored(), `{"metadata":{"generation":2},"spec":{"dependentResourceInfos":[{"ref":{"apiVersion":"apps/v1","kind":"Deployment","name":"other"},"scaleUp":{"level":0},"scaleDown":{"level":0}}]}}`)
	w.settle()
	if got := w.stored().Status.Targets; got == nil || got.ScaledDown != 0 {
		t.Errorf("its targets are %+v: what was scaled down goes with its namespace", got)
	}
}

func TestAFreezeStopsUndoToo(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Spec: v1alpha1.GuardrailSpec{Frozen: true}}})
	if err := w.api.Delete(t.Context(), w.stored()); err != nil {
		t.Fatal(err)
	}
	w.see()
	for range 7 {
		w.probe("shoot-0", probe.OK, probe.OK)
	}
	w.want("shoot-0", "0r 0r", "frozen")
	w.guard.SetGuardrails(nil)
	w.settle()
	w.want("shoot-0", "3 3", "thawed")
}

func TestReadySaysWhatCantBeRead(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.probe("shoot-0", probe.OK, probe.OK)
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.clock.Step(10 * time.Second)
	key := w.Observer.targets.keys()[0]
	w.runs.Observe(key, probe.Run{Started: w.clock.Now(), Ended: w.clock.Now(), Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.Timeout}})
	w.api.down = true
	if _, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err == nil {
		t.Error("it isn't tried again")
	}
	w.api.down = false
	if got := w.condition("Ready"); got != "Unknown Retrying" {
		t.Errorf("Ready is %q", got)
	}
	w.settle()
	w.want("shoot-0", "0r 0r", "once it can")
	if got := w.condition("Ready"); got != "True Operative" {
		t.Errorf("Ready is %q", got)
	}
}

// A manager that starts may see a deleted config before the namespaces in which it has to give something back.
func TestADeletedConfigStaysUntilItsTargetsAreKnown(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	if err := w.api.Delete(t.Context(), w.stored()); err != nil {
		t.Fatal(err)
	}
	o := NewObserver(nil, Options{Options: policy.Options{Guard: w.guard, Facts: w.Observer.Facts, OwnNamespace: ownNamespace, Rejections: &kube.Rejections{}}, Witnesses: w.Observer.Witnesses})
	w.Observer, w.keeper.Observer = o, o
	o.policies.Seen(t.Context(), w.stored())
	o.policies.Judge(t.Context(), client.ObjectKeyFromObject(w.stored()))
	w.keep()
	if w.stored() == nil {
		t.Fatal("it is let go before the namespaces are known")
	}
	w.see()
	o.markSynced()
	w.settle()
	w.want("shoot-0", "3 3", "once they are")
	if w.keep(); w.stored() != nil {
		t.Error("it isn't let go")
	}
}

func TestATargetThatMayNotBeReadUsesUpNobodysCap(t *testing.T) {
	w := newEnv(t, 2, nil)
	w.api.denied = "shoot-1"
	w.manage(fixedAuthorizer{allowed: true})
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "beside one that may not be read")
}

func TestTheCapAndTheBreaker(t *testing.T) {
	w := newEnv(t, 6, nil)
	for i := range 6 {
		w.probe(shoot(i), probe.OK, probe.OK)
	}
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "the first")
	w.clock.Step(time.Minute)
	w.fail("shoot-1")
	w.want("shoot-1", "3 3", "20% of 6 is 1")
	if got := w.condition("LimitReached"); got != "True TooManyScaledDown" {
		t.Errorf("LimitReached is %q", got)
	}
	w.fail("shoot-2")
	w.fail("shoot-3")
	if got := w.condition("BreakerOpen"); got != "True TooManyFailTogether" {
		t.Errorf("BreakerOpen is %q", got)
	}
	id := w.stored().Status.BreakerID
	w.manage(fixedAuthorizer{allowed: true})
	if _, open := w.Observer.fleet().Breaker(); !open {
		t.Error("the next manager forgot the breaker")
	}
	w.edit(w.stored(), `{"metadata":{"annotations":{"autohealer.resourcestack.com/reset-breaker":"`+id+`"}}}`)
	if got := w.condition("BreakerOpen"); got != "" || w.stored().Status.BreakerID != "" {
		t.Errorf("after the reset: %q, %q", got, w.stored().Status.BreakerID)
	}
}

func TestASecretThatCantBeUsedIsToldAndCountsNothing(t *testing.T) {
	w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil })
	if got := w.condition("Stalled"); got != "" {
		t.Errorf("before: %q", got)
	}
	w.edit(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: "external"}}, `{"data":{"kubeconfig":null}}`)
	w.clock.Step(11 * time.Minute)
	w.settle()
	if got := w.condition("Stalled"); got != "True SecretUnusable" {
		t.Errorf("Stalled is %q", got)
	}
	message := meta.FindStatusCondition(w.stored().Status.Conditions, "Stalled").Message
	if message != "SecretMissing: Secret shoot-0/external has no key kubeconfig." || w.condition("ExternalHealthy") != "Unknown SecretUnusable" {
		t.Errorf("it says %q", message)
	}
}

func TestAProbeThatGetsNoClearAnswerIsTold(t *testing.T) {
	alone := func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil }
	for name, c := range map[string]struct {
		change             func(*v1alpha1.ProbeConfig)
		internal, external probe.Class
		sides, told        string
	}{
		"outside": {alone, probe.OK, probe.Unauthorized, "True ProbeSucceeds, Unknown Undetermined",
			"The external probe has had no clear answer since BEGAN, and nothing is scaled: Unauthorized. Look at the kubeconfig's credentials, and at the API server."},
		"inside": {alone, probe.TooManyRequests, "", "Unknown Undetermined, Unknown Undetermined",
			"The external probe hasn't run since BEGAN: the internal probe gets no clear answer, and nothing is scaled."},
		"a redirect": {alone, probe.OK, probe.Redirected, "True ProbeSucceeds, Unknown Undetermined",
			"The external probe has had no clear answer since BEGAN, and nothing is scaled: Redirected. Look at the kubeconfig's credentials, and at the API server."},
		"of one of many": {nil, probe.OK, probe.Forbidden, "True ProbeSucceeds, Unknown Undetermined",
			"The external probe of 1 target gets no clear answer, and nothing is scaled there; see worstTargets."},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 1, c.change)
			sides := func() string { return w.condition("InternalHealthy") + ", " + w.condition("ExternalHealthy") }
			w.fail("shoot-0")
			w.want("shoot-0", "0r 0r", "it fails outside")
			w.probe("shoot-0", c.internal, c.external)
			began := w.clock.Now()
			for w.clock.Since(began) < 5*time.Minute {
				w.probe("shoot-0", c.internal, c.external)
			}
			if got := sides(); got != "True ProbeSucceeds, False ProbeFails" {
				t.Errorf("for five minutes: %s", got)
			}
			w.probe("shoot-0", c.internal, c.external)
			if got := sides(); got != c.sides {
				t.Errorf("then: %s, want %s", got, c.sides)
			}
			st := w.stored().Status
			if got := meta.FindStatusCondition(st.Conditions, "ExternalHealthy").Message; got != strings.ReplaceAll(c.told, "BEGAN", began.UTC().Format(time.RFC3339)) {
				t.Errorf("it says %q", got)
			}
			if ready := meta.FindStatusCondition(st.Conditions, "Ready").Message; !strings.Contains(ready, "1 has had no clear answer for long, and isn't protected") || st.Targets.Undetermined != 1 {
				t.Errorf("Ready says %q of %+v", ready, st.Targets)
			}
			if c.change == nil && (len(st.WorstTargets) != 1 || st.WorstTargets[0].Reason != "Undetermined") {
				t.Errorf("worst: %+v", st.WorstTargets)
			}
			w.want("shoot-0", "0r 0r", "nothing is known")
			for range 8 {
				w.probe("shoot-0", probe.OK, probe.OK)
			}
			if got := sides(); got != "True ProbeSucceeds, True ProbeSucceeds" || w.stored().Status.Targets.Undetermined != 0 {
				t.Errorf("at last: %s, %+v", got, w.stored().Status.Targets)
			}
			w.want("shoot-0", "3 3", "it is healthy again")
		})
	}
}

func TestAFleetIsHealthyOnceEachTargetWas(t *testing.T) {
	w := newEnv(t, 2, nil)
	sides := func() string {
		said := w.condition("InternalHealthy") + ", " + w.condition("ExternalHealthy")
		return said + ": " + meta.FindStatusCondition(w.stored().Status.Conditions, "ExternalHealthy").Message
	}
	w.probe("shoot-0", probe.OK, probe.OK)
	if got := sides(); got != "Unknown BelowThreshold, Unknown BelowThreshold: The external probe of 1 target hasn't succeeded yet." {
		t.Error("one of two has been probed: ", got)
	}
	w.probe("shoot-1", probe.OK, probe.Timeout)
	if got := sides(); got != "True ProbeSucceeds, Unknown BelowThreshold: The external probe of 1 target hasn't succeeded yet." {
		t.Error("the kubeconfig of the other has never worked, and nothing would be scaled down there: ", got)
	}
	w.probe("shoot-1", probe.OK, probe.OK)
	if got := sides(); got != "True ProbeSucceeds, True ProbeSucceeds: No target's external probe fails." {
		t.Error("both have succeeded: ", got)
	}
	w.probe("shoot-1", probe.OK, probe.Timeout)
	if got := sides(); got != "True ProbeSucceeds, True ProbeSucceeds: No target's external probe fails." {
		t.Error("one failure below the threshold: ", got)
	}
}

func TestAFleetDoesNotRecoverByWhatIsNotKnown(t *testing.T) {
	w := newEnv(t, 2, nil)
	probe3 := func(internal, external probe.Class) {
		for range 3 {
			w.probe("shoot-1", internal, external)
		}
	}
	w.probe("shoot-0", probe.OK, probe.OK)
	probe3(probe.OK, probe.OK)
	probe3(probe.OK, probe.Timeout)
	if got := w.condition("ExternalHealthy"); got != "False ProbeFails" {
		t.Error("one of two fails: ", got)
	}
	probe3(probe.Timeout, "")
	if got := w.condition("ExternalHealthy"); got != "Unknown BelowThreshold" {
		t.Error("its API server is down as well, and its external probe doesn't run: ", got)
	}
	probe3(probe.OK, probe.OK)
	if got := w.condition("ExternalHealthy"); got != "True ProbeSucceeds" {
		t.Error("it is healthy again: ", got)
	}
}

func TestARedirectScalesNothingAndIsToldAtOnce(t *testing.T) {
	w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil })
	for range 4 {
		w.probe("shoot-0", probe.OK, probe.Redirected)
	}
	w.want("shoot-0", "3 3", "whatever it redirects to is never asked")
	if got := w.condition("ExternalHealthy"); got != "Unknown BelowThreshold" {
		t.Errorf("ExternalHealthy is %q", got)
	}
	if got := meta.FindStatusCondition(w.stored().Status.Conditions, "ExternalHealthy").Message; got != "The external probe has reached neither failureThreshold nor successThreshold. The latest result doesn't count: Redirected." {
		t.Errorf("it says %q", got)
	}
}

func TestATenantsAccountIsAskedAgainBeforeAnythingIsScaledDown(t *testing.T) {
	rights := func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil }
	w := newEnv(t, 1, rights)
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "with rights")
	w.manage(fixedAuthorizer{})
	if got := w.condition("Accepted"); got != "False RuleViolated" {
		t.Errorf("Accepted is %q", got)
	}
	if n := w.stored().Status.Targets.Probed; n != 0 {
		t.Errorf("%d are probed with Secrets that the account may not read", n)
	}
	w.want("shoot-0", "0r 0r", "nobody may look whether it is healthy again")
}

// In an outage the own API server may answer late, too. What the probes found is no less true for it.
func TestWhileNobodyTellsAnAccountsRightsProbesGoOnAndNothingIsTaken(t *testing.T) {
	for name, test := range map[string]struct {
		before           func(*env)
		finds            probe.Class
		held, afterwards string
	}{
		"what fails is scaled down afterwards": {func(w *env) { w.probe("shoot-0", probe.OK, probe.OK) }, probe.Timeout, "3 3", "0r 0r"},
		"what is scaled down stays so":         {func(w *env) { w.fail("shoot-0") }, probe.Timeout, "0r 0r", "0r 0r"},
		"what recovers is given back":          {func(w *env) { w.fail("shoot-0") }, probe.OK, "3 3", "3 3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil })
			test.before(w)
			w.rights.silent = true
			w.see()
			for range 7 {
				w.probe("shoot-0", probe.OK, test.finds)
			}
			w.want("shoot-0", test.held, "no answer")
			if n := len(w.Prober.Servers(w.keyOf("shoot-0"))); n != 2 {
				t.Errorf("%d servers are probed without an answer", n)
			}
			w.rights.silent = false
			w.see()
			w.probe("shoot-0", probe.OK, test.finds)
			w.want("shoot-0", test.afterwards, "answered")
		})
	}
	t.Run("what wasn't probed isn't", func(t *testing.T) {
		w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil })
		w.manage(fixedAuthorizer{silent: true})
		if n := len(w.Prober.Servers(w.keyOf("shoot-0"))); n != 0 {
			t.Errorf("%d servers are probed with Secrets that the account perhaps may not read", n)
		}
	})
}

func TestWhatOthersScaledIsTheirs(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.edit(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: "kcm"}}, `{"metadata":{"generation":9},"spec":{"replicas":1}}`)
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.want("shoot-0", "1r 0r", "someone wants it to run")
	w.keep()
	if ready := meta.FindStatusCondition(w.stored().Status.Conditions, "Ready"); !strings.Contains(ready.Message, "Deployment/kcm in shoot-0: someone scaled it to 1") {
		t.Errorf("Ready says %q", ready.Message)
	}
	for range 7 {
		w.probe("shoot-0", probe.OK, probe.OK)
	}
	w.want("shoot-0", "1 3", "the other is given back")
}

func TestASecretThatIsWrittenWithoutAnotherKubeconfigChangesNothing(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.probe("shoot-0", probe.OK, probe.OK)
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.edit(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: "external"}}, `{"metadata":{"annotations":{"seen":"today"}}}`)
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.want("shoot-0", "0r 0r", "what was counted still counts")
}

func TestTheNextManagerLeavesAloneWhatSomeoneTookOver(t *testing.T) {
	for name, replicas := range map[string]string{"with as many replicas": "3", "with others": "1"} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 1, nil)
			w.fail("shoot-0")
			for _, d := range []string{"kcm", "mcm"} {
				w.edit(w.deployment(d), `{"metadata":{"generation":9},"spec":{"replicas":`+replicas+`}}`)
			}
			w.probe("shoot-0", probe.OK, probe.Timeout)
			w.want("shoot-0", replicas+"r "+replicas+"r", "someone wants them to run, outage or not")
			if got := w.condition("ProtectionActive"); got != "False ScaledByOthers" || w.stored().Status.Targets.ScaledDown != 0 {
				t.Errorf("ProtectionActive is %q while all run", got)
			}
			w.manage(fixedAuthorizer{allowed: true})
			w.fail("shoot-0")
			w.want("shoot-0", replicas+"r "+replicas+"r", "the next manager knows it too")
			for range 7 {
				w.probe("shoot-0", probe.OK, probe.OK)
			}
			w.want("shoot-0", replicas+" "+replicas, "the outage is over")
			w.fail("shoot-0")
			w.want("shoot-0", "0r 0r", "the next one")
		})
	}
}

func TestTheBreakerIsOneForAllConfigs(t *testing.T) {
	w := newEnv(t, 6, nil)
	for i := range 6 {
		w.probe(shoot(i), probe.OK, probe.OK)
	}
	w.Observer.fleet().FollowBreaker(&limit.Opening{ID: "20260301t115900z", OpenedAt: noon})
	w.fail("shoot-0")
	w.want("shoot-0", "3 3", "another config's targets opened it")
	if got := w.condition("BreakerOpen"); got != "True TooManyFailTogether" || w.stored().Status.BreakerID != "20260301t115900z" {
		t.Errorf("BreakerOpen is %q, breakerID %q", got, w.stored().Status.BreakerID)
	}
	stale := w.stored().DeepCopy()
	w.edit(w.stored(), `{"metadata":{"annotations":{"autohealer.resourcestack.com/reset-breaker":"20260301t115900z"}}}`)
	stale.Name, stale.UID, stale.Spec.NamespaceSelector = "another", "another-uid", &v1alpha1.LabelSelector{MatchLabels: map[string]string{"role": "none"}}
	w.Observer.policies.Seen(t.Context(), stale) // its status wasn't written since
	w.Observer.policies.Judge(t.Context(), client.ObjectKeyFromObject(stale))
	if b, open := w.Observer.fleet().Breaker(); open {
		t.Errorf("a status that is late opened it again: %+v", b)
	}
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.want("shoot-0", "0r 0r", "after the reset")
}

// A standby probes nothing. What it knows of the breaker is what the leader's statuses tell, that it closed, too.
func TestAStandbyFollowsTheBreaker(t *testing.T) {
	w := newEnv(t, 1, nil)
	for _, id := range []string{"20260301t115900z", "20260301t121500z", "", "20260301t121600z", ""} {
		stored := w.stored().DeepCopy()
		stored.Status.BreakerID = id
		w.Observer.policies.Seen(t.Context(), stored)
		if o, open := w.Observer.fleet().Breaker(); open != (id != "") || o.ID != id {
			t.Fatalf("the leader's is %q, the standby's %q, open: %t", id, o.ID, open)
		}
	}
}

func TestATargetThatIsntSelectedAnyMoreIsDroppedAlsoWhenItWasOnlyObserved(t *testing.T) {
	w := newEnv(t, 2, func(pc *v1alpha1.ProbeConfig) { pc.Spec.Mode = v1alpha1.Observe })
	w.probe("shoot-0", probe.OK, probe.OK)
	w.probe("shoot-1", probe.OK, probe.OK)
	w.edit(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shoot-0"}}, `{"metadata":{"labels":{"role":null}}}`)
	w.settle()
	if keys := w.Observer.targets.keys(); len(keys) != 1 {
		t.Errorf("targets are %v", keys)
	}
	if probed, _ := w.Observer.fleet().Counts(); probed != 1 {
		t.Errorf("%d are probed, want 1", probed)
	}
}

// A run that ends after its target was dropped must not bring it back.
func TestARunThatEndsLateDoesntCountADroppedTarget(t *testing.T) {
	w := newEnv(t, 2, nil)
	w.probe("shoot-0", probe.OK, probe.OK)
	w.probe("shoot-1", probe.OK, probe.OK)
	late := w.Observer.targets.of(client.ObjectKeyFromObject(w.stored()))[0]
	w.Observer.fleet().Forget(late.Key()) // as its end does, between the run's two steps
	w.runs.Observe(keyOf(&late), probe.Run{Started: w.clock.Now(), Ended: w.clock.Now(), Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.OK}})
	if probed, _ := w.Observer.fleet().Counts(); probed != 1 {
		t.Errorf("%d are probed, want 1", probed)
	}
}

// What the config doesn't name any more is still scaled down, and takes a place under the cap until it has its replicas.
func TestWhatAConfigDoesntNameAnyMoreStillCounts(t *testing.T) {
	w := newEnv(t, 1, nil)
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "before")
	w.guard.SetGuardrails([]*v1alpha1.Guardrail{{ObjectMeta: metav1.ObjectMeta{Name: "stop"}, Spec: v1alpha1.GuardrailSpec{Frozen: true}}})
	w.edit(w.stored(), `{"metadata":{"generation":2},"spec":{"dependentResourceInfos":[{"ref":{"apiVersion":"apps/v1","kind":"Deployment","name":"other"},"optional":true,"scaleUp":{"level":0},"scaleDown":{"level":0}}]}}`)
	w.settle()
	if _, down := w.Observer.fleet().Counts(); down != 1 {
		t.Errorf("%d count as down while nothing may be given back, want 1", down)
	}
	w.guard.SetGuardrails(nil)
	w.see()
	w.settle()
	w.want("shoot-0", "3 3", "given back")
	if _, down := w.Observer.fleet().Counts(); down != 0 {
		t.Errorf("%d count as down after it is given back, want none", down)
	}
}

// vitals are objects that must not be scaled down, by name.
type vitals struct {
	why map[string]string
	err error

	mu      sync.Mutex
	servers []string
}

func (v *vitals) Protected(_ context.Context, _ string, servers []string, ref probe.Ref) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.servers = servers
	return v.why[ref.Name], v.err
}

// What a rule asked when the config was written may be otherwise by now, or nobody looked.
func TestWhatServesTheProbedServerIsNeverScaledDown(t *testing.T) {
	w := newEnv(t, 1, nil)
	v := &vitals{why: map[string]string{"kcm": "its pods are behind Service front, which is probed"}}
	w.Protection = v
	w.fail("shoot-0")
	w.want("shoot-0", "3 3", "the last to go is behind the Service: none goes")
	if fmt.Sprint(v.servers) != "[internal.example.com:443 external.example.com:443]" {
		t.Errorf("asked with servers %v", v.servers)
	}
	w.keep()
	if ready := meta.FindStatusCondition(w.stored().Status.Conditions, "Ready"); !strings.Contains(ready.Message, "Deployment/kcm in shoot-0: its pods are behind Service front") {
		t.Errorf("Ready says %q", ready.Message)
	}
	v.why, v.err = nil, errors.New("away")
	w.clock.Step(10 * time.Second)
	key := w.Observer.targets.keys()[0]
	w.runs.Observe(key, probe.Run{Started: w.clock.Now(), Ended: w.clock.Now(), Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.Timeout}})
	if _, err := w.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); !errors.Is(err, v.err) {
		t.Errorf("error %v", err)
	}
	w.want("shoot-0", "3 3", "it can't be found out")
	v.err = nil
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.want("shoot-0", "0r 0r", "none is")
}

// An object that got its replicas back keeps its record when that can't be removed just then. In the next protection it is as any
// other.
func TestWhatKeptItsRecordIsScaledDownInTheNextProtection(t *testing.T) {
	w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Spec.DependentResourceInfos = pc.Spec.DependentResourceInfos[:1] })
	w.fail("shoot-0")
	w.want("shoot-0", "0r 3", "the first")
	w.api.unpatched = true
	for range 7 {
		w.probe("shoot-0", probe.OK, probe.OK)
	}
	w.want("shoot-0", "3r 3", "given back")
	for range 2 {
		w.probe("shoot-0", probe.OK, probe.Timeout)
	}
	w.api.unpatched = false
	w.probe("shoot-0", probe.OK, probe.Timeout)
	w.want("shoot-0", "0r 3", "the second")
}
