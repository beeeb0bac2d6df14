package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// shop is a tale of Gateway shop/web and OutlierPolicy shop/web, for which Gateways are patched and Envoys are served.
type shop struct{ *tale }

const (
	// detects has so many errors in a row eject, each 200 ms.
	detects = `{"consecutive_5xx": %d, "interval": "0.200s", "enforcing_success_rate": 0}`
	// counts has Envoy count alone.
	counts = `{"consecutive_5xx": %d, "interval": "0.200s", "enforcing_success_rate": 0, "enforcing_consecutive_5xx": 0}`
	// patchedCluster is the one that is patched.
	patchedCluster = "httproute/shop/web/rule/0"
)

// gateway has somebody write the Gateway, which asks for patches or doesn't.
func (s shop) gateway(asks bool) {
	s.Helper()
	s.put(`{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: shop, name: web, labels: {autohealer.resourcestack.com/envoy-patches: "%t"}}}`, asks)
}

// detect has somebody write the policy, which has so many errors in a row eject; more is of its metadata, and of its spec.
func (s shop) detect(errors int, more ...string) {
	s.Helper()
	generation := int64(1)
	if known := s.objects["OutlierPolicy web"]; known != nil {
		generation = known.GetGeneration() + 1
	}
	more = append(more, "", "")
	s.put(`{apiVersion: autohealer.resourcestack.com/v1alpha1, kind: OutlierPolicy, metadata: {namespace: shop, name: web, generation: %d%s},
  spec: {outlierDetection: {consecutiveServerErrors: %d, interval: 200ms}%s}}`, generation, more[0], errors, more[1])
}

// claimed is metadata of a policy that goes once what it did is undone.
const claimed = ", finalizers: [autohealer.resourcestack.com/undo]"

// open begins with a Gateway that asks for patches, and a policy for three errors.
func (s shop) open() types.UID {
	s.Helper()
	s.gateway(true)
	s.detect(3, claimed)
	s.wait(time.Minute)
	return s.objects["OutlierPolicy web"].GetUID()
}

// patchRecord tells for which policy, in which generation, a cluster is patched.
func patchRecord(cluster string, policy types.UID, generation int) string {
	return fmt.Sprintf(`{%q: [{"namespace": "shop", "name": "web", "uid": %q, "generation": %d}]}`, cluster, policy, generation)
}

// patch has the manager write the EnvoyPatchPolicy: its record, and what it does at a path of the cluster.
func (s shop) patch(record, path, value string, values ...any) {
	s.Helper()
	s.put(`{apiVersion: gateway.envoyproxy.io/v1alpha1, kind: EnvoyPatchPolicy, metadata: {namespace: shop, name: autohealer.web, annotations: {autohealer.resourcestack.com/patched-for: '%s'}},
  spec: {targetRef: {kind: Gateway, name: web}, jsonPatches: [{type: type.googleapis.com/envoy.config.cluster.v3.Cluster, name: %s, operation: {op: add, path: %s, value: %s}}]}}`,
		record, patchedCluster, path, fmt.Sprintf(value, values...))
	s.signed("update")
}

// detectedBy has the manager patch the cluster for a policy's generation, so that so many errors in a row eject.
func (s shop) detectedBy(policy types.UID, generation, errors int) {
	s.Helper()
	s.patch(patchRecord(patchedCluster, policy, generation), "/outlier_detection", detects, errors)
}

// signed: what happened last was the manager's doing.
func (s shop) signed(verb string) {
	r := s.past.revisions[len(s.past.revisions)-1]
	s.past.writes = append(s.past.writes, write{revisionKey: r.revisionKey, name: r.name, verb: verb, ours: true, at: s.now})
}

// unpatch has the manager delete the EnvoyPatchPolicy.
func (s shop) unpatch() {
	s.Helper()
	s.drop("EnvoyPatchPolicy autohealer.web")
	s.signed("delete")
}

// run has an Envoy begin to run with a cluster in which it detects outliers like this; "" for not at all.
func (s shop) run(envoy, detection string, values ...any) {
	clusters := "{}"
	if detection != "" {
		clusters = `{"shop/web/80": ` + fmt.Sprintf(detection, values...) + "}"
	}
	s.runs(envoy, []byte(`{"kind": "Envoy", "clusters": `+clusters+`}`))
}

// end has an Envoy end.
func (s shop) end(envoy string) { s.runs(envoy, nil) }

func (s shop) runs(envoy string, object []byte) {
	key := revisionKey{objectKey{envoys, types.UID(envoy)}, s.version}
	s.past.revisions = append(s.past.revisions, revision{revisionKey: key, name: "envoys/" + envoy, object: object, at: s.now})
}

// tell has the manager write the policy's status.
func (s shop) tell(status string) {
	s.Helper()
	var is map[string]any
	if err := yaml.Unmarshal([]byte(status), &is); err != nil {
		s.Fatal(err)
	}
	s.change("OutlierPolicy web", true, "status", func(o *unstructured.Unstructured) { o.Object["status"] = is })
}

// stop has somebody pause or freeze everything.
func (s shop) stop(how string) {
	s.Helper()
	s.put(paused, how)
	s.wait(time.Minute)
}

// A shopCase is what happens, and which invariants that breaks, in order.
type shopCase struct {
	name   string
	do     func(shop)
	broken []Invariant
	text   string // part of the first violation's text
}

func TestTheOracleFindsWhatABrokenManagerHasEnvoysDo(t *testing.T) {
	kind := OutlierPolicies{Gateways: true}
	for of, cases := range map[string][]shopCase{
		"correct": correctDetecting, "patches": brokenPatches, "foreign": foreignPatches, "envoys": brokenServing,
	} {
		for _, test := range cases {
			t.Run(of+"/"+test.name, func(t *testing.T) {
				s := shop{newTale(t, kind)}
				test.do(s)
				found := judge(s.past, Options{Kinds: []Kind{kind}, Guardrails: true}.withDefaults(), nil, nil, s.now)
				if !slices.Equal(invariantsOf(found), test.broken) {
					t.Errorf("expected %q, found:\n%v", test.broken, found)
				}
				if len(found) > 0 && !strings.Contains(found[0].String(), test.text) {
					t.Errorf("%q isn't in %s", test.text, found[0])
				}
			})
		}
	}
}

func TestWhatEnvoysRunWithHasItsPlaceAmongRevisions(t *testing.T) {
	h := newHistory(Options{Kinds: []Kind{OutlierPolicies{}}})
	second := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	cluster := func(name string, since, errors int, balanced string) string {
		return fmt.Sprintf(`{"last_updated": %q, "cluster": {"name": %q, "lb_policy": %q, "outlier_detection": {"consecutive_5xx": %d}}}`,
			second(since).Format(time.RFC3339Nano), name, balanced, errors)
	}
	runs := func(clusters ...string) {
		if err := h.runs("a", []byte(`{"configs": [`+strings.Join(clusters, ",")+`]}`), second(40)); err != nil {
			t.Fatal(err)
		}
	}
	runs(cluster("x", 0, 3, "RANDOM"), `{"cluster": {"name": "y"}}`)
	runs(cluster("x", 10, 3, "ROUND_ROBIN")) // how outliers are detected is as it was
	runs(cluster("x", 10, 3, "ROUND_ROBIN"), cluster("z", 20, 4, "ROUND_ROBIN"))
	runs(cluster("x", 10, 3, "ROUND_ROBIN")) // z went, after 20
	if err := h.runs("a", nil, second(30)); err != nil {
		t.Fatal(err)
	}
	var revisions []revision
	for version, n := range map[uint64]int{5: -60, 6: 0, 7: 15, 8: 21, 9: 31, 10: 60} {
		revisions = append(revisions, revision{revisionKey: at(version), at: second(n)})
	}
	var got []string
	for _, r := range placed(h.envoys, revisions) {
		got = append(got, fmt.Sprintf("%d %s %s", r.version, r.name, r.object))
	}
	want := []string{
		`6 envoys/a {"clusters":{"x":{"consecutive_5xx":3}},"kind":"Envoy"}`,
		`8 envoys/a {"clusters":{"x":{"consecutive_5xx":3},"z":{"consecutive_5xx":4}},"kind":"Envoy"}`,
		`8 envoys/a {"clusters":{"x":{"consecutive_5xx":3}},"kind":"Envoy"}`,
		`9 envoys/a `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("it is\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
