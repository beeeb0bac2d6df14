package oracle

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
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
	s.signed("update", "")
}

// detectedBy has the manager patch the cluster for a policy's generation, so that so many errors in a row eject.
func (s shop) detectedBy(policy types.UID, generation, errors int) {
	s.Helper()
	s.patch(patchRecord(patchedCluster, policy, generation), "/outlier_detection", detects, errors)
}

// signed: what happened last was the manager's doing.
func (s shop) signed(verb, request string) {
	r := s.past.revisions[len(s.past.revisions)-1]
	s.past.writes = append(s.past.writes, write{revisionKey: r.revisionKey, name: r.name, verb: verb, ours: true, at: s.now, request: []byte(request)})
}

// unpatch has the manager delete the EnvoyPatchPolicy.
func (s shop) unpatch(request string) {
	s.Helper()
	s.drop("EnvoyPatchPolicy autohealer.web")
	s.signed("delete", request)
}

// precisely is the request to delete one object as it was seen.
const precisely = `{"preconditions": {"uid": "u", "resourceVersion": "7"}}`

// run has an Envoy begin to run with a cluster in which it detects outliers like this; "" for not at all.
func (s shop) run(envoy, detection string, values ...any) {
	text := ""
	if detection != "" {
		text = `, "outlier_detection": ` + fmt.Sprintf(detection, values...)
	}
	s.served(envoy, []byte(`{"kind": "EnvoyCluster", "name": "shop/web/80"`+text+`}`))
}

// end has an Envoy end.
func (s shop) end(envoy string) { s.served(envoy, nil) }

func (s shop) served(envoy string, object []byte) {
	key := revisionKey{objectKey{envoyClusters, types.UID(envoy)}, s.version}
	s.past.revisions = append(s.past.revisions, revision{revisionKey: key, name: "clusters/shop/web/80", object: object, at: s.now})
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

// event has the manager tell of ejections in an Event on the policy.
func (s shop) event(policy types.UID) {
	s.Helper()
	s.put(`{apiVersion: events.k8s.io/v1, kind: Event, metadata: {namespace: shop, name: e}, reason: HostsEjected, reportingController: autohealer,
  regarding: {kind: OutlierPolicy, namespace: shop, name: web, uid: %s}}`, policy)
}

// remember has the manager record which clusters Envoys have.
func (s shop) remember(names ...string) {
	s.Helper()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	for _, name := range names {
		if _, err := io.WriteString(w, name+"\n"); err != nil {
			s.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		s.Fatal(err)
	}
	s.put(`{apiVersion: v1, kind: ConfigMap, metadata: {namespace: autohealer-system, name: autohealer-envoy-clusters}, binaryData: {clusters.gz: %s}}`,
		base64.StdEncoding.EncodeToString(zipped.Bytes()))
}

func (s shop) service() {
	s.Helper()
	s.put("{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web}}")
	s.wait(time.Minute)
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
		"correct": correctDetecting, "patches": brokenPatches, "foreign": foreignPatches, "envoys": brokenServing, "told": unknownEjections,
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
	runs := func(second int, errors int, policy string) {
		at := noon.Add(time.Duration(second) * time.Second)
		h.runs("a", []Running{{Name: "shop/web/80", Since: at, Config: fmt.Appendf(nil, `{"name": "x", "lb_policy": %q, "outlier_detection": {"consecutive_5xx": %d}}`, policy, errors)}}, at)
	}
	runs(0, 3, "RANDOM")
	runs(10, 3, "ROUND_ROBIN") // how outliers are detected is as it was
	runs(20, 4, "ROUND_ROBIN")
	h.runs("a", nil, noon.Add(30*time.Second))
	var revisions []revision
	for version, second := range map[uint64]int{5: -60, 6: 0, 7: 15, 8: 21, 9: 60} {
		revisions = append(revisions, revision{revisionKey: at(version), at: noon.Add(time.Duration(second) * time.Second)})
	}
	var got []string
	for _, r := range placed(h.envoys, revisions) {
		got = append(got, fmt.Sprintf("%d %s %s", r.version, r.uid, r.object))
	}
	want := []string{
		`6 a shop/web/80 {"kind":"EnvoyCluster","name":"shop/web/80","outlier_detection":{"consecutive_5xx":3}}`,
		`8 a shop/web/80 {"kind":"EnvoyCluster","name":"shop/web/80","outlier_detection":{"consecutive_5xx":4}}`,
		`8 a shop/web/80 `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("it is\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
