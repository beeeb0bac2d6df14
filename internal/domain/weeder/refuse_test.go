package weeder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

const evicting = `
watchDuration: 1m
deletion: Evict
maxDeletionsPerWatch: 1
servicesAndDependantSelectors: {etcd: {podSelectors: [{matchLabels: {app: api}}]}}
`

// refused decides on a pod, whose eviction a PodDisruptionBudget then refuses, and gives when to ask again.
func refused(t *testing.T, y *weeder.State, name string, d time.Duration) time.Time {
	t.Helper()
	plan, next := decideOn(y, key(name), at(d), "")
	if next != weeder.Delete || !plan.Delete.Evict {
		t.Fatalf("%s: %q instead of an eviction", name, verdict(plan, next))
	}
	y.Failed(plan.Pod.UID)
	return y.Refuse(plan, "the budget api needs 1 healthy pod", at(d))
}

func held(t *testing.T, y *weeder.State, d time.Duration) (int, string) {
	t.Helper()
	sum, ok := y.Summary("wc-uid", at(d))
	if !ok {
		t.Fatal("the config isn't known")
	}
	h := sum.Held["PodDisruptionBudget"]
	return h.Pods, h.Message
}

func TestARefusedEvictionIsAskedForAgainWhileTheWindowLasts(t *testing.T) {
	y := watchingEtcd(t, evicting, newPod("api-1", backOff))
	recoverEtcd(y, 0)
	expect(t, "asked again", refused(t, y, "api-1", second), noon.Add(6*second))
	pods, message := held(t, y, second)
	expect(t, "held pods", pods, 1)
	expect(t, "message", message, "ns/api-1: the budget api needs 1 healthy pod")

	expect(t, "asked again", refused(t, y, "api-1", 6*second), noon.Add(11*second))
	sum, _ := y.Summary("wc-uid", at(6*second))
	expect(t, "pods counted as held back, each once", fmt.Sprint(sum.Skipped), "[{PodDisruptionBudget 1}]")
	expect(t, "deletions", sum.Deleted, 0)

	if again := refused(t, y, "api-1", 55*second); !again.IsZero() {
		t.Errorf("it is asked again at %s, after the window", again)
	}
}

func TestARefusedEvictionTakesNoBudget(t *testing.T) {
	y := watchingEtcd(t, evicting, newPod("api-1", backOff), newPod("api-2", backOff))
	recoverEtcd(y, 0)
	refused(t, y, "api-1", second)
	expect(t, "the other one", decide(y, "api-2", second), "delete")
	expect(t, "the one that was refused", decide(y, "api-1", 6*second), "MaxDeletionsPerWatch")
}

func TestARefusalEndsWithItsCause(t *testing.T) {
	for name, end := range map[string]func(*weeder.State){
		"the pod runs again": func(y *weeder.State) { y.ObservePod(weeder.ReadPod(newPod("api-1", running)), at(2*second)) },
		"the pod is gone":    func(y *weeder.State) { y.ForgetPod(key("api-1"), "api-1-uid") },
		"another has its name": func(y *weeder.State) {
			y.ObservePod(weeder.ReadPod(newPod("api-1", uid("other"), backOff)), at(2*second))
		},
		"the window is over": func(y *weeder.State) { y.Expire(at(61 * second)) },
	} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, evicting, newPod("api-1", backOff))
			recoverEtcd(y, 0)
			refused(t, y, "api-1", second)
			end(y)
			if pods, message := held(t, y, 61*second); pods != 0 {
				t.Errorf("%d are still held: %s", pods, message)
			}
		})
	}
}

func TestALateRefusalOfWhatIsNotThereAnyMoreIsIgnored(t *testing.T) {
	for name, end := range map[string]func(*weeder.State){
		"the pod is gone": func(y *weeder.State) { y.ForgetPod(key("api-1"), "api-1-uid") },
		"another has its name": func(y *weeder.State) {
			y.ObservePod(weeder.ReadPod(newPod("api-1", uid("other"), backOff)), at(second))
		},
		"the window is over": func(y *weeder.State) { y.Expire(at(61 * second)) },
		"the config is gone": func(y *weeder.State) { y.ForgetConfig("wc-uid") },
	} {
		t.Run(name, func(t *testing.T) {
			y := watchingEtcd(t, evicting, newPod("api-1", backOff))
			recoverEtcd(y, 0)
			plan, _ := decideOn(y, key("api-1"), at(0), "")
			end(y)
			if again := y.Refuse(plan, "no", at(second)); !again.IsZero() {
				t.Errorf("it is asked again at %s", again)
			}
			if sum, ok := y.Summary("wc-uid", at(61*second)); ok && len(sum.Held) > 0 {
				var says []string
				for reason := range sum.Held {
					says = append(says, string(reason))
				}
				t.Errorf("held by %s", strings.Join(says, ", "))
			}
		})
	}
}

// Nobody decides on a pod once the window is over, so that nothing would take back what is kept of it.
func TestALateRefusalIsNotKeptForAPodThatRunsAgain(t *testing.T) {
	y := watchingEtcd(t, evicting, newPod("api-1", backOff))
	recoverEtcd(y, 0)
	plan, _ := decideOn(y, key("api-1"), at(0), "")
	y.Failed(plan.Pod.UID)
	y.ObservePod(weeder.ReadPod(newPod("api-1", running)), at(second))
	if again := y.Refuse(plan, "no", at(second)); !again.IsZero() {
		t.Errorf("it is asked again at %s", again)
	}
	y.Expire(at(61 * second))
	y.ObservePod(weeder.ReadPod(newPod("api-1", backOff)), at(62*second))
	pods, message := held(t, y, 62*second)
	expect(t, "held when it crash-loops again: "+message, pods, 0)
}
