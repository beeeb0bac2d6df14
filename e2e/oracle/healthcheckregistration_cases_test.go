package oracle

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const paused = "{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: Guardrail, metadata: {name: stop}, spec: {%s: true}}"

// deployment that wants two pods, and has as many available, as its controller says.
const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: default, name: d, generation: 1}, spec: {replicas: 2},
  status: {observedGeneration: 1, availableReplicas: %d, conditions: [{type: Available, status: "%s"}, {type: Progressing, status: "True", reason: NewReplicaSetAvailable}]}}`

const checkDeployment = `{name: d, conditionType: Dialled, object: {apiVersion: apps/v1, kind: Deployment, name: "'d'"}, evaluate: {builtin: {}}}`

// correctTelling is what a manager may do; none of it breaks anything.
var correctTelling = []dialCase{
	{name: "claim, turn as the checks say, take back from others, and remove with the registration", do: func(s *tale) {
		s.dialling(1)
		s.dial("Down")
		s.say("False", "w1")
		s.change("Gadget w1", false, "status", saying("Theirs", "True", "mine"))
		s.change("Gadget w1", false, "status", dialled("True", fine))
		s.say("False", "w1")
		s.dial("Up")
		s.say("True", "w1")
		s.drop("HealthCheckRegistration r")
		s.wait(50 * time.Second)
		s.say("", "w1")
		s.claim("w1")
		s.wait(time.Hour)
	}},
	{name: "leave to another registration what a deleted one decided, too", do: func(s *tale) {
		s.dialling(1)
		s.register("other", "", checkDial)
		s.wait(time.Minute)
		s.change("Gadget w1", true, "status", dialled("True", "(2/2) Health checks successful"))
		s.drop("HealthCheckRegistration r")
		s.wait(time.Hour)
	}},
	{name: "act a moment longer by what was before", do: func(s *tale) {
		s.dialling(2)
		s.dial("Down")
		s.wait(4 * time.Second)
		s.register("r", ", mode: Observe", checkDial)
		s.say("False", "w1")
		s.dial("Up")
		s.wait(4 * time.Second)
		s.say("False", "w2")
	}},
	{name: "believe as many as the breaker does, hold back the others, and believe them once it is reset", do: func(s *tale) {
		names := s.dialling(6)
		s.dial("Down")
		s.say("False", names[:2]...)
		s.status("r", "{breaker: {id: o1}}")
		s.say("Doubt", names[2:]...)
		s.wait(time.Minute)
		s.change("HealthCheckRegistration r", false, "", annotated(resetKey, "o1"))
		s.say("False", names[2:]...)
		s.status("r", "{}")
	}},
	{name: "believe two more when five minutes have passed", do: func(s *tale) {
		names := s.dialling(6)
		s.dial("Down")
		s.say("False", names[:2]...)
		s.wait(5 * time.Minute)
		s.say("False", names[2:4]...)
	}},
	{name: "turn False what it could just still read", do: func(s *tale) {
		s.dialling(1)
		s.dial("Down")
		s.wait(time.Second)
		s.drop("ClusterRole r")
		s.wait(3 * time.Second)
		s.say("False", "w1")
	}},
	{name: "put right what is False for long, beside a wave", do: func(s *tale) {
		names := s.dialling(6)
		s.dial("Down")
		s.say("False", names[0])
		s.wait(5 * time.Minute)
		s.say("False", names[1:3]...)
		s.change("Gadget w1", false, "status", dialled("True", fine))
		s.say("False", names[0])
	}},
	{name: "count what was never True for nothing", do: func(s *tale) {
		s.dial("Down")
		s.register("r", "", checkDial)
		s.target("w1", "w2", "w3", "w4")
		s.wait(time.Minute)
		for i := range 4 {
			s.claim(fmt.Sprint("w", i+1), "Dialled")
			s.say("False", fmt.Sprint("w", i+1))
		}
	}},
	{name: "heal while it is paused, refused or held", do: func(s *tale) {
		s.dialling(1)
		s.dial("Down")
		s.say("False", "w1")
		s.put(paused, "paused")
		s.change("Gadget w1", false, "", annotated(holdKey, noon.Add(time.Hour).Format(time.RFC3339)))
		s.status("r", "{conditions: [{type: Accepted, status: 'False', observedGeneration: 1}]}")
		s.wait(time.Minute)
		s.dial("Up")
		s.say("True", "w1")
		s.wait(time.Minute)
	}},
	{name: "put right less and less, and anew after a restart", do: func(s *tale) {
		s.dialling(1)
		for _, pause := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 0, 0, time.Second, 2 * time.Second} {
			s.change("Gadget w1", false, "status", dialled("False", bad))
			s.wait(pause)
			s.say("True", "w1")
		}
	}},
	{name: "take off what somebody asks for, in the form of checks", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", false, "status", saying("Old", "True", fine))
		s.register("r", ", removeConditionTypes: [Old]", checkDial)
		s.change("Gadget w1", true, "status", saying("Old", "", ""))
	}},
	{name: "follow a Deployment through a rollout in which it serves", do: func(s *tale) {
		s.put(deployment, 1, "True")
		s.target("w1")
		s.register("r", "", checkDeployment)
		s.wait(time.Minute)
		s.claim("w1", "Dialled")
		s.say("True", "w1")
		s.put(deployment, 0, "False")
		s.say("False", "w1")
	}},
	{name: "turn False what one of several checks says, whatever the others can't know", do: func(s *tale) {
		s.dialling(1)
		s.register("r", "", checkDial, `{name: s, conditionType: Dialled, cluster: Shoot, object: {apiVersion: v1, kind: ConfigMap, name: "'c'"}, evaluate: {status: {}}}`)
		s.wait(time.Minute)
		s.say("False", "w1")
	}},
}

// foreignTelling is what isn't the manager's to write.
var foreignTelling = []dialCase{
	{name: "a condition that wasn't claimed", broken: []Invariant{OwnOnly}, text: "without claiming it before", do: func(s *tale) {
		s.dialling(1)
		s.target("w2")
		s.wait(time.Minute)
		s.say("True", "w2")
	}},
	{name: "somebody else's, though a claim names it", broken: []Invariant{OwnOnly}, text: "in the place of somebody else's, True", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", false, "status", func(o *unstructured.Unstructured) {
			dialled("True", fine)(o)
			list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			list[0].(map[string]any)["reason"] = "Mine"
			_ = unstructured.SetNestedSlice(o.Object, list, "status", "conditions")
		})
		s.dial("Down")
		s.say("False", "w1")
	}},
	{name: "a claim of what somebody else wrote long ago", broken: []Invariant{OwnOnly}, text: "the manager claimed it, and it had been there for", do: func(s *tale) {
		s.dialling(1)
		s.target("w2")
		s.change("Gadget w2", false, "status", dialled("True", fine))
		s.wait(time.Minute)
		s.claim("w2", "Dialled")
	}},
	{name: "another condition beside it", broken: []Invariant{OwnOnly}, text: "more than one condition", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", false, "status", saying("Theirs", "True", "mine"))
		s.dial("Down")
		s.change("Gadget w1", true, "status", func(o *unstructured.Unstructured) {
			dialled("False", bad)(o)
			saying("Theirs", "True", "ours")(o)
		})
	}},
	{name: "the order of others' conditions", broken: []Invariant{OwnOnly}, text: "more than one condition", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", false, "status", saying("A", "True", "mine"))
		s.change("Gadget w1", false, "status", saying("B", "True", "mine"))
		s.dial("Down")
		s.change("Gadget w1", true, "status", func(o *unstructured.Unstructured) {
			dialled("False", bad)(o)
			list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			list[1], list[2] = list[2], list[1]
			_ = unstructured.SetNestedSlice(o.Object, list, "status", "conditions")
		})
	}},
	{name: "another field of the status", broken: []Invariant{OwnOnly}, text: "more than one condition", do: func(s *tale) {
		s.dialling(1)
		s.dial("Down")
		s.change("Gadget w1", true, "status", func(o *unstructured.Unstructured) {
			dialled("False", bad)(o)
			_ = unstructured.SetNestedField(o.Object, "x", "status", "phase")
		})
	}},
	{name: "a label", broken: []Invariant{OwnOnly}, text: "than which conditions are its own", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", true, "", func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"healed": "yes"}) })
	}},
	{name: "a condition of another form than that of checks", broken: []Invariant{OwnOnly}, text: "nobody will know as its own", do: func(s *tale) {
		s.dialling(1)
		s.dial("Down")
		s.change("Gadget w1", true, "status", dialled("False", "it is Down"))
	}},
	{name: "the removal of somebody else's", broken: []Invariant{OwnOnly}, text: "isn't of the form of checks", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", false, "status", saying("Theirs", "True", "mine"))
		s.register("r", ", removeConditionTypes: [Theirs]", checkDial)
		s.change("Gadget w1", true, "status", saying("Theirs", "", ""))
	}},
	{name: "the removal of what was never claimed", broken: []Invariant{OwnOnly}, text: "hadn't claimed it", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", false, "status", saying("Old", "True", fine))
		s.change("Gadget w1", true, "status", saying("Old", "", ""))
	}},
	{name: "a claim that is dropped while its condition stays", broken: []Invariant{OwnOnly}, text: "forgot that it wrote it", do: func(s *tale) {
		s.dialling(1)
		s.claim("w1")
	}},
	{name: "a condition on what people hold", broken: []Invariant{OwnOnly}, text: "on what people hold", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", false, "", annotated(holdKey, "for a while"))
		s.wait(time.Minute)
		s.dial("Down")
		s.say("False", "w1")
	}},
	{name: "conditions of a deleted registration that stay", broken: []Invariant{Undone}, text: "what r did isn't undone 1h0m0s after its deletion", do: func(s *tale) {
		s.dialling(1)
		s.drop("HealthCheckRegistration r")
		s.wait(time.Hour)
	}},
	{name: "conditions of a deleted registration that go late", broken: []Invariant{Undone}, text: "was undone only 1h0m0s", do: func(s *tale) {
		s.dialling(1)
		s.drop("HealthCheckRegistration r")
		s.wait(time.Hour)
		s.say("", "w1")
		s.claim("w1")
	}},
}

// unfoundedTelling is what no registration in force asks for.
var unfoundedTelling = []dialCase{
	{name: "a condition of a type that none decides", broken: []Invariant{Validated, Validated}, text: "did claim it, and no registration decides it", do: func(s *tale) {
		s.dialling(1)
		s.claim("w1", "Dialled", "Other")
		s.change("Gadget w1", true, "status", saying("Other", "True", fine))
	}},
	{name: "a target that isn't selected any more", broken: []Invariant{Validated}, text: "no registration decides it", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", false, "", func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, "other", "spec", "type") })
		s.wait(time.Minute)
		s.dial("Down")
		s.say("False", "w1")
	}},
	{name: "a namespace that isn't selected", broken: []Invariant{Validated}, text: "no registration decides it", do: func(s *tale) {
		s.dialling(1)
		s.register("r", "", checkDial)
		s.change("HealthCheckRegistration r", false, "", func(o *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(o.Object, map[string]any{"matchLabels": map[string]any{"tenant": "b"}}, "spec", "target", "namespaceSelector")
			o.SetGeneration(3)
		})
		s.wait(time.Minute)
		s.dial("Down")
		s.say("False", "w1")
	}},
	{name: "a registration that only observes", broken: []Invariant{Validated}, text: "no registration decides it", do: func(s *tale) {
		s.dialling(1)
		s.register("r", ", mode: Observe", checkDial)
		s.wait(time.Minute)
		s.dial("Down")
		s.say("False", "w1")
	}},
	{name: "a registration that tells in its own status alone", broken: []Invariant{Validated}, text: "no registration decides it", do: func(s *tale) {
		s.dialling(1)
		s.register("r", ", output: RegistrationOnly", checkDial)
		s.wait(time.Minute)
		s.dial("Down")
		s.say("False", "w1")
	}},
	{name: "a Guardrail that pauses", broken: []Invariant{Validated}, text: "pauses all new acts", do: func(s *tale) {
		s.dialling(1)
		s.put(paused, "paused")
		s.wait(time.Minute)
		s.dial("Down")
		s.say("False", "w1")
	}},
	{name: "a Guardrail that freezes, whatever heals", broken: []Invariant{Frozen}, text: "stop freezes everything", do: func(s *tale) {
		s.dialling(1)
		s.dial("Down")
		s.say("False", "w1")
		s.put(paused, "frozen")
		s.wait(time.Minute)
		s.dial("Up")
		s.say("True", "w1")
	}},
	{name: "one of two registrations that is refused", broken: []Invariant{Validated}, text: "the status of other had said for", do: func(s *tale) {
		s.dialling(1)
		s.register("other", "", checkDial)
		s.status("other", "{conditions: [{type: Accepted, status: 'False', observedGeneration: 1}]}")
		s.wait(time.Minute)
		s.dial("Down")
		s.change("Gadget w1", true, "status", dialled("False", "(0/2) Health checks successful: 1) r/dial: it is Down 2) other/dial: it is Down"))
		s.wait(time.Minute)
	}},
	{name: "what was there already", broken: []Invariant{Once}, text: "wrote what was there", do: func(s *tale) {
		s.dialling(1)
		s.change("Gadget w1", true, "status", func(o *unstructured.Unstructured) {
			list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
			list[0].(map[string]any)["lastTransitionTime"] = "2026-11-21T12:00:00Z"
			_ = unstructured.SetNestedSlice(o.Object, list, "status", "conditions")
		})
	}},
	{name: "a war", broken: []Invariant{Once}, text: "after it did so last", do: func(s *tale) {
		s.dialling(1)
		for range 4 {
			s.change("Gadget w1", false, "status", dialled("False", bad))
			s.wait(20 * time.Millisecond)
			s.say("True", "w1")
		}
	}},
}

// doubtfulTelling is what isn't so, or isn't known.
var doubtfulTelling = []dialCase{
	{name: "False, and all is well", broken: []Invariant{Doubt}, text: "all that its checks look at was well", do: func(s *tale) {
		s.dialling(1)
		s.say("False", "w1")
	}},
	{name: "False of a target that is new, and all is well", broken: []Invariant{Doubt}, text: "all that its checks look at was well", do: func(s *tale) {
		s.dialling(1)
		s.target("w2")
		s.claim("w2", "Dialled")
		s.say("False", "w2")
	}},
	{name: "False of a Deployment that is available", broken: []Invariant{Doubt}, text: "all that its checks look at was well", do: func(s *tale) {
		s.put(deployment, 1, "True")
		s.target("w1")
		s.register("r", "", checkDeployment)
		s.wait(time.Minute)
		s.claim("w1", "Dialled")
		s.say("False", "w1")
	}},
	{name: "False, and what it is about may not be read", broken: []Invariant{Doubt}, text: "or couldn't be read", do: func(s *tale) {
		s.dialling(1)
		s.drop("ClusterRole r")
		s.wait(time.Minute)
		s.dial("Down")
		s.say("False", "w1")
	}},
	{name: "False, and it could be read only while it was well", broken: []Invariant{Doubt}, text: "or couldn't be read", do: func(s *tale) {
		s.dialling(1)
		s.drop("ClusterRoleBinding r")
		s.wait(time.Second)
		s.dial("Down")
		s.wait(time.Second)
		s.say("False", "w1")
	}},
	{name: "True, and it is Down", broken: []Invariant{Doubt}, text: "what a check of r looks at wasn't well", do: func(s *tale) {
		s.dialling(1)
		s.dial("Down")
		s.say("False", "w1")
		s.wait(time.Minute)
		s.say("True", "w1")
	}},
	{name: "True of a Deployment with fewer pods than it wants", broken: []Invariant{Doubt}, text: "what a check of r looks at wasn't well", do: func(s *tale) {
		s.put(deployment, 0, "False")
		s.target("w1")
		s.register("r", "", checkDeployment)
		s.wait(time.Minute)
		s.claim("w1", "Dialled")
		s.say("True", "w1")
	}},
	{name: "True, and what it is about isn't there", broken: []Invariant{Doubt}, text: "what a check of r looks at wasn't well", do: func(s *tale) {
		s.dialling(1)
		s.dial("Down")
		s.say("False", "w1")
		s.drop("ConfigMap dial")
		s.wait(time.Minute)
		s.say("True", "w1")
	}},
	{name: "what is suspended", broken: []Invariant{Doubt}, text: "while r suspends the target", do: func(s *tale) {
		s.dialling(1)
		s.register("r", `, suspendWhen: "target.spec.type == 'dials'"`, checkDial)
		s.wait(time.Minute)
		s.dial("Down")
		s.say("False", "w1")
	}},
	{name: "the removal of what a registration decides", broken: []Invariant{Doubt}, text: "the manager removed it, and r decides it", do: func(s *tale) {
		s.dialling(1)
		s.say("", "w1")
		s.claim("w1")
	}},
}

// unlimitedTelling is more than the breaker believes.
var unlimitedTelling = []dialCase{
	{name: "three of six within five minutes", broken: []Invariant{Limits}, text: "3 of 6 targets of r turned False within 5m0s", do: func(s *tale) {
		names := s.dialling(6)
		s.dial("Down")
		s.say("False", names[0])
		s.wait(4 * time.Minute)
		s.say("False", names[1:3]...)
	}},
	{name: "three, one of which is gone", broken: []Invariant{Limits}, text: "3 of 5 targets of r turned False", do: func(s *tale) {
		names := s.dialling(6)
		s.dial("Down")
		s.say("False", names[:2]...)
		s.drop("Gadget w1")
		s.wait(time.Minute)
		s.say("False", names[2])
	}},
	{name: "three, and the registration was made anew", broken: []Invariant{Limits}, text: "3 of 6 targets of r turned False", do: func(s *tale) {
		names := s.dialling(6)
		s.dial("Down")
		s.say("False", names[:2]...)
		s.drop("HealthCheckRegistration r")
		s.register("r", "", checkDial)
		s.say("False", names[2])
	}},
	{name: "three by one of two registrations, which the message names", broken: []Invariant{Limits}, text: "3 of 6 targets of r turned False", do: func(s *tale) {
		names := s.dialling(6)
		s.register("other", "", checkDial)
		s.wait(time.Minute)
		s.dial("Down")
		for _, name := range names[:3] {
			s.change("Gadget "+name, true, "status", dialled("False", "(1/2) Health checks successful: 1) r/dial: it is Down"))
		}
	}},
	{name: "three, and the mode was switched", broken: []Invariant{Limits}, text: "3 of 6 targets of r turned False", do: func(s *tale) {
		names := s.dialling(6)
		s.dial("Down")
		s.say("False", names[:2]...)
		s.register("r", ", mode: Observe", checkDial)
		s.register("r", "", checkDial)
		s.wait(time.Minute)
		s.say("False", names[2])
	}},
	{name: "one while the breaker is open, when five minutes have passed", broken: []Invariant{Limits}, text: "while the breaker of r is open", do: func(s *tale) {
		names := s.dialling(6)
		s.dial("Down")
		s.say("False", names[:2]...)
		s.status("r", "{breaker: {id: o1}}")
		s.wait(10 * time.Minute)
		s.say("False", names[2])
	}},
	{name: "what was doubted before a reset of another opening", broken: []Invariant{Limits}, text: "3 of 6 targets of r turned False", do: func(s *tale) {
		names := s.dialling(6)
		s.dial("Down")
		s.say("False", names[:2]...)
		s.say("Doubt", names[2])
		s.change("HealthCheckRegistration r", false, "", annotated(resetKey, "o0"))
		s.say("False", names[2])
	}},
}
