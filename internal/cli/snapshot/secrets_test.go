package snapshot

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kubeconfig"
)

// written are all places of objects that come into a file, by kind; the names of labels and annotations aren't told apart from others.
// Whoever adds one has thought of who may read it.
var written = map[string][]string{
	"DaemonSet": {
		"spec.template.metadata.labels.marker", "spec.template.spec.tolerations.effect", "spec.template.spec.tolerations.key", "spec.template.spec.tolerations.operator",
		"spec.template.spec.tolerations.value", "spec.template.spec.volumes.hostPath.path",
	},
	"Deployment": {
		"spec.selector.matchExpressions.key", "spec.selector.matchExpressions.operator", "spec.selector.matchExpressions.values", "spec.selector.matchLabels.marker",
	},
	"EndpointSlice": {
		"addressType", "endpoints.addresses", "endpoints.targetRef.kind", "endpoints.targetRef.name", "endpoints.targetRef.namespace", "endpoints.zone", "ports.appProtocol", "ports.name", "ports.protocol",
	},
	"HorizontalPodAutoscaler": {
		"metadata.ownerReferences.apiVersion", "metadata.ownerReferences.kind", "metadata.ownerReferences.name", "metadata.ownerReferences.uid",
		"spec.scaleTargetRef.apiVersion", "spec.scaleTargetRef.kind", "spec.scaleTargetRef.name",
	},
	"Lease":     nil,
	"Namespace": nil,
	"Node": {
		"metadata.resourceVersion", "metadata.uid", "spec.taints.effect", "spec.taints.key", "spec.taints.value", "status.conditions.status", "status.conditions.type",
	},
	"Pod": {
		"metadata.ownerReferences.apiVersion", "metadata.ownerReferences.kind", "metadata.ownerReferences.name", "metadata.ownerReferences.uid", "metadata.uid",
		"spec.containers.name", "spec.containers.restartPolicy", "spec.containers.restartPolicyRules.action", "spec.containers.restartPolicyRules.exitCodes.operator",
		"spec.initContainers.name", "spec.initContainers.restartPolicy", "spec.initContainers.restartPolicyRules.action", "spec.initContainers.restartPolicyRules.exitCodes.operator",
		"spec.restartPolicy", "status.conditions.status", "status.conditions.type",
		"status.containerStatuses.lastState.terminated.reason", "status.containerStatuses.name", "status.containerStatuses.state.terminated.reason", "status.containerStatuses.state.waiting.reason",
		"status.initContainerStatuses.lastState.terminated.reason", "status.initContainerStatuses.name", "status.initContainerStatuses.state.terminated.reason", "status.initContainerStatuses.state.waiting.reason",
		"status.phase",
	},
	"Scale": {
		"metadata.ownerReferences.apiVersion", "metadata.ownerReferences.kind", "metadata.ownerReferences.name", "metadata.ownerReferences.uid", "status.selector",
	},
	"Secret": nil,
	"Service": {
		"spec.clusterIPs", "spec.ipFamilies", "spec.ports.appProtocol", "spec.ports.name", "spec.ports.protocol", "spec.selector.marker", "spec.type",
		"status.loadBalancer.ingress.hostname", "status.loadBalancer.ingress.ip",
	},
	"StatefulSet": {
		"spec.selector.matchExpressions.key", "spec.selector.matchExpressions.operator", "spec.selector.matchExpressions.values", "spec.selector.matchLabels.marker",
	},
}

// TestNothingIsWrittenThatNobodyReads: with a marker in each string of an object, it comes into the file only in the places that planners
// read, and who the object is. Of a Secret its keys do.
func TestNothingIsWrittenThatNobodyReads(t *testing.T) {
	got := map[string][]string{}
	for _, r := range slices.Concat(resources, named) {
		typed, err := known.New(r.GroupVersionKind)
		if err != nil || r.Group == v1alpha1.GroupVersion.Group {
			continue // routes and definitions have no Go type here, and of policies all is written
		}
		fill(reflect.ValueOf(typed).Elem(), 0)
		object := typed.(client.Object)
		object.SetNamespace("shop")
		object.SetName("a")
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
		if err != nil {
			t.Fatal(err)
		}
		one := &unstructured.Unstructured{Object: raw}
		one.SetGroupVersionKind(r.GroupVersionKind)
		if n := len(places(raw, "")); n < 5 {
			t.Fatalf("%s has %d markers only", r.Kind, n)
		}
		for _, whole := range []*unstructured.Unstructured{one, newTrimmer(nil).trim(one)} { // what is trimmed once is trimmed again
			_, read := exported(t, holding(t, whole))
			stored, there := read.Objects.find(r.GroupKind(), keyOf(newTrimmer(nil).trim(one)))
			if !there {
				t.Fatalf("%s isn't there", r.Kind)
			}
			got[r.Kind] = slices.DeleteFunc(places(stored.raw.Object, ""), func(place string) bool { return place == "metadata.labels.marker" })
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(got)) {
		if !slices.Equal(got[kind], written[kind]) {
			t.Errorf("of a %s there are\n%q, want\n%q", kind, got[kind], written[kind])
		}
	}
	if len(got) != len(written) {
		t.Errorf("%d kinds, want %d", len(got), len(written))
	}
}

// TestOfRoutesOnlyBackendsAreWritten: what else a route says may hold credentials in headers.
func TestOfRoutesOnlyBackendsAreWritten(t *testing.T) {
	for kind, spec := range map[string]string{
		"gateway.networking.k8s.io/v1, kind: HTTPRoute": "{rules: [{filters: [{requestHeaderModifier: {set: [{name: Authorization, value: marker}]}}], backendRefs: [{name: web, port: 80, filters: [{a: marker}]}]}], hostnames: [marker]}",
		"projectcontour.io/v1, kind: HTTPProxy":         "{virtualhost: {fqdn: marker, tls: {secretName: marker}}, routes: [{requestHeadersPolicy: {set: [{name: Authorization, value: marker}]}, services: [{name: web, port: 80, requestHeadersPolicy: {set: [{value: marker}]}}]}]}",
	} {
		object := parsed[unstructured.Unstructured](t, "{apiVersion: "+kind+", metadata: {name: r, namespace: shop, annotations: {a: marker}}, spec: "+spec+"}")
		file, read := exported(t, holding(t, object))
		if strings.Contains(string(file), "marker") {
			t.Errorf("%s has what nobody reads:\n%s", kind, file)
		}
		if routes := factsOf(t, read).outlierObjects().Routes; len(routes) != 1 || len(routes[0].Backends) != 1 || routes[0].Backends[0].Service != "web" {
			t.Errorf("%s: %+v", kind, routes)
		}
	}
}

func holding(t *testing.T, object *unstructured.Unstructured) *Snapshot {
	t.Helper()
	s := Of(t, time.Unix(1e9, 0), time.Unix(1e9, 0))
	if err := s.Objects.store(object); err != nil {
		t.Fatal(err)
	}
	return s
}

// places are where a value has the marker, each once.
func places(value any, at string) (all []string) {
	switch v := value.(type) {
	case string:
		if strings.Contains(v, "marker") || strings.Contains(v, "bWFya2Vy") { // as it is, or in base64
			all = append(all, at)
		}
	case map[string]any:
		for name, inner := range v {
			all = append(all, places(inner, strings.TrimPrefix(at+"."+name, "."))...)
		}
	case []any:
		for _, inner := range v {
			all = append(all, places(inner, at)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// fill puts the marker into each string that a value has room for.
func fill(v reflect.Value, depth int) {
	if depth > 14 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("marker")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("marker"))
			return
		}
		fill(v.Index(0), depth+1)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if name := v.Type().String(); name == "v1.Time" || name == "v1.MicroTime" || name == "resource.Quantity" || name == "intstr.IntOrString" || name == "v1.FieldsV1" {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}

	}
}

// TestAKeyThatNobodyAskedForIsntMissing: a trimmed Secret has only those that stored policies name.
func TestAKeyThatNobodyAskedForIsntMissing(t *testing.T) {
	name := types.NamespacedName{Namespace: "shop", Name: "in"}
	s := Of(t, time.Unix(1e9, 0), time.Unix(1e9, 0))
	for key, says := range map[string]kubeconfig.Inspection{"there": {Server: "db"}, "gone": {Missing: true}} {
		if err := s.Objects.storeSecret(name, key, says); err != nil {
			t.Fatal(err)
		}
	}
	file, read := exported(t, s)
	if !read.Trimmed {
		t.Fatalf("it isn't trimmed\n%s", file)
	}
	for _, c := range []struct {
		key     string
		trimmed bool
		want    kubeconfig.Inspection
		known   bool
	}{
		{"there", true, kubeconfig.Inspection{Server: "db"}, true}, {"gone", true, kubeconfig.Inspection{Missing: true}, true}, {"other", true, kubeconfig.Inspection{}, false},
		{"other", false, kubeconfig.Inspection{Missing: true}, true}, // as kubectl prints it, all are there
	} {
		read.Trimmed = c.trimmed
		got, err := read.credential(t.Context(), name, c.key)
		if got != c.want || (err == nil) != c.known || err != nil && !errors.Is(err, guard.ErrNotKnown) {
			t.Errorf("key %s: %+v, %v", c.key, got, err)
		}
	}
}

// TestAFieldThatIsKeptWholeStaysWhole, whichever field of it is named before or after; of lists only what is named of each entry is kept.
func TestAFieldThatIsKeptWholeStaysWhole(t *testing.T) {
	whole := map[string]any{"b": "1", "c": "2"}
	object := map[string]any{"a": whole, "list": []any{map[string]any{"x": "1", "y": "2"}, map[string]any{"y": "2"}}, "other": "3"}
	want := map[string]any{"a": whole, "list": []any{map[string]any{"x": "1"}}}
	for _, fields := range [][]string{{"a", "a.b", "list[].x"}, {"list[].x", "a.b", "a"}} {
		if got := keep(fields...).of(object); !reflect.DeepEqual(got, want) {
			t.Errorf("of %q there is %v, want %v", fields, got, want)
		}
	}
}
