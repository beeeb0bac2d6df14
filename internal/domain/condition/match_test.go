package condition_test

import (
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/timing"
)

const twoMembers = `
effect: NoSchedule
taintKey: example.com/sick
conditions: {KubeletUnhealthy: {status: true}, ContainerRuntimeUnhealthy: {status: unknown}}
`

const oneMember = `
effect: NoSchedule
taintKey: example.com/sick
conditions: {KubeletUnhealthy: {status: true}}
`

const asksFalse = `
effect: NoSchedule
taintKey: example.com/sick
conditions: {KubeletReady: {status: false}}
`

const asksUnknown = `
effect: NoSchedule
taintKey: example.com/sick
conditions: {KubeletReady: {status: unknown}}
`

func TestPhase(t *testing.T) {
	hour := time.Hour
	sick := []nodeOption{reports("KubeletUnhealthy", "True", ago(hour)), reports("ContainerRuntimeUnhealthy", "Unknown", ago(hour))}
	silentSince := func(d time.Duration) []nodeOption {
		return []nodeOption{reportsAt("KubeletUnhealthy", "True", ago(3*hour), ago(d))}
	}
	tests := []struct {
		name  string
		spec  string
		node  *condition.Node
		at    timing.Moment
		phase condition.Phase
	}{
		{"all members match", twoMembers, steady(newNode("n", sick...)), moment(noon), "Matching"},
		{"one member of two doesn't match", twoMembers,
			steady(newNode("n", append(sick, reports("ContainerRuntimeUnhealthy", "True", ago(hour)))...)), moment(noon), "Clear"},
		{"a missing condition isn't Unknown", twoMembers, steady(newNode("n", sick[0])), moment(noon), "Doubtful"},
		{"no condition at all", twoMembers, steady(newNode("n")), moment(noon), "Doubtful"},
		{"a condition that vanished says nothing", twoMembers,
			watched(stage{ago(hour), newNode("n", sick...)}, stage{ago(time.Minute), newNode("n", sick[0])}, stage{noon, newNode("n", sick[0])}), moment(noon), "Doubtful"},
		{"asked for True, False is well", oneMember, steady(newNode("n", reports("KubeletUnhealthy", "False", ago(hour)))), moment(noon), "Clear"},
		{"asked for True, Unknown is a check that failed", oneMember, steady(newNode("n", reports("KubeletUnhealthy", "Unknown", ago(hour)))), moment(noon), "Doubtful"},
		{"asked for True, an empty status says nothing", oneMember, steady(newNode("n", reports("KubeletUnhealthy", "", ago(hour)))), moment(noon), "Doubtful"},
		{"asked for True, true isn't True", oneMember, steady(newNode("n", reports("KubeletUnhealthy", "true", ago(hour)))), moment(noon), "Doubtful"},
		{"asked for False, True is well", asksFalse, steady(newNode("n", reports("KubeletReady", "True", ago(hour)))), moment(noon), "Clear"},
		{"asked for False, Unknown is a check that failed", asksFalse, steady(newNode("n", reports("KubeletReady", "Unknown", ago(hour)))), moment(noon), "Doubtful"},
		{"asked for Unknown, True is an answer", asksUnknown, steady(newNode("n", reports("KubeletReady", "True", ago(hour)))), moment(noon), "Clear"},
		{"asked for Unknown, False is an answer", asksUnknown, steady(newNode("n", reports("KubeletReady", "False", ago(hour)))), moment(noon), "Clear"},
		{"asked for Unknown, yes is none", asksUnknown, steady(newNode("n", reports("KubeletReady", "yes", ago(hour)))), moment(noon), "Doubtful"},
		{"Unknown, but another member is known not to match", twoMembers,
			steady(newNode("n", reports("KubeletUnhealthy", "Unknown", ago(hour)), reports("ContainerRuntimeUnhealthy", "False", ago(hour)))), moment(noon), "Clear"},
		{"of two of one type the first counts", oneMember, steady(newNode("n", sick[0], func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "KubeletUnhealthy", Status: "False", LastHeartbeatTime: metav1.NewTime(noon)})
		})), moment(noon), "Matching"},
		{"another zone of labels", "nodeSelector: {matchLabels: {pool: a}}\n" + oneMember, steady(newNode("n", sick[0], labelled("pool", "b"))), moment(noon), "NotSelected"},
		{"selected by an expression", "nodeSelector: {matchExpressions: [{key: pool, operator: In, values: [a, b]}]}\n" + oneMember,
			steady(newNode("n", sick[0], labelled("pool", "b"))), moment(noon), "Matching"},
		{"a control-plane node is left out by default", oneMember, steady(newNode("n", sick[0], controlPlane)), moment(noon), "NotSelected"},
		{"a control-plane node by its old label", oneMember, steady(newNode("n", sick[0], labelled("node-role.kubernetes.io/master", ""))), moment(noon), "NotSelected"},
		{"a control-plane node where it is included", "includeControlPlane: true\n" + oneMember, steady(newNode("n", sick[0], controlPlane)), moment(noon), "Matching"},

		{"heartbeat unmoved for 15m", oneMember,
			watched(stage{ago(hour), newNode("n", silentSince(61*time.Minute)...)}, stage{ago(15 * time.Minute), newNode("n", silentSince(15*time.Minute)...)}), moment(noon), "Doubtful"},
		{"heartbeat unmoved for 14m59s", oneMember,
			watched(stage{ago(hour), newNode("n", silentSince(61*time.Minute)...)}, stage{ago(15*time.Minute - time.Second), newNode("n", silentSince(15*time.Minute)...)}), moment(noon), "Matching"},
		{"staleAfter of its own", "staleAfter: 1m\n" + oneMember,
			watched(stage{ago(hour), newNode("n", silentSince(61*time.Minute)...)}, stage{ago(time.Minute), newNode("n", silentSince(time.Minute)...)}), moment(noon), "Doubtful"},
		{"a reporter whose clock is a day behind, but moves", oneMember,
			watched(stage{ago(time.Minute), newNode("n", silentSince(25*hour)...)}, stage{noon, newNode("n", silentSince(24*hour)...)}), moment(noon), "Matching"},
		{"a reporter whose clock is a day ahead, and stopped", oneMember,
			watched(stage{ago(hour), newNode("n", silentSince(-23*hour)...)}, stage{ago(20 * time.Minute), newNode("n", silentSince(-24*hour)...)}), moment(noon), "Doubtful"},
		{"a reporter whose clock is ten minutes ahead, and stopped", oneMember,
			watched(stage{ago(hour), newNode("n", silentSince(50*time.Minute)...)}, stage{ago(20 * time.Minute), newNode("n", silentSince(10*time.Minute)...)}), moment(noon), "Doubtful"},
		{"a transition is a sign of life too", oneMember,
			watched(stage{ago(hour), newNode("n", reportsAt("KubeletUnhealthy", "False", ago(3*hour), ago(2*hour)))}, stage{ago(time.Minute), newNode("n", reportsAt("KubeletUnhealthy", "True", ago(2*hour), ago(2*hour)))}), moment(noon), "Matching"},
		{"a condition that appeared while we watched", oneMember,
			watched(stage{ago(hour), newNode("n")}, stage{ago(time.Minute), newNode("n", silentSince(48*hour)...)}), moment(noon), "Matching"},
		{"silent, but another member is known not to match", twoMembers,
			watched(stage{ago(hour), newNode("n", reportsAt("KubeletUnhealthy", "True", ago(3*hour), ago(3*hour)), reports("ContainerRuntimeUnhealthy", "False", ago(hour)))}), moment(noon), "Clear"},
		{"silent at a status that doesn't match is doubt, not recovery", oneMember,
			watched(stage{ago(hour), newNode("n", reportsAt("KubeletUnhealthy", "False", ago(3*hour), ago(3*hour)))}), moment(noon), "Doubtful"},

		{"after a restart, heartbeat younger than staleAfter by the API server's date", oneMember,
			watched(stage{noon, newNode("n", silentSince(14*time.Minute)...)}), moment(noon), "Matching"},
		{"after a restart, heartbeat older than that", oneMember,
			watched(stage{noon, newNode("n", silentSince(15*time.Minute)...)}), moment(noon), "Doubtful"},
		{"after a restart, our own clock proves nothing", oneMember,
			watched(stage{noon, newNode("n", silentSince(0)...)}), timing.Moment{Now: noon, Server: noon.Add(hour)}, "Doubtful"},
		{"after a restart, the API server's date not known yet", oneMember,
			watched(stage{noon, newNode("n", silentSince(0)...)}), timing.Moment{Now: noon}, "Doubtful"},
		{"after a restart, heartbeat far in the API server's future", oneMember,
			watched(stage{noon, newNode("n", silentSince(-hour)...)}), moment(noon), "Doubtful"},
		{"after a restart, proven once the heartbeat moved", oneMember,
			watched(stage{ago(time.Minute), newNode("n", silentSince(-hour)...)}, stage{noon, newNode("n", silentSince(-hour-time.Minute)...)}), moment(noon), "Matching"},
		{"after a restart, a condition without a heartbeat", oneMember,
			watched(stage{noon, newNode("n", reportsAt("KubeletUnhealthy", "True", ago(hour), time.Time{}))}), moment(noon), "Doubtful"},
		{"after a restart, a transition of meanwhile without a heartbeat", oneMember,
			watched(stage{noon, newNode("n", reportsAt("KubeletUnhealthy", "True", ago(14*time.Minute), time.Time{}))}), moment(noon), "Matching"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := newSet(t, "a", tt.spec).Match(tt.node, tt.at); got.Phase != tt.phase {
				t.Errorf("phase %s, want %s", got.Phase, tt.phase)
			}
		})
	}
}

func TestWhenAMatchHasHeld(t *testing.T) {
	const held5m = "for: 5m\n" + oneMember
	created := func(at time.Time) nodeOption {
		return func(n *corev1.Node) { n.CreationTimestamp.Time = at }
	}
	flipped := func(seen time.Time, options ...nodeOption) *condition.Node {
		return watched(stage{ago(time.Hour), newNode("n", reportsAt("KubeletUnhealthy", "False", ago(2*time.Hour), ago(time.Hour)))}, stage{seen, newNode("n", options...)})
	}
	tests := []struct {
		name         string
		spec         string
		node         *condition.Node
		since, holds time.Time
	}{
		{"without for it holds from when it was seen", oneMember, flipped(ago(time.Second), reports("KubeletUnhealthy", "True", ago(2*time.Second))), ago(2 * time.Second), ago(time.Second)},
		{"for counts from the reporter's transition", held5m, flipped(ago(2*time.Minute), reports("KubeletUnhealthy", "True", ago(3*time.Minute))), ago(3 * time.Minute), noon.Add(2 * time.Minute)},
		{"an old transition that we have only just seen needs a minute of our own", held5m, flipped(ago(10*time.Second), reports("KubeletUnhealthy", "True", ago(time.Hour))), ago(time.Hour), noon.Add(50 * time.Second)},
		{"a for under a minute needs only that much of our own", "for: 20s\n" + oneMember, flipped(ago(10*time.Second), reports("KubeletUnhealthy", "True", ago(time.Hour))), ago(time.Hour), noon.Add(10 * time.Second)},
		{"NoExecute holds a minute by default", "effect: NoExecute\ntaintKey: example.com/sick\nconditions: {KubeletUnhealthy: {status: true}}",
			flipped(ago(10*time.Second), reports("KubeletUnhealthy", "True", ago(11*time.Second))), ago(11 * time.Second), noon.Add(50 * time.Second)},
		{"a transition before the node's creation counts from the creation", held5m,
			watched(stage{ago(time.Minute), newNode("n", created(ago(2*time.Minute)), reports("KubeletUnhealthy", "True", ago(48*time.Hour)))}, stage{noon, newNode("n", created(ago(2*time.Minute)), reportsAt("KubeletUnhealthy", "True", ago(48*time.Hour), noon.Add(1)))}),
			ago(2 * time.Minute), noon.Add(3 * time.Minute)},
		{"no transition time counts from the creation", held5m, flipped(ago(2*time.Minute), reports("KubeletUnhealthy", "True", time.Time{})), ago(24 * time.Hour), ago(time.Minute)},
		{"a transition in the future counts from when we saw it", held5m, flipped(ago(2*time.Minute), reports("KubeletUnhealthy", "True", noon.Add(time.Hour))), ago(2 * time.Minute), noon.Add(3 * time.Minute)},
		{"a node created in the future counts from now", held5m,
			watched(stage{ago(time.Minute), newNode("n", created(noon.Add(time.Hour)), reports("KubeletUnhealthy", "True", ago(time.Hour)))}), noon, noon.Add(5 * time.Minute)},
		{"the latest member counts", "for: 5m\n" + twoMembers,
			watched(stage{ago(time.Hour), newNode("n", reportsAt("KubeletUnhealthy", "True", ago(2*time.Hour), ago(time.Hour)), reportsAt("ContainerRuntimeUnhealthy", "False", ago(2*time.Hour), ago(time.Hour)))},
				stage{ago(time.Minute), newNode("n", reports("KubeletUnhealthy", "True", ago(2*time.Hour)), reports("ContainerRuntimeUnhealthy", "Unknown", ago(time.Minute)))}),
			ago(time.Minute), noon.Add(4 * time.Minute)},
		{"a new transition at the same status begins anew", held5m,
			watched(stage{ago(time.Hour), newNode("n", reports("KubeletUnhealthy", "True", ago(2*time.Hour)))}, stage{ago(30 * time.Second), newNode("n", reports("KubeletUnhealthy", "True", ago(time.Minute)))}),
			ago(time.Minute), noon.Add(4 * time.Minute)},
		{"a restart begins our own observation anew", held5m, watched(stage{ago(10 * time.Second), newNode("n", reports("KubeletUnhealthy", "True", ago(time.Hour)))}), ago(time.Hour), noon.Add(50 * time.Second)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newSet(t, "a", tt.spec).Match(tt.node, moment(noon))
			if m.Phase != "Matching" || !m.Since.Equal(tt.since) || !m.DueAt.Equal(tt.holds) {
				t.Errorf("%s since %s, holds at %s; want Matching since %s, holds at %s", m.Phase, m.Since, m.DueAt, tt.since, tt.holds)
			}
		})
	}
}

func TestAFutureTransitionHoldsInTheEnd(t *testing.T) {
	s := newSet(t, "a", "for: 10m\n"+oneMember)
	n := watched(stage{ago(time.Hour), newNode("n", reports("KubeletUnhealthy", "False", ago(time.Hour)))}, stage{noon, newNode("n", reports("KubeletUnhealthy", "True", noon.Add(90*time.Minute)))})
	later := noon.Add(10 * time.Minute)
	if m := s.Match(n, moment(later)); m.DueAt.After(later) {
		t.Errorf("a node whose clock is 90m ahead holds only at %s", m.DueAt)
	}
}

func TestWhenANodeIsClear(t *testing.T) {
	const recovers5m = "recoverAfter: 5m\n"
	well := reports("KubeletUnhealthy", "False", ago(time.Hour))
	tests := []struct {
		name string
		spec string
		node *condition.Node
		want time.Time
	}{
		{"recoverAfter counts from our own sight, not the reporter's word", recovers5m + oneMember,
			watched(stage{ago(time.Hour), newNode("n", reports("KubeletUnhealthy", "True", ago(time.Hour)))}, stage{ago(time.Minute), newNode("n", reports("KubeletUnhealthy", "False", ago(time.Hour)))}), noon.Add(4 * time.Minute)},
		{"the member that stopped matching first counts", recovers5m + twoMembers,
			watched(stage{ago(time.Hour), newNode("n", reports("KubeletUnhealthy", "True", ago(time.Hour)), reports("ContainerRuntimeUnhealthy", "Unknown", ago(time.Hour)))},
				stage{ago(3 * time.Minute), newNode("n", reports("KubeletUnhealthy", "False", ago(3*time.Minute)), reports("ContainerRuntimeUnhealthy", "Unknown", ago(time.Hour)))},
				stage{ago(time.Minute), newNode("n", reports("KubeletUnhealthy", "False", ago(3*time.Minute)), reports("ContainerRuntimeUnhealthy", "True", ago(time.Minute)))}), noon.Add(2 * time.Minute)},
		{"after a doubt the time counts anew", recovers5m + oneMember,
			watched(stage{ago(time.Hour), newNode("n", reports("KubeletUnhealthy", "False", ago(time.Hour)))}, stage{ago(2 * time.Minute), newNode("n", reports("KubeletUnhealthy", "Unknown", ago(2*time.Minute)))},
				stage{ago(time.Minute), newNode("n", reports("KubeletUnhealthy", "False", ago(time.Minute)))}), noon.Add(4 * time.Minute)},
		{"a condition that came back counts anew", recovers5m + oneMember,
			watched(stage{ago(time.Hour), newNode("n", reports("KubeletUnhealthy", "False", ago(time.Hour)))}, stage{ago(2 * time.Minute), newNode("n")},
				stage{ago(time.Minute), newNode("n", reports("KubeletUnhealthy", "False", ago(time.Hour)))}), noon.Add(4 * time.Minute)},
		{"without recoverAfter at once", oneMember, watched(stage{ago(time.Minute), newNode("n", well)}), ago(time.Minute)},
		{"NoExecute recovers after a minute by default", "effect: NoExecute\ntaintKey: example.com/sick\nconditions: {KubeletUnhealthy: {status: true}}",
			watched(stage{ago(10 * time.Second), newNode("n", well)}), noon.Add(50 * time.Second)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if m := newSet(t, "a", tt.spec).Match(tt.node, moment(noon)); m.Phase != "Clear" || !m.ClearAt.Equal(tt.want) {
				t.Errorf("%s at %s, want Clear at %s", m.Phase, m.ClearAt, tt.want)
			}
		})
	}
}

func TestNetworkUnavailableIsProvenByTheNodesLease(t *testing.T) {
	const spec = "effect: NoSchedule\ntaintKey: example.com/sick\nconditions: {NetworkUnavailable: {status: true}}"
	s := newSet(t, "a", spec)
	n := watched(stage{noon, newNode("n", reportsAt("NetworkUnavailable", "True", ago(5*time.Hour), ago(5*time.Hour)))})
	if got := s.Match(n, moment(noon)).Phase; got != "Doubtful" {
		t.Errorf("without a Lease: %s, want Doubtful", got)
	}
	n.Lease = condition.Observation{Heartbeat: ago(5 * time.Second)}
	if got := s.Match(n, moment(noon)).Phase; got != "Matching" {
		t.Errorf("with a fresh Lease: %s, want Matching", got)
	}
	n.Lease = condition.Observation{Heartbeat: ago(time.Hour)}
	if got := s.Match(n, moment(noon)).Phase; got != "Doubtful" {
		t.Errorf("with an expired Lease: %s, want Doubtful", got)
	}
	other := watched(stage{noon, newNode("n", reportsAt("KubeletUnhealthy", "True", ago(5*time.Hour), ago(5*time.Hour)))})
	other.Lease = condition.Observation{Heartbeat: noon}
	if got := newSet(t, "b", oneMember).Match(other, moment(noon)).Phase; got != "Doubtful" {
		t.Errorf("the Lease proves nothing for a condition with heartbeats: %s, want Doubtful", got)
	}
}

func TestDoubtfulAgreesWithMatch(t *testing.T) {
	set := newSet(t, "a", "nodeSelector: {matchLabels: {pool: a}}\nstaleAfter: 10m\n"+twoMembers)
	rapid.Check(t, func(t *rapid.T) {
		look := func() *corev1.Node {
			n := newNode("n", labelled("pool", rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "pool")))
			for _, conditionType := range []string{"KubeletUnhealthy", "ContainerRuntimeUnhealthy"} {
				status := rapid.SampledFrom([]string{"True", "False", "Unknown", "yes", ""}).Draw(t, "status")
				beat := time.Duration(rapid.IntRange(0, 3).Draw(t, "beat")) * 7 * time.Minute
				if status != "" {
					reportsAt(conditionType, status, ago(time.Hour), ago(beat))(n)
				}
			}
			return n
		}
		stages := []stage{{ago(15 * time.Minute), look()}, {ago(time.Duration(rapid.IntRange(0, 14).Draw(t, "seen")) * time.Minute), look()}}
		tainted := rapid.Bool().Draw(t, "tainted")
		fleet := condition.NewFleet(calm("1", "1"))
		fleet.ObserveSet(set, lifecycle.Active, nil, "", moment(ago(time.Hour)))
		for i, s := range stages {
			if tainted {
				owning("a", "example.com/k", "NoSchedule", ago(time.Hour))(s.node)
			}
			s.node.ResourceVersion = strconv.Itoa(i + 1)
			fleet.ObserveNode(s.node, moment(s.at))
		}
		n := watched(stages...)
		doubt := set.Match(n, moment(noon)).Phase == "Doubtful"
		one, other := hasStatus(n, "KubeletUnhealthy"), hasStatus(n, "ContainerRuntimeUnhealthy")
		sum, _ := fleet.Summary("a-uid", moment(noon))
		if got, want := sum.Doubtful == 1, doubt && (tainted || one && other); got != want {
			t.Fatalf("tainted %t: doubtful %t, want %t", tainted, got, want)
		}
	})
}

func hasStatus(n *condition.Node, conditionType string) bool {
	r, _ := n.Observations.Of(conditionType)
	return r.Status != ""
}
