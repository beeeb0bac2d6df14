package oracle

import "time"

// correctDetecting is what a manager may do; none of it breaks anything.
var correctDetecting = []shopCase{
	{name: "patch, follow an edit, and undo with the policy", do: func(s shop) {
		web := s.open()
		s.detectedBy(web, 1, 3)
		s.detect(4, claimed)
		s.wait(time.Minute)
		s.detectedBy(web, 2, 4)
		s.drop("OutlierPolicy web")
		s.wait(50 * time.Second)
		s.unpatch(precisely)
		s.wait(time.Hour)
	}},
	{name: "patch a moment longer by what was before", do: func(s shop) {
		web := s.open()
		s.detect(4, claimed)
		s.gateway(false)
		s.wait(4 * time.Second)
		s.detectedBy(web, 1, 3)
	}},
	{name: "have what only observes counted", do: func(s shop) {
		s.gateway(true)
		s.detect(3, claimed, ", mode: Observe")
		web := s.objects["OutlierPolicy web"].GetUID()
		s.patch(patchRecord(patchedCluster, web, 1), "/outlier_detection", counts, 3)
		s.run("a", counts, 3)
	}},
	{name: "undo while new acts are paused", do: func(s shop) {
		web := s.open()
		s.detectedBy(web, 1, 3)
		s.stop("paused")
		s.drop("OutlierPolicy web")
		s.unpatch(precisely)
		s.wait(time.Hour)
	}},
	{name: "leave to others what they patch", do: func(s shop) {
		s.put("{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: EnvoyPatchPolicy, metadata: {namespace: shop, name: autohealer.web}, spec: {jsonPatches: [{name: x}]}}")
		s.drop("EnvoyPatchPolicy autohealer.web")
	}},
	{name: "serve an Envoy that comes in a pause as the others are, whatever is asked for by now", do: func(s shop) {
		s.open()
		s.run("a", detects, 3)
		s.stop("paused")
		s.detect(4, claimed)
		s.wait(time.Minute)
		s.run("b", detects, 3)
	}},
	{name: "have Envoys forget a policy that is gone, if they are still there", do: func(s shop) {
		s.open()
		s.run("a", detects, 3)
		s.run("b", detects, 3)
		s.drop("OutlierPolicy web")
		s.wait(50 * time.Second)
		s.run("a", "")
		s.end("b")
		s.wait(time.Hour)
	}},
	{name: "leave an Envoy as it is, where another policy says the same", do: func(s shop) {
		s.open()
		s.run("a", detects, 3)
		s.drop("OutlierPolicy web")
		s.detect(3)
		s.wait(time.Hour)
	}},
	{name: "serve what the cluster's default says", do: func(s shop) {
		s.put(`{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: OutlierPolicy, metadata: {namespace: autohealer-system, name: default, generation: 1},
  spec: {outlierDetection: {consecutiveServerErrors: 3, interval: 0.2s}}}`)
		s.run("a", detects, 3)
	}},
	{name: "tell who is ejected while that is known, and a moment longer", do: func(s shop) {
		web := s.open()
		s.tell("{ejected: 1, ejections: [{address: a}], ancestors: [{ancestorRef: {kind: Service}, clusters: 1, ejected: 1}]}")
		s.tell(`{conditions: [{type: EjectionsUnknown, status: "True"}], ancestors: [{ancestorRef: {kind: Service}, clusters: 1}]}`)
		s.wait(4 * time.Second)
		s.event(web)
	}},
	{name: "let stand what was told, while a Gateway is new", do: func(s shop) {
		s.open()
		s.tell("{ejected: 1, ancestors: [{ancestorRef: {kind: Service}, clusters: 1, ejected: 1}]}")
		s.tell("{ejected: 1, ancestors: [{ancestorRef: {kind: Service}, clusters: 1, ejected: 1}, {ancestorRef: {kind: Gateway}, clusters: 1}]}")
	}},
	{name: "forget a cluster once its Service is gone, and a route's own", do: func(s shop) {
		s.service()
		s.remember("shop/web/80", "shop/web/80@httproute/r")
		s.remember("shop/web/80")
		s.drop("Service web")
		s.remember()
	}},
}

// brokenPatches are for nobody, or not what is asked for.
var brokenPatches = []shopCase{
	{name: "for a policy that never was", broken: []Invariant{Validated}, text: "there is no policy", do: func(s shop) {
		s.open()
		s.detectedBy("nobody", 1, 3)
	}},
	{name: "for a generation that never was", broken: []Invariant{Validated}, text: "never had generation 2", do: func(s shop) {
		s.detectedBy(s.open(), 2, 3)
	}},
	{name: "for a generation of before", broken: []Invariant{Validated}, text: "generation 1 of web was replaced", do: func(s shop) {
		web := s.open()
		s.detect(4, claimed)
		s.wait(time.Minute)
		s.detectedBy(web, 1, 3)
	}},
	{name: "for a policy that is gone", broken: []Invariant{Validated}, text: "web was deleted", do: func(s shop) {
		web := s.open()
		s.drop("OutlierPolicy web")
		s.wait(30 * time.Second)
		s.detectedBy(web, 1, 3)
	}},
	{name: "for a policy whose status says that it is refused", broken: []Invariant{Validated}, text: "that it is refused", do: func(s shop) {
		web := s.open()
		s.tell(`{conditions: [{type: Accepted, status: "False", observedGeneration: 1}]}`)
		s.wait(time.Minute)
		s.detectedBy(web, 1, 3)
		s.wait(time.Minute)
	}},
	{name: "in a pause", broken: []Invariant{Validated}, text: "Guardrail stop pauses all new acts", do: func(s shop) {
		web := s.open()
		s.stop("paused")
		s.detectedBy(web, 1, 3)
	}},
	{name: "that eject for what only observes", broken: []Invariant{Validated, Validated}, text: "only observes", do: func(s shop) {
		s.gateway(true)
		s.detect(3, claimed, ", mode: Observe")
		s.detectedBy(s.objects["OutlierPolicy web"].GetUID(), 1, 3)
	}},
	{name: "for what is disabled", broken: []Invariant{Validated}, text: "it is disabled", do: func(s shop) {
		s.gateway(true)
		s.detect(3, claimed, ", disabled: true")
		s.detectedBy(s.objects["OutlierPolicy web"].GetUID(), 1, 3)
	}},
	{name: "with another number", broken: []Invariant{Validated}, text: "the server errors is 5, not 3", do: func(s shop) {
		s.detectedBy(s.open(), 1, 5)
	}},
	{name: "with another time", broken: []Invariant{Validated}, text: `the interval is "10s", not "200ms"`, do: func(s shop) {
		s.patch(patchRecord(patchedCluster, s.open(), 1), "/outlier_detection", `{"consecutive_5xx": 3, "interval": "10s", "enforcing_success_rate": 0}`)
	}},
	{name: "with success rates", broken: []Invariant{Validated}, text: "by success rates", do: func(s shop) {
		s.patch(patchRecord(patchedCluster, s.open(), 1), "/outlier_detection", `{"consecutive_5xx": 3, "interval": "0.200s"}`)
	}},
	{name: "for a policy that would be gone before them", broken: []Invariant{Undone}, text: "has no finalizer", do: func(s shop) {
		s.gateway(true)
		s.detect(3)
		s.detectedBy(s.objects["OutlierPolicy web"].GetUID(), 1, 3)
	}},
	{name: "that stay when the policy is gone", broken: []Invariant{Undone}, text: "isn't undone 1h0m0s after", do: func(s shop) {
		s.detectedBy(s.open(), 1, 3)
		s.drop("OutlierPolicy web")
		s.wait(time.Hour)
	}},
	{name: "of a Gateway that doesn't ask for it", broken: []Invariant{Validated}, text: "Gateway shop/web, which doesn't ask for it", do: func(s shop) {
		web := s.open()
		s.gateway(false)
		s.wait(time.Minute)
		s.detectedBy(web, 1, 3)
	}},
}

// foreignPatches are none of Autohealer's business.
var foreignPatches = []shopCase{
	{name: "those of somebody else's object", broken: []Invariant{OwnOnly}, text: "somebody else's", do: func(s shop) {
		web := s.open()
		s.put("{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: EnvoyPatchPolicy, metadata: {namespace: shop, name: autohealer.web}, spec: {targetRef: {kind: Gateway, name: web}}}")
		s.detectedBy(web, 1, 3)
	}},
	{name: "those without a record", broken: []Invariant{OwnOnly}, text: "its record can't be read", do: func(s shop) {
		s.open()
		s.patch("odd", "/outlier_detection", detects, 3)
	}},
	{name: "those of a cluster that isn't recorded", broken: []Invariant{OwnOnly, OwnOnly}, text: "add /outlier_detection of httproute/shop/web/rule/0", do: func(s shop) {
		s.patch(patchRecord("httproute/shop/web/rule/1", s.open(), 1), "/outlier_detection", detects, 3)
	}},
	{name: "those of something else", broken: []Invariant{OwnOnly, OwnOnly}, text: "add /transport_socket", do: func(s shop) {
		s.patch(patchRecord(patchedCluster, s.open(), 1), "/transport_socket", "{}")
	}},
	{name: "a deletion of whatever has the name", broken: []Invariant{OwnOnly}, text: "without saying which", do: func(s shop) {
		s.detectedBy(s.open(), 1, 3)
		s.unpatch("{}")
	}},
	{name: "an undo while everything is frozen", broken: []Invariant{Frozen}, text: "Guardrail stop freezes everything", do: func(s shop) {
		s.detectedBy(s.open(), 1, 3)
		s.stop("frozen")
		s.unpatch(precisely)
	}},
}

// brokenServing has Envoys do what no policy says.
var brokenServing = []shopCase{
	{name: "what none ever said", broken: []Invariant{Validated}, text: "as no OutlierPolicy in force says: web: the server errors is 9, not 3", do: func(s shop) {
		s.open()
		s.run("a", detects, 9)
	}},
	{name: "what one of another namespace says", broken: []Invariant{Validated}, text: "there is none in namespace shop", do: func(s shop) {
		s.put(`{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: OutlierPolicy, metadata: {namespace: other, name: default, generation: 1},
  spec: {outlierDetection: {consecutiveServerErrors: 3, interval: 200ms}}}`)
		s.run("a", detects, 3)
	}},
	{name: "what one said before", broken: []Invariant{Validated}, text: "the server errors is 3, not 4", do: func(s shop) {
		s.open()
		s.detect(4)
		s.wait(time.Minute)
		s.run("a", detects, 3)
	}},
	{name: "something new in a pause", broken: []Invariant{Validated}, text: "Guardrail stop pauses all new acts", do: func(s shop) {
		s.open()
		s.run("a", detects, 3)
		s.stop("paused")
		s.detect(4)
		s.run("a", detects, 4)
	}},
	{name: "what a deleted one said, long after", broken: []Invariant{Undone}, text: "isn't undone 1h0m0s after", do: func(s shop) {
		s.open()
		s.run("a", detects, 3)
		s.drop("OutlierPolicy web")
		s.wait(time.Hour)
	}},
	{name: "nothing any more, long after the policy went", broken: []Invariant{Undone}, text: "was undone only 1h0m0s after", do: func(s shop) {
		s.open()
		s.run("a", detects, 3)
		s.drop("OutlierPolicy web")
		s.wait(time.Hour)
		s.run("a", "")
	}},
}

// unknownEjections are told though nobody knows them, and clusters forgotten though nothing says that they are gone.
var unknownEjections = []shopCase{
	{name: "a number beside that it isn't known", broken: []Invariant{Doubt}, text: "and that it isn't known", do: func(s shop) {
		s.open()
		s.tell(`{ejected: 0, conditions: [{type: EjectionsUnknown, status: "True"}]}`)
	}},
	{name: "a number for some targets alone", broken: []Invariant{Doubt}, text: "of all of them not", do: func(s shop) {
		s.open()
		s.tell("{ancestors: [{ancestorRef: {kind: Service}, clusters: 1, ejected: 0}]}")
	}},
	{name: "a number, and the proxies of a Gateway aren't asked", broken: []Invariant{Doubt}, text: "0 hosts are ejected, and it holds for a Gateway", do: func(s shop) {
		s.open()
		s.tell("{ejected: 0, ancestors: [{ancestorRef: {kind: Gateway}, clusters: 1}]}")
	}},
	{name: "an Event before the status", broken: []Invariant{Doubt}, text: "HostsEjected, and by the policy's status it isn't known", do: func(s shop) {
		s.event(s.open())
	}},
	{name: "an Event long after it was known", broken: []Invariant{Doubt}, text: "HostsEjected, and by the policy's status it isn't known", do: func(s shop) {
		web := s.open()
		s.tell("{ejected: 1}")
		s.tell(`{conditions: [{type: EjectionsUnknown, status: "True"}]}`)
		s.wait(time.Minute)
		s.event(web)
	}},
	{name: "a cluster that is forgotten while its Service is there", broken: []Invariant{Doubt}, text: "forgot cluster shop/web/80, whose Service is there", do: func(s shop) {
		s.service()
		s.remember("shop/web/80")
		s.remember()
	}},
}
