package explain

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/snapshot"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func TestWhatIsToldOfADeploymentThatProbeConfigsName(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	since := metav1.NewTime(now.Add(-5 * time.Minute))
	config := func(change func(*v1alpha1.ProbeConfig), conditions ...metav1.Condition) []snapshot.ProberView {
		pc := v1alpha1.ProbeConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot", Name: "main"}}
		for _, c := range conditions {
			c.LastTransitionTime = since
			pc.Status.Conditions = append(pc.Status.Conditions, c)
		}
		change(&pc)
		return []snapshot.ProberView{{Config: pc, Permit: probe.Permit{Allowed: true}}} // by a user who may not read the object
	}
	held := func(views []snapshot.ProberView, reason probe.Reason, message string) []snapshot.ProberView {
		views[0].Permit = probe.Permit{Reason: reason, Message: message}
		return views
	}
	for name, c := range map[string]struct {
		dependent Dependent
		want      string
	}{
		"scaled down": {Dependent{Configs: config(func(pc *v1alpha1.ProbeConfig) {
			pc.Status.Scaled = []v1alpha1.ScaledDependent{{Namespace: "shoot", Ref: v1alpha1.DependentRef{Kind: "Deployment", Name: "kcm"}, PreviousReplicas: 2, Since: since}}
		}, metav1.Condition{Type: "InternalHealthy", Status: "True"}, metav1.Condition{Type: "ExternalHealthy", Status: "False", Message: "dial: refused"},
			metav1.Condition{Type: "Ready", Status: "True", Message: "1 target is protected."})}, `deployment/kcm in namespace shoot
  ProbeConfig main: scaled down from 2 replicas since 2026-11-21T11:55:00Z (5m); it gets them back a minute after the probe from outside succeeds again
    InternalHealthy is True since 2026-11-21T11:55:00Z (5m)
    ExternalHealthy is False since 2026-11-21T11:55:00Z (5m): dial: refused
    The manager says: 1 target is protected.
`},
		"held back by the breaker": {Dependent{Configs: held(config(func(pc *v1alpha1.ProbeConfig) { pc.Namespace = "autohealer-system" },
			metav1.Condition{Type: "BreakerOpen", Status: "True", Message: "3 targets turned unhealthy together."}), "TooManyFailTogether", "too many targets turned unhealthy together")}, `deployment/kcm in namespace shoot
  ProbeConfig autohealer-system/main: did nothing to it; it isn't scaled down now, also while the probe from inside succeeds and the one from outside fails: too many targets turned unhealthy together (TooManyFailTogether)
    BreakerOpen is True since 2026-11-21T11:55:00Z (5m): 3 targets turned unhealthy together.
`},
		"never scaled down before its kubeconfig has worked": {Dependent{Configs: held(config(func(*v1alpha1.ProbeConfig) {}),
			"KubeconfigUntried", "the external kubeconfig, in Secret out, has never worked since it was written")}, `deployment/kcm in namespace shoot
  ProbeConfig main: did nothing to it; it isn't scaled down now, also while the probe from inside succeeds and the one from outside fails: the external kubeconfig, in Secret out, has never worked since it was written (KubeconfigUntried)
`},
		"held, and only observed": {Dependent{Hold: &hold.Hold{Text: "soon"}, Configs: config(func(pc *v1alpha1.ProbeConfig) { pc.Spec.Mode = v1alpha1.Observe })}, `deployment/kcm in namespace shoot
  Left alone: the annotation autohealer.resourcestack.com/hold-until keeps Autohealer from it: "soon" is no time such as 2026-11-21T03:00:00Z; correct or remove it.
  ProbeConfig main: only observes; it would be scaled down while the probe from inside succeeds and the one from outside fails
`},
		"one of more than a status names": {Dependent{Configs: config(func(pc *v1alpha1.ProbeConfig) {
			for i := range 20 {
				pc.Status.Scaled = append(pc.Status.Scaled, v1alpha1.ScaledDependent{Namespace: fmt.Sprint("shoot-", i), Ref: v1alpha1.DependentRef{Kind: "Deployment", Name: "kcm"}, PreviousReplicas: 2, Since: since})
			}
		})}, `deployment/kcm in namespace shoot
  ProbeConfig main: whether it is scaled down isn't known: the object can't be read, and the config's status names only 20 of those that are
`},
		"its config is gone": {Dependent{Orphan: &probe.Record{Replicas: 2, Policy: "shoot/main", Since: since}}, `deployment/kcm in namespace shoot
  ProbeConfig shoot/main, which does not exist or no longer names it: scaled down from 2 replicas since 2026-11-21T11:55:00Z (5m)
    Autohealer scales it up soon: once the ProbeConfig was found missing twice, a minute apart, or at once where it only names others now. By hand: kubectl autohealer undo
`},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.dependent
			d.Namespace, d.Kind, d.Name = "shoot", "Deployment", "kcm"
			if got := Workload("deployment/kcm", d, nil, snapshot.Weeders{}, now, nil); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}
