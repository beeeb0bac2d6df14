package probeconfig

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// A name that is mistaken fails like a network that is down.
func TestNothingIsScaledDownBeforeTheKubeconfigHasWorked(t *testing.T) {
	w := newEnv(t, 1, func(pc *v1alpha1.ProbeConfig) { pc.Namespace, pc.Spec.NamespaceSelector = "shoot-0", nil })
	for range 4 {
		w.probe("shoot-0", probe.OK, probe.Resolve)
	}
	w.want("shoot-0", "3 3", "it never worked")
	if permit := w.target("shoot-0").Permit; permit.Reason != probe.HeldUntriedKubeconfig {
		t.Errorf("held back by %+v", permit)
	}
	w.keep()
	const says = "The external probe fails, and hasn't succeeded since Secret shoot-0/external was written: Resolve."
	for kind, reason := range map[string]string{"ExternalHealthy": "KubeconfigUntried", "Stalled": "KubeconfigUntried"} {
		if c := meta.FindStatusCondition(w.stored().Status.Conditions, kind); c == nil || c.Reason != reason || !strings.HasPrefix(c.Message, says) {
			t.Errorf("%s is %+v, want %s: %s", kind, c, reason, says)
		}
	}
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "it worked, and then failed")
}

// Who starts in the middle of an outage knows by the status which kubeconfigs had worked.
func TestAManagerThatStartsInAnOutageActsUponAKubeconfigThatHadWorked(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(*env)
		want      string
	}{
		"as it was":    {func(*env) {}, "0r 0r"},
		"another name": {func(w *env) { w.edit(w.secret("external"), w.rotated("external")) }, "3 3"},
		"nothing is told": {func(w *env) {
			pc := w.stored()
			pc.Status.ProvenKubeconfigs = nil
			if err := w.api.Status().Update(w.t.Context(), pc); err != nil {
				w.t.Fatal(err)
			}
		}, "3 3"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, 1, nil)
			w.probe("shoot-0", probe.OK, probe.OK)
			w.keep()
			c.meanwhile(w)
			w.manage(fixedAuthorizer{allowed: true})
			for range 4 {
				w.probe("shoot-0", probe.OK, probe.Timeout)
			}
			w.want("shoot-0", c.want, "the outage goes on")
		})
	}
}

func TestWhatWorkedIsToldUntilItChanges(t *testing.T) {
	w := newEnv(t, 2, nil)
	w.probe("shoot-0", probe.OK, probe.OK)
	told := func(want string) {
		t.Helper()
		w.keep()
		var all []string
		for _, p := range w.stored().Status.ProvenKubeconfigs {
			all = append(all, p.Namespace)
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("%q are told to have worked, want %q", got, want)
		}
	}
	told("shoot-0")
	w.probe("shoot-1", probe.OK, probe.OK)
	told("shoot-0 shoot-1")
	w.edit(w.namespaceObject("shoot-1"), `{"metadata":{"annotations":{"autohealer.resourcestack.com/hibernated":"true"}}}`)
	w.manage(fixedAuthorizer{allowed: true})
	told("shoot-0 shoot-1")
	before := w.stored().Status.ProvenKubeconfigs[0].Mark
	w.edit(w.secret("external"), w.rotated("external"))
	w.clock.Step(11 * time.Minute) // it is read again
	w.settle()
	for range 4 {
		w.probe("shoot-0", probe.OK, probe.Timeout)
	}
	w.want("shoot-0", "3 3", "the new one hasn't worked yet")
	w.fail("shoot-0")
	w.want("shoot-0", "0r 0r", "it has")
	told("shoot-0 shoot-1")
	if after := w.stored().Status.ProvenKubeconfigs[0].Mark; after == before || len(after) != 16 {
		t.Errorf("what is told of the new one is %q, after %q", after, before)
	}
}

// Many that were written wrong don't speak of the network of all.
func TestKubeconfigsThatNeverWorkedDontOpenTheBreaker(t *testing.T) {
	w := newEnv(t, 10, nil)
	for i := range 6 {
		w.probe(shoot(i), probe.OK, probe.OK)
	}
	for range 3 {
		for i := 6; i < 10; i++ {
			w.probe(shoot(i), probe.OK, probe.Dial)
		}
	}
	if b, open := w.Observer.fleet().Breaker(); open {
		t.Errorf("it is open: %+v", b)
	}
}

func (w *env) secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot-0", Name: name}}
}
