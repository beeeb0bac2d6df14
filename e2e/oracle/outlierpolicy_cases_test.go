package oracle

import (
	"fmt"
	"time"
)

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
		s.unpatch()
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
		s.unpatch()
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
	{name: "leave an Envoy as it is that refuses what others take, and serve it another cluster", do: func(s shop) {
		s.open()
		s.run("a", detects, 3)
		s.detect(4)
		s.wait(time.Minute)
		s.run("b", detects, 4)
		s.runs("a", fmt.Appendf(nil, `{"kind": "Envoy", "clusters": {"shop/web/80": %s, "shop/web/81": %s}}`, fmt.Sprintf(detects, 3), fmt.Sprintf(detects, 4)))
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
	{name: "leave an Envoy as it is, where another policy says the same, until that goes", do: func(s shop) {
		s.open()
		s.run("a", detects, 3)
		s.drop("OutlierPolicy web")
		s.detect(3)
		s.wait(time.Hour)
		s.drop("OutlierPolicy web")
		s.wait(50 * time.Second)
		s.run("a", "")
	}},
	{name: "serve what the cluster's default says", do: func(s shop) {
		s.put(`{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: OutlierPolicy, metadata: {namespace: autohealer-system, name: default, generation: 1},
  spec: {outlierDetection: {consecutiveServerErrors: 3, interval: 0.2s}}}`)
		s.run("a", detects, 3)
	}},
}

// brokenPatches are for nobody, or not what is asked for.
var brokenPatches = []shopCase{
	{name: "for a policy that never was", broken: []Invariant{Validated}, text: "there is no policy", do: func(s shop) {
		s.open()
		s.detectedBy("nobody", 1, 3)
	}},
	{name: "recorded anew for a policy that never was", broken: []Invariant{Validated}, text: "there is no policy", do: func(s shop) {
		s.detectedBy(s.open(), 1, 3)
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
	{name: "with another number afterwards", broken: []Invariant{Validated}, text: "the number of server errors is 5, not 3", do: func(s shop) {
		web := s.open()
		s.detectedBy(web, 1, 3)
		s.detectedBy(web, 1, 5)
	}},
	{name: "with another number", broken: []Invariant{Validated}, text: "the number of server errors is 5, not 3", do: func(s shop) {
		s.detectedBy(s.open(), 1, 5)
	}},
	{name: "with another time", broken: []Invariant{Validated}, text: "the interval is 10s, not 200ms", do: func(s shop) {
		s.patch(patchRecord(patchedCluster, s.open(), 1), "/outlier_detection", `{"consecutive_5xx": 3, "interval": "10s", "enforcing_success_rate": 0}`)
	}},
	{name: "with local errors split", broken: []Invariant{Validated}, text: "local errors are split: true, not false", do: func(s shop) {
		s.patch(patchRecord(patchedCluster, s.open(), 1), "/outlier_detection",
			`{"consecutive_5xx": 3, "interval": "0.200s", "enforcing_success_rate": 0, "split_external_local_origin_errors": true, "enforcing_local_origin_success_rate": 0}`)
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
	{name: "a deletion of somebody else's object", broken: []Invariant{OwnOnly}, text: "somebody else's", do: func(s shop) {
		s.put("{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: EnvoyPatchPolicy, metadata: {namespace: shop, name: autohealer.web}}")
		s.unpatch()
	}},
	{name: "those of a cluster that isn't recorded", broken: []Invariant{OwnOnly}, text: "add /outlier_detection of httproute/shop/web/rule/0", do: func(s shop) {
		s.patch(patchRecord("httproute/shop/web/rule/1", s.open(), 1), "/outlier_detection", detects, 3)
	}},
	{name: "those of something else", broken: []Invariant{OwnOnly}, text: "add /transport_socket", do: func(s shop) {
		s.patch(patchRecord(patchedCluster, s.open(), 1), "/transport_socket", "{}")
	}},
	{name: "an undo while everything is frozen", broken: []Invariant{Frozen}, text: "Guardrail stop freezes everything", do: func(s shop) {
		s.detectedBy(s.open(), 1, 3)
		s.stop("frozen")
		s.unpatch()
	}},
}

// brokenServing has Envoys do what no policy says.
var brokenServing = []shopCase{
	{name: "what none ever said", broken: []Invariant{Validated}, text: "as no OutlierPolicy in force says: web: the number of server errors is 9, not 3", do: func(s shop) {
		s.open()
		s.run("a", detects, 9)
	}},
	{name: "what one of another namespace says", broken: []Invariant{Validated}, text: "there is none for it", do: func(s shop) {
		s.put(`{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: OutlierPolicy, metadata: {namespace: other, name: default, generation: 1},
  spec: {outlierDetection: {consecutiveServerErrors: 3, interval: 200ms}}}`)
		s.run("a", detects, 3)
	}},
	{name: "what one said before", broken: []Invariant{Validated}, text: "the number of server errors is 3, not 4", do: func(s shop) {
		s.open()
		s.detect(4)
		s.wait(time.Minute)
		s.run("a", detects, 3)
	}},
	{name: "what a deleted one said, though others were told so before", broken: []Invariant{Validated}, text: "there is none for it", do: func(s shop) {
		s.open()
		s.run("a", detects, 3)
		s.drop("OutlierPolicy web")
		s.run("a", "")
		s.wait(time.Minute)
		s.run("b", detects, 3)
		s.end("b")
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
