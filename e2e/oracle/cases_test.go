package oracle

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// correct is what a manager may do; none of it breaks anything.
var correct = []testCase{
	{name: "taint, escalate, de-escalate and untaint, each for a reason", do: func(w *world) {
		set := w.set("s", "example.com/broken", `,"maxNodes":1`)
		w.write(w.admin, "node-0", "", "example.com/theirs:NoSchedule")
		w.flip("node-0", "True")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/theirs:NoSchedule", "example.com/broken:NoSchedule")
		w.change("s", `{"spec":{"effect":"NoExecute"}}`)
		w.write(w.manager, "node-0", owned(set, 2, "example.com/broken:NoExecute"), "example.com/theirs:NoSchedule", "example.com/broken:NoExecute")
		w.change("s", `{"spec":{"effect":"NoSchedule"}}`)
		w.write(w.manager, "node-0", owned(set, 3, "example.com/broken:NoSchedule"), "example.com/theirs:NoSchedule", "example.com/broken:NoSchedule")
		w.flip("node-0", "False")
		w.write(w.manager, "node-0", "", "example.com/theirs:NoSchedule")
		w.flip("node-0", "True")
		w.write(w.manager, "node-0", owned(set, 3, "example.com/broken:NoSchedule"), "example.com/theirs:NoSchedule", "example.com/broken:NoSchedule")
		w.flip("node-0", "False")
		w.flip("node-0", "Unknown")
		w.write(w.manager, "node-0", "", "example.com/theirs:NoSchedule") // by what it said a moment ago
		w.deleteSet("s")
	}},
	{name: "put back what someone else removed", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.write(w.admin, "node-0", owned(set, 1, "example.com/broken:NoSchedule"))
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
	}},
	{name: "as many as the limits allow, and what someone else taints doesn't count", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		for _, node := range []string{"node-0", "node-1"} {
			w.write(w.manager, node, owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		}
		for _, node := range []string{"node-2", "node-3", "node-4"} {
			w.write(w.admin, node, "", "example.com/theirs:NoExecute")
			w.write(w.manager, node, owned(set, 1, "example.com/broken:PreferNoSchedule"), "example.com/theirs:NoExecute", "example.com/broken:PreferNoSchedule")
		}
	}},
	{name: "across a restart of the API server, with answers that hold metadata only", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.flip("node-0", "False")
		w.flip("node-1", "False")
		w.metadataOnly("node-0", `{"op":"add","path":"/spec/taints","value":[{"key":"example.com/broken","effect":"NoSchedule"}]},
			{"op":"add","path":"/metadata/annotations","value":{"autohealer.resourcestack.com/owned-taints":`+quoted(owned(set, 1, "example.com/broken:NoSchedule"))+`}}`)
		if err := w.cluster.RestartAPIServer(w.Context()); err != nil {
			w.Fatal(err)
		}
		// Two writes before the watch is back: the list that it begins with shows only the second.
		w.metadataOnly("node-1", `{"op":"add","path":"/spec/taints","value":[{"key":"example.com/broken","effect":"NoSchedule"}]},
			{"op":"add","path":"/metadata/annotations","value":{"autohealer.resourcestack.com/owned-taints":`+quoted(owned(set, 1, "example.com/broken:NoSchedule"))+`}}`)
		w.metadataOnly("node-1", `{"op":"replace","path":"/spec/taints","value":[]},
			{"op":"remove","path":"/metadata/annotations/autohealer.resourcestack.com~1owned-taints"}`)
		w.metadataOnly("node-0", `{"op":"replace","path":"/spec/taints","value":[]},
			{"op":"remove","path":"/metadata/annotations/autohealer.resourcestack.com~1owned-taints"}`)
	}},
}

// metadataOnly patches a node as a client does that wants no more than its metadata back.
func (w *world) metadataOnly(node, operations string) {
	w.Helper()
	nodes := metadata.NewForConfigOrDie(w.managerConfig).Resource(ConditionSets{}.Foreign()[0])
	if _, err := nodes.Patch(w.Context(), node, types.JSONPatchType, []byte("["+operations+"]"), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

var unvalidated = []testCase{
	{name: "a taint in the name of a policy that never was", broken: []Invariant{Validated}, text: "there is no policy", do: func(w *world) {
		w.write(w.manager, "node-0", owned("0b5c", 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
	}},
	{name: "a generation that never was", broken: []Invariant{Validated}, text: "never had generation 7", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.manager, "node-0", owned(set, 7, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
	}},
	{name: "a generation that was replaced", options: Options{Lag: time.Nanosecond}, broken: []Invariant{Validated}, text: "generation 1 of s was replaced", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.change("s", `{"spec":{"for":"5m"}}`)
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
	}},
	{name: "a policy that was deleted", options: Options{Lag: time.Nanosecond}, broken: []Invariant{Validated}, text: "s was deleted", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.deleteSet("s")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
	}},
	{name: "a policy that only observes", broken: []Invariant{Validated}, text: "s only observes", do: func(w *world) {
		set := w.set("s", "example.com/broken", `,"mode":"Observe"`)
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
	}},
	{name: "a policy that the rules refuse", options: Options{Admissible: refuseRefused}, broken: []Invariant{Validated}, text: "matches healthy nodes", do: func(w *world) {
		set := w.set("refused", "example.com/broken", "")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
	}},
	{name: "a pod deleted for no policy", broken: []Invariant{Validated}, text: "pods/default/p: delete", do: func(w *world) {
		if _, err := w.cluster.Kubectl(w.Context(), "run", "p", "--image=p"); err != nil {
			w.Fatal(err)
		}
		if err := w.manager.CoreV1().Pods("default").Delete(w.Context(), "p", metav1.DeleteOptions{}); err != nil {
			w.Fatal(err)
		}
	}},
	{name: "a node's status written for no policy", broken: []Invariant{Validated}, text: "no policy asks for", do: func(w *world) {
		patch := []byte(`{"status":{"conditions":[{"type":"Invented","status":"True"}]}}`)
		if _, err := w.manager.CoreV1().Nodes().Patch(w.Context(), "node-0", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			w.Fatal(err)
		}
	}},
}

var doubtful = []testCase{
	{name: "a taint while the reporter is silent", options: Options{DoubtGrace: time.Nanosecond}, broken: []Invariant{Doubt}, text: "after reporter froze", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.flip("node-0", "False")
		w.oracle.Freeze("clock")
		w.oracle.Thaw("clock")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.oracle.Freeze("reporter")
		w.write(w.manager, "node-1", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.write(w.manager, "node-0", "") // undoing is no harm
	}},
	{name: "a taint that goes while nobody knows whether the node is well", options: Options{Lag: time.Nanosecond}, broken: []Invariant{Doubt}, text: `nobody said that the node is well: Broken is "Unknown"`, do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.flip("node-0", "True")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.flip("node-0", "Unknown")
		w.write(w.manager, "node-0", "")
	}},
	{name: "a taint that goes from a node that reports nothing", broken: []Invariant{Doubt}, text: `nobody said that the node is well: Broken is ""`, do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.manager, "node-7", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.write(w.manager, "node-7", "")
	}},
}

var notOwn = []testCase{
	{name: "a taint without a record", broken: []Invariant{OwnOnly}, text: "added example.com/broken:NoSchedule without recording it", do: func(w *world) {
		w.set("s", "example.com/broken", "")
		w.write(w.manager, "node-0", "", "example.com/broken:NoSchedule")
	}},
	{name: "a record without its taint", broken: []Invariant{OwnOnly}, text: "which the node doesn't have", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"))
	}},
	{name: "a foreign taint that vanishes in a write for another key", broken: []Invariant{OwnOnly}, text: "example.com/theirs:NoSchedule, which the record didn't own", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.admin, "node-0", "", "example.com/theirs:NoSchedule")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
	}},
	{name: "a taint on a node that people ask to leave alone", broken: []Invariant{OwnOnly}, text: "set example.com/broken:NoSchedule on a node that people ask to leave alone", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.hold("node-0", time.Now().Add(time.Hour).Format(time.RFC3339))
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.hold("node-1", "2026-11-21T03:00:00Z") // over for long
		w.write(w.manager, "node-1", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.hold("node-0", "")
		w.hold("node-1", "")
	}},
	{name: "a taint that someone changed to another effect", broken: []Invariant{OwnOnly}, text: "example.com/broken:PreferNoSchedule, which the record didn't own", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.write(w.admin, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:PreferNoSchedule")
		w.write(w.manager, "node-0", "")
	}},
	{name: "a reserved key, though a forged record claims it", broken: []Invariant{OwnOnly}, text: "node.kubernetes.io/unschedulable:NoSchedule, whose key is reserved", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.admin, "node-0", owned(set, 1, "node.kubernetes.io/unschedulable:NoSchedule"), "node.kubernetes.io/unschedulable:NoSchedule")
		w.write(w.manager, "node-0", "")
	}},
	{name: "a key that nobody declared, though a forged record claims it", broken: []Invariant{OwnOnly}, text: "whose key no ConditionSet ever declared", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.admin, "node-0", owned(set, 1, "example.com/theirs:NoSchedule"), "example.com/theirs:NoSchedule")
		w.write(w.manager, "node-0", "")
	}},
	{name: "a reserved key of our own, recorded", broken: []Invariant{OwnOnly}, text: "added karpenter.sh/disrupted:NoSchedule, whose key is reserved", do: func(w *world) {
		set := w.set("s", "karpenter.sh/disrupted", "")
		w.write(w.manager, "node-0", owned(set, 1, "karpenter.sh/disrupted:NoSchedule"), "karpenter.sh/disrupted:NoSchedule")
	}},
	{name: "a label", broken: []Invariant{OwnOnly}, text: "more than taints and record", do: func(w *world) {
		patch := []byte(`{"metadata":{"labels":{"healed":"yes"}}}`)
		if _, err := w.manager.CoreV1().Nodes().Patch(w.Context(), "node-0", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			w.Fatal(err)
		}
	}},
	{name: "a record that can't be read", broken: []Invariant{OwnOnly}, text: "can't be read", do: func(w *world) {
		w.write(w.manager, "node-0", "{")
	}},
}

var unlimited = []testCase{
	{name: "a third node of twenty", broken: []Invariant{Limits}, text: "3 of 20 nodes are tainted, 0 of them deleted since; 2 are allowed", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.flip("node-2", "False")
		for _, node := range []string{"node-0", "node-1", "node-2"} {
			w.write(w.manager, node, owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		}
		w.write(w.manager, "node-2", "") // lowering a count is allowed however high it is
	}},
	{name: "a second node of a zone of five", broken: []Invariant{Limits}, text: "2 of 5 nodes of zone zone-1 are tainted, 0 of them deleted since; 1 are allowed", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		for _, node := range []string{"node-0", "node-4"} {
			w.write(w.manager, node, owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		}
	}},
	{name: "a second node that evicts", broken: []Invariant{Limits}, text: "2 of 20 nodes are evicting, 0 of them deleted since; 1 are allowed", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		for _, node := range []string{"node-0", "node-1"} {
			w.write(w.manager, node, owned(set, 1, "example.com/broken:NoExecute"), "example.com/broken:NoExecute")
		}
	}},
	{name: "a second node that evicts, though the first was deleted", broken: []Invariant{Limits, Limits}, text: "2 of 19 nodes are tainted, 1 of them deleted since; 1 are allowed", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoExecute"), "example.com/broken:NoExecute")
		defer w.remove("node-0")()
		w.write(w.manager, "node-1", owned(set, 1, "example.com/broken:NoExecute"), "example.com/broken:NoExecute")
	}},
	{name: "as many as may be, were not half of the nodes cordoned", options: Options{Lag: time.Nanosecond}, broken: []Invariant{Limits}, text: "2 of 10 nodes are tainted, 0 of them deleted since; 1 are allowed", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		defer w.cordon("node-10", "node-11", "node-12", "node-13", "node-14", "node-15", "node-16", "node-17", "node-18", "node-19")()
		for _, node := range []string{"node-0", "node-1"} {
			w.write(w.manager, node, owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		}
	}},
	{name: "two that begin to evict in one zone within five minutes", broken: []Invariant{Limits}, text: `a node of zone "zone-1" began to evict`, do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.flip("node-0", "False")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoExecute"), "example.com/broken:NoExecute")
		w.write(w.manager, "node-0", "")
		w.write(w.manager, "node-4", owned(set, 1, "example.com/broken:NoExecute"), "example.com/broken:NoExecute")
	}},
	{name: "a third eviction of a node within an hour, though the set was made anew", options: Options{EvictPace: time.Nanosecond}, broken: []Invariant{Limits}, text: "s evicts from the node 3 times within an hour", do: func(w *world) {
		for n := range 3 {
			set := w.set("s", "example.com/broken", "")
			w.flip("node-0", "True")
			record := strings.Replace(owned(set, 1, "example.com/broken:NoExecute"), "03:00:00Z", fmt.Sprintf("03:%02d:00Z", n), 1)
			w.write(w.manager, "node-0", record, "example.com/broken:NoExecute")
			w.flip("node-0", "False")
			w.write(w.manager, "node-0", "")
			w.deleteSet("s")
		}
	}},
	{name: "a taint while a wave of nodes matches, one of which is deleted", options: Options{Lag: time.Nanosecond}, broken: []Invariant{Limits}, text: "s acts though 3 of 10 nodes match, 1 of them deleted since", do: func(w *world) {
		set := w.set("s", "example.com/broken", `,"nodeSelector":{"matchLabels":{"wave":"here"}}`)
		var nodes []string
		for i := range 10 {
			nodes = append(nodes, fmt.Sprintf("node-%d", i))
		}
		if _, err := w.cluster.Kubectl(w.Context(), append([]string{"label", "nodes"}, append(nodes, "wave=here")...)...); err != nil {
			w.Fatal(err)
		}
		for _, node := range nodes[:3] {
			w.flip(node, "True")
		}
		defer w.remove("node-0")()
		w.write(w.manager, "node-1", owned(set, 1, "example.com/broken:PreferNoSchedule"), "example.com/broken:PreferNoSchedule")
		w.flip("node-1", "False")
		w.flip("node-2", "False")
	}},
	{name: "a second control-plane node", broken: []Invariant{Limits}, text: "2 control-plane nodes are tainted", do: func(w *world) {
		set := w.set("s", "example.com/broken", `,"includeControlPlane":true`)
		for _, node := range []string{"plane-0", "plane-1"} {
			w.write(w.admin, node, "")
			w.write(w.manager, node, owned(set, 1, "example.com/broken:PreferNoSchedule"), "example.com/broken:PreferNoSchedule")
		}
	}},
	{name: "more than the set's own maxNodes", broken: []Invariant{Limits}, text: "its maxNodes 1 allows 1", do: func(w *world) {
		set := w.set("s", "example.com/broken", `,"maxNodes":1`)
		for _, node := range []string{"node-0", "node-1"} {
			w.write(w.manager, node, owned(set, 1, "example.com/broken:PreferNoSchedule"), "example.com/broken:PreferNoSchedule")
		}
	}},
}

var orphaned = []testCase{
	{name: "what a deleted policy did stays", options: Options{UndoWithin: 10 * time.Millisecond}, broken: []Invariant{Undone}, text: "isn't undone", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.deleteSet("s")
	}},
	{name: "what a policy did stays while its finalizer keeps it", options: Options{UndoWithin: 10 * time.Millisecond}, broken: []Invariant{Undone}, text: "isn't undone", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.change("s", `{"metadata":{"finalizers":["autohealer.resourcestack.com/undo"]}}`)
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.deleteSet("s")
	}},
	{name: "what a deleted policy did is undone too late", options: Options{UndoWithin: time.Nanosecond}, broken: []Invariant{Undone}, text: "was undone only", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.deleteSet("s")
		w.write(w.manager, "node-0", "")
	}},
}

var repeated = []testCase{
	{name: "the same write twice", broken: []Invariant{Once}, text: "changed nothing", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		for range 2 {
			w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		}
	}},
	{name: "a first write that changes nothing", broken: []Invariant{Once}, text: "left taints and record as they were", do: func(w *world) {
		w.flip("node-0", "False")
		w.write(w.manager, "node-0", "")
	}},
	{name: "the same taint again without a new reason", broken: []Invariant{Once}, text: "was done before, and nothing happened since", do: func(w *world) {
		set := w.set("s", "example.com/broken", "")
		w.flip("node-0", "False")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
		w.write(w.manager, "node-0", "")
		w.write(w.manager, "node-0", owned(set, 1, "example.com/broken:NoSchedule"), "example.com/broken:NoSchedule")
	}},
}
