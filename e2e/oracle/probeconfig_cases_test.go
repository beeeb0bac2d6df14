package oracle

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// exact leaves the manager no time in which its view may be behind.
var exact = Options{Lag: time.Nanosecond}

// correctScaling is what a manager may do with dependents; none of it breaks anything.
var correctScaling = []plantCase{
	{name: "take what is recorded, and give it back", options: exact, do: func(p plant) {
		c, kcm, mcm := p.config(""), p.deploy("kcm"), p.deploy("mcm")
		p.take(c, kcm, mcm)
		p.giveBack(kcm)
		p.giveBack(mcm)
	}},
	{name: "give back for a config that was deleted", options: exact, do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.delete()
		p.giveBack(kcm)
	}},
	{name: "forget what someone else scaled meanwhile", options: exact, do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.ask(kcm, `{"spec":{"replicas":5}}`)
		p.note(kcm, "")
	}},
	{name: "forget what sleeps", options: exact, do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		yard(p).must("annotate", "namespace", "default", "autohealer.resourcestack.com/hibernated=true")
		p.note(kcm, "")
	}},
	{name: "leave a record for good on what asks to be left alone", options: Options{UndoWithin: time.Nanosecond}, do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.ask(kcm, `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true"}}}`)
		p.delete()
	}},
	{name: "act in the namespaces that a config selects", options: exact, do: func(p plant) {
		c := p.configIn("autohealer-system", `,"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"other"}}`)
		p.take(c, p.deployIn("other", "kcm"))
	}},
	{name: "act for a config that was changed just now", do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.edit(`{"spec":{"mode":"Observe"}}`)
		p.take(c, kcm)
	}},
	{name: "give back once nodes aren't cut off", options: exact, do: func(p plant) {
		p.oracle.CutOff("default")
		c, kcm := p.config(`,"nodeLeases":{}`), p.deploy("kcm")
		p.take(c, kcm)
		p.oracle.Mend("default")
		p.giveBack(kcm)
	}},
	{name: "give back when nodes have been cut off for as long as the config has it", options: exact, do: func(p plant) {
		p.oracle.CutOff("default")
		c, kcm := p.config(`,"nodeLeases":{"maxProtectionDuration":"1ms"}`), p.deploy("kcm")
		p.take(c, kcm)
		p.giveBack(kcm)
	}},
	{name: "give back for a config that only observes, though nodes are cut off", options: exact, do: func(p plant) {
		p.oracle.CutOff("default")
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.edit(`{"spec":{"mode":"Observe"}}`)
		p.giveBack(kcm)
	}},
	{name: "give back what was taken before nodes were cut off", options: exact, do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.oracle.CutOff("default")
		p.giveBack(kcm)
	}},
	{name: "take again what someone else scaled up in an outage before", options: exact, do: func(p plant) {
		p.oracle.CutOff("default")
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.ask(kcm, `{"spec":{"replicas":3}}`)
		p.oracle.Mend("default")
		p.note(kcm, "")
		p.oracle.CutOff("default")
		p.take(c, kcm)
	}},
	{name: "take again what someone else scaled up before the config only observed", do: func(p plant) {
		p.oracle.CutOff("default")
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.ask(kcm, `{"spec":{"replicas":3}}`)
		p.edit(`{"spec":{"mode":"Observe"}}`)
		p.note(kcm, "")
		p.edit(`{"spec":{"mode":null}}`)
		p.take(c, kcm)
	}},
	{name: "act upon a kubeconfig that worked", options: exact, do: func(p plant) {
		p.supply("default", "kubeconfig one")
		c, kcm := p.config(""), p.deploy("kcm")
		p.prove("default", markOfOne)
		p.take(c, kcm)
	}},
	{name: "act upon one that worked of which the status is late", options: exact, do: func(p plant) {
		p.supply("default", "kubeconfig one")
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.prove("default", markOfOne)
	}},
	{name: "act upon one that worked before another took its place for a while", options: exact, do: func(p plant) {
		p.supply("default", "kubeconfig one")
		c, kcm := p.config(""), p.deploy("kcm")
		p.prove("default", markOfOne)
		p.supply("default", "kubeconfig two")
		p.supply("default", "kubeconfig one")
		p.take(c, kcm)
	}},
	{name: "act upon one that was replaced just now", do: func(p plant) {
		p.supply("default", "kubeconfig one")
		c, kcm := p.config(""), p.deploy("kcm")
		p.prove("default", markOfOne)
		p.supply("default", "kubeconfig two")
		p.take(c, kcm)
	}},
	{name: "leave everything to others", options: exact, do: func(p plant) {
		kcm := p.deploy("kcm")
		p.ask(kcm, `{"spec":{"replicas":0}}`)
		p.ask(kcm, `{"spec":{"replicas":2}}`)
	}},
}

func (p plant) delete() {
	p.Helper()
	if err := p.configs("default").Delete(p.Context(), "c", metav1.DeleteOptions{}); err != nil {
		p.Fatal(err)
	}
}

// taken has the manager do something with what it scaled down.
func taken(do func(plant, object)) func(plant) {
	return func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		do(p, kcm)
	}
}

// foreignScaling changes what no record owns, or loses what one says.
var foreignScaling = []plantCase{
	{name: "take without a record", do: func(p plant) { p.scale(p.deploy("kcm"), 0) }, broken: []Invariant{OwnOnly}, text: "without a record"},
	{name: "record another number", do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.note(kcm, recordOf(c, 1, 2))
	}, broken: []Invariant{OwnOnly}, text: "recorded 2 replicas"},
	{name: "take what was scaled since it was recorded", do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.note(kcm, recordOf(c, 1, 3))
		p.ask(kcm, `{"spec":{"replicas":5}}`)
		p.scale(kcm, 0)
	}, broken: []Invariant{OwnOnly}, text: "took 5 replicas"},
	{name: "take a part", do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.note(kcm, recordOf(c, 1, 3))
		p.scale(kcm, 1)
	}, broken: []Invariant{OwnOnly}, text: "from 3 to 1"},
	{name: "give back less", do: taken(func(p plant, o object) { p.scale(o, 2) }), broken: []Invariant{OwnOnly}, text: "its record says 3"},
	{name: "give back more", do: taken(func(p plant, o object) { p.scale(o, 4) }), broken: []Invariant{OwnOnly}, text: "its record says 3"},
	{name: "give back what was never taken", do: func(p plant) {
		p.config("")
		kcm := p.deploy("kcm")
		p.ask(kcm, `{"spec":{"replicas":0}}`)
		p.scale(kcm, 3)
	}, broken: []Invariant{OwnOnly}, text: "from 0 to 3 without a record"},
	{name: "give back what asks to be left alone", do: taken(func(p plant, o object) {
		p.ask(o, `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true"}}}`)
		p.scale(o, 3)
	}), broken: []Invariant{OwnOnly}, text: "asks to be left alone"},
	{name: "forget what has nothing back", do: taken(func(p plant, o object) { p.note(o, "") }), broken: []Invariant{OwnOnly}, text: "removed the record of 3"},
	{name: "forget the label", do: taken(func(p plant, o object) {
		p.scale(o, 3)
		p.patch(o, `{"metadata":{"annotations":{"autohealer.resourcestack.com/original-replicas":null}}}`)
	}), broken: []Invariant{OwnOnly}, text: "its label alone"},
	{name: "change more than the record", do: func(p plant) {
		p.config("")
		p.patch(p.deploy("kcm"), `{"spec":{"paused":true}}`)
	}, broken: []Invariant{OwnOnly}, text: "more"},
	{name: "delete what it is to protect", do: func(p plant) {
		p.config("")
		kcm := p.deploy("kcm")
		if err := p.manager.AppsV1().Deployments("default").Delete(p.Context(), kcm.name, metav1.DeleteOptions{}); err != nil {
			p.Fatal(err)
		}
	}, broken: []Invariant{Validated}, text: "which no policy asks for"},
	{name: "scale to what it has", do: func(p plant) { p.scale(p.deploy("kcm"), 3) }, broken: []Invariant{Once}, text: "that it had"},
}

// unfoundedScaling takes what no policy lets it take.
var unfoundedScaling = []plantCase{
	{name: "for a config that isn't there", do: func(p plant) {
		p.config("")
		p.take("4e1d", p.deploy("kcm"))
	}, broken: []Invariant{Validated}, text: "no policy"},
	{name: "for a generation that never was", do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.note(kcm, recordOf(c, 7, 3))
		p.scale(kcm, 0)
	}, broken: []Invariant{Validated}, text: "never had generation 7"},
	{name: "for a config that only observes", options: exact, do: func(p plant) {
		p.take(p.config(`,"mode":"Observe"`), p.deploy("kcm"))
	}, broken: []Invariant{Validated}, text: "only observes"},
	{name: "while a Guardrail pauses", options: exact, do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		yard(p).guardrail("calm", `{"paused":true}`)
		p.take(c, kcm)
	}, broken: []Invariant{Validated}, text: "Guardrail calm pauses"},
	{name: "give back while everything is frozen", options: exact, do: taken(func(p plant, o object) {
		yard(p).guardrail("ice", `{"frozen":true}`)
		p.scale(o, 3)
	}), broken: []Invariant{Frozen}, text: "Guardrail ice freezes everything"},
	{name: "what the config doesn't name", do: func(p plant) { p.take(p.config(""), p.deploy("web")) }, broken: []Invariant{OwnOnly}, text: "no dependent"},
	{name: "in a namespace that isn't the config's", do: func(p plant) { p.take(p.config(""), p.deployIn("other", "kcm")) }, broken: []Invariant{OwnOnly}, text: "no dependent"},
	{name: "what asks to be left alone", do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.ask(kcm, `{"metadata":{"annotations":{"autohealer.resourcestack.com/ignore-scaling":"true"}}}`)
		p.take(c, kcm)
	}, broken: []Invariant{OwnOnly}, text: "asks to be left alone"},
	{name: "what asks dependency-watchdog to be left alone", do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.ask(kcm, `{"metadata":{"annotations":{"dependency-watchdog.gardener.cloud/ignore-scaling":"t"}}}`)
		p.take(c, kcm)
	}, broken: []Invariant{OwnOnly}, text: "asks to be left alone"},
	{name: "what is held", do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.ask(kcm, `{"metadata":{"annotations":{"autohealer.resourcestack.com/hold-until":"2100-01-01T00:00:00Z"}}}`)
		p.take(c, kcm)
	}, broken: []Invariant{OwnOnly}, text: "which is held"},
	{name: "upon a kubeconfig that never worked", options: exact, do: func(p plant) {
		p.supply("default", "kubeconfig one")
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
	}, broken: []Invariant{Validated}, text: "never worked"},
	{name: "upon one that worked only then", options: exact, do: func(p plant) {
		p.supply("default", "kubeconfig one")
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.prove("default", "")
		p.prove("default", markOfOne)
	}, broken: []Invariant{Validated}, text: "never worked"},
	{name: "upon one that worked elsewhere", options: exact, do: func(p plant) {
		p.supply("default", "kubeconfig one")
		c, kcm := p.config(""), p.deploy("kcm")
		p.prove("other", markOfOne)
		p.take(c, kcm)
	}, broken: []Invariant{Validated}, text: "never worked"},
	{name: "upon one that took the place of one that worked", options: exact, do: func(p plant) {
		p.supply("default", "kubeconfig one")
		c, kcm := p.config(""), p.deploy("kcm")
		p.prove("default", markOfOne)
		p.supply("default", "kubeconfig two")
		p.take(c, kcm)
	}, broken: []Invariant{Validated}, text: "never worked"},
	{name: "in doubt", options: Options{DoubtGrace: time.Nanosecond}, do: func(p plant) {
		c, kcm := p.config(""), p.deploy("kcm")
		p.oracle.Freeze("the probes")
		p.take(c, kcm)
	}, broken: []Invariant{Doubt}, text: "the probes froze"},
}

// unlimitedScaling takes too much, or keeps it for too long.
var unlimitedScaling = []plantCase{
	{name: "more targets than a share of them", options: exact, do: func(p plant) {
		here, there := p.config(""), p.configIn("other", "")
		p.take(here, p.deploy("kcm"))
		p.take(there, p.deployIn("other", "kcm"))
	}, broken: []Invariant{Limits}, text: "2 targets are scaled down, at most 1 may be"},
	{name: "and give it back while nodes are cut off", options: exact, do: func(p plant) {
		p.oracle.CutOff("default")
		c, kcm := p.config(`,"nodeLeases":{}`), p.deploy("kcm")
		p.take(c, kcm)
		p.giveBack(kcm)
	}, broken: []Invariant{Protected}, text: "when its nodes had been cut off for"},
	{name: "again what someone scaled up in the same outage", options: exact, do: func(p plant) {
		p.oracle.CutOff("default")
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.ask(kcm, `{"spec":{"replicas":3}}`)
		p.scale(kcm, 0)
	}, broken: []Invariant{Once}, text: "which someone had scaled up in the same outage"},
	{name: "again by another record", options: exact, do: func(p plant) {
		p.oracle.CutOff("default")
		c, kcm := p.config(""), p.deploy("kcm")
		p.take(c, kcm)
		p.ask(kcm, `{"spec":{"replicas":2}}`)
		p.note(kcm, recordOf(c, 1, 2))
		p.scale(kcm, 0)
	}, broken: []Invariant{Once}, text: "which someone had scaled up in the same outage"},
	{name: "any target where none may be", options: exact, do: func(p plant) {
		yard(p).guardrail("none", `{"limits":{"maxScaledDownTargets":0}}`)
		p.take(p.config(""), p.deploy("kcm"))
	}, broken: []Invariant{Limits}, text: "at most 0 may be"},
	{name: "and give it back late when the config is deleted", options: Options{UndoWithin: time.Nanosecond}, do: taken(func(p plant, o object) {
		p.delete()
		p.giveBack(o)
	}), broken: []Invariant{Undone}, text: "was undone only"},
}
