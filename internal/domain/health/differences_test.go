package health_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/resourcestack/autohealer/internal/domain/health"
)

// TestTheTableOfDifferencesIsTrue: what the docs say of the checks that come with Autohealer, and of kstatus, is what they say. Argo CD's
// verdicts were given by its gitops-engine (5baed56) for these objects, the Pod with its restartPolicy; that of the CustomResourceDefinition is
// from the Lua of Argo CD itself.
func TestTheTableOfDifferencesIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../../docs/concepts/health-checks.md")
	if err != nil {
		t.Fatal(err)
	}
	const now = "observedGeneration: 2, "
	for _, row := range []struct{ says, text string }{
		{"Deployment whose pods don't get ready any more", deployment + "spec: {replicas: 2}\n" + conditions(now+"replicas: 2, updatedReplicas: 2, ", unavailable, rolledOut)},
		{"StatefulSet, likewise", statefulSet + "spec: {replicas: 2}\nstatus: {observedGeneration: 2, replicas: 2, currentReplicas: 2, updatedReplicas: 2, readyReplicas: 1}"},
		{"ReplicaSet, likewise", replicaSet + "spec: {replicas: 2}\nstatus: {observedGeneration: 2, replicas: 2, fullyLabeledReplicas: 2, readyReplicas: 1, availableReplicas: 1}"},
		{"DaemonSet, likewise", daemonSet + "status: {observedGeneration: 2, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberReady: 1, numberAvailable: 1, numberUnavailable: 1}"},
		{"Deployment in a rollout, with as many pods as it must have", deployment + "spec: {replicas: 2}\n" + conditions(now+"replicas: 3, updatedReplicas: 1, readyReplicas: 2, availableReplicas: 2, ", available, rollsOut)},
		{"DaemonSet in a rollout, with no more pods unavailable than may be", daemonSet + "status: {observedGeneration: 2, desiredNumberScheduled: 4, currentNumberScheduled: 4, updatedNumberScheduled: 2, numberReady: 3, numberAvailable: 3, numberUnavailable: 1}"},
		{"Deployment that is paused, with all its pods", deployment + "spec: {replicas: 2, paused: true}\n" + conditions(now+"replicas: 2, updatedReplicas: 2, readyReplicas: 2, availableReplicas: 2, ", available, paused)},
		{"Deployment that a quota keeps from making pods", deployment + "spec: {replicas: 2}\n" + conditions(now+"replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1, ", available, rollsOut, noQuota)},
		{"ReplicaSet, likewise, as its status says", replicaSet + "spec: {replicas: 2}\nstatus: {observedGeneration: 2, replicas: 1, fullyLabeledReplicas: 1, readyReplicas: 1, availableReplicas: 1, conditions: [" + noQuota + "]}"},
		{"Job at work", job + "spec: {completions: 1, parallelism: 1}\nstatus: {active: 1, startTime: '2026-03-01T02:00:00Z'}"},
		{"Job that is suspended", job + "spec: {completions: 1, parallelism: 1, suspend: true}\nstatus: {conditions: [{type: Suspended, status: 'True'}]}"},
		{"Pod that no node takes", pod + "status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, lastTransitionTime: '2020-01-01T00:00:00Z'}]}"},
		{"Pod whose image can't be pulled", pod + "status: {phase: Pending, containerStatuses: [{name: c, state: {waiting: {reason: ImagePullBackOff}}}]}"},
		{"PersistentVolumeClaim that lost its volume", claim + "status: {phase: Lost}"},
		{"CustomResourceDefinition whose names are taken", definition + conditions("", "{type: NamesAccepted, status: 'False', reason: KindConflict}", "{type: Established, status: 'False', reason: NotAccepted}")},
	} {
		o := object(t, row.text)
		builtin, kstatus := health.Builtin(o, 5*time.Minute, start), health.ByStatus(o, 5*time.Minute)
		if want := fmt.Sprintf("| %s | `%s` | `%s` |", row.says, builtin.Status, kstatus.Status); !strings.Contains(string(page), "\n"+want) {
			t.Errorf("the page doesn't say\n%s", want)
		}
	}
}

// TestWhatStatusTells: kstatus has rules for some kinds, of which two say healthy whatever the object is like, and reads three conditions of the others.
func TestWhatStatusTells(t *testing.T) {
	const rollout = "apiVersion: argoproj.io/v1alpha1\nkind: Rollout\nmetadata: {name: r}\n"
	for text, want := range map[string]bool{
		deployment: true, pod: true, claim: true, job: true, definition: true, "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n": true,
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n": false, "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c}\n": false,
		rollout: false, rollout + "status: {observedGeneration: 1}": false, rollout + conditions("", "{type: Available, status: 'True'}"): false,
		rollout + conditions("", "{type: Available, status: 'True'}", "{type: Ready, status: 'False'}"): true,
		rollout + conditions("", "{type: Reconciling, status: 'False'}"):                                true, rollout + conditions("", "{type: Stalled, status: 'False'}"): true,
	} {
		if o := object(t, text); health.StatusIsConclusive(o) != want {
			t.Errorf("of %v it says %v", o.Object, !want)
		}
	}
}
