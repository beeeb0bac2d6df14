package outlier_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

var update = flag.Bool("update", false, "write the goldens anew")

// golden is a cluster as the files have it.
type golden struct {
	Cluster   json.RawMessage `json:"cluster"`
	Endpoints json.RawMessage `json:"endpoints"`
}

// TestGoldens translates each testdata/NAME.in.yaml, of which the first line says what it shows, and compares with NAME.out.yaml
// message by message.
func TestGoldens(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatal("no goldens", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			got := translate(t, readObjects(t, input))
			output := "testdata/" + name + ".out.yaml"
			if *update {
				writeGolden(t, output, got)
			}
			text, err := os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
			var want []golden
			if err := sigsyaml.UnmarshalStrict(text, &want); err != nil {
				t.Fatal(err)
			}
			if len(want) != len(got) {
				t.Fatalf("%d clusters, want %d", len(got), len(want))
			}
			for i := range want {
				compare(t, want[i].Cluster, got[i].cluster, &clusterv3.Cluster{})
				compare(t, want[i].Endpoints, got[i].endpoints, &endpointv3.ClusterLoadAssignment{})
			}
		})
	}
}

func compare(t *testing.T, want json.RawMessage, got, into proto.Message) {
	t.Helper()
	if err := protojson.Unmarshal(want, into); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(into, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

type translated struct {
	cluster   *clusterv3.Cluster
	endpoints *endpointv3.ClusterLoadAssignment
}

// translate returns all clusters of some objects, each validated by Envoy's own API.
func translate(t *testing.T, w outlier.Objects) (all []translated) {
	t.Helper()
	x := outlier.NewIndex(policiesOf(t, w), w.Routes, "autohealer-system")
	for _, svc := range w.Services {
		for _, a := range x.Assign(svc, nil) {
			cluster := outlier.NewCluster(a)
			hosts := outlier.HostsOf(svc, a.Port, w.Slices[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}])
			endpoints := outlier.NewEndpoints(cluster.Name, hosts)
			if err := errors.Join(cluster.ValidateAll(), endpoints.ValidateAll()); err != nil {
				t.Error(err)
			}
			all = append(all, translated{cluster, endpoints})
		}
	}
	return all
}

func policiesOf(t *testing.T, w outlier.Objects) (policies []*outlier.Policy) {
	t.Helper()
	for _, op := range w.Policies {
		p, err := outlier.NewPolicy(op)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, p)
	}
	return policies
}

// readObjects reads objects of a file.
func readObjects(t *testing.T, name string) outlier.Objects {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return parseObjects(t, text)
}

func parseObjects(t *testing.T, text []byte) outlier.Objects {
	t.Helper()
	w := outlier.Objects{Slices: map[types.NamespacedName][]*discoveryv1.EndpointSlice{}}
	documents := yaml.NewYAMLToJSONDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		err := documents.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return w
		}
		if err != nil {
			t.Fatal(err)
		}
		addObject(t, &w, raw)
	}
}

func addObject(t *testing.T, w *outlier.Objects, raw json.RawMessage) {
	t.Helper()
	object := map[string]any{}
	read(t, raw, &object)
	switch object["kind"] {
	case "OutlierPolicy":
		op := &v1alpha1.OutlierPolicy{}
		read(t, raw, op)
		w.Policies = append(w.Policies, op)
	case "Service":
		svc := &corev1.Service{}
		read(t, raw, svc)
		w.Services = append(w.Services, svc)
	case "EndpointSlice":
		slice := &discoveryv1.EndpointSlice{}
		read(t, raw, slice)
		of := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		w.Slices[of] = append(w.Slices[of], slice)
	default:
		w.Routes = append(w.Routes, outlier.ReadRoute(object))
	}
}

func read(t *testing.T, raw json.RawMessage, into any) {
	t.Helper()
	if err := sigsyaml.UnmarshalStrict(raw, into); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
}

func writeGolden(t *testing.T, name string, all []translated) {
	t.Helper()
	goldens := []golden{}
	for _, one := range all {
		var g golden
		var err, endpointsErr error
		g.Cluster, err = protojson.MarshalOptions{UseProtoNames: true}.Marshal(one.cluster)
		g.Endpoints, endpointsErr = protojson.MarshalOptions{UseProtoNames: true}.Marshal(one.endpoints)
		if err := errors.Join(err, endpointsErr); err != nil {
			t.Fatal(err)
		}
		goldens = append(goldens, g)
	}
	text, err := sigsyaml.Marshal(goldens)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// What the design for Contour gives as Envoy's configuration for its three examples, word for word.
var seedExamples = map[string]string{
	"example-1": `
cluster:
  common_lb_config:
    healthy_panic_threshold:
      value: 0.0
  outlier_detection:
    enforcing_success_rate: 0
    consecutive_5xx: 5
    enforcing_consecutive_5xx: 100
    max_ejection_percent: 100
    enforcing_consecutive_gateway_failure: 0
`,
	"example-2": `
cluster:
  common_lb_config:
    healthy_panic_threshold:
      value: 0.0
  outlier_detection:
    enforcing_success_rate: 0
    enforcing_consecutive_5xx: 0
    max_ejection_percent: 100
    split_external_local_origin_errors: true
    consecutive_local_origin_failure: 5
    #Default to 100% if not specified
    #enforcing_consecutive_local_origin_failure: 100
    enforcing_local_origin_success_rate: 0
    enforcing_consecutive_gateway_failure: 0
`,
	"example-3": `
cluster:
  common_lb_config:
    healthy_panic_threshold:
      value: 0.0
  outlier_detection:
    enforcing_success_rate: 0
    consecutive_5xx: 10
    enforcing_consecutive_5xx: 100
    max_ejection_percent: 100
    split_external_local_origin_errors: true
    consecutive_local_origin_failure: 5
    #Default to 100% if not specified
    #enforcing_consecutive_local_origin_failure: 100
    enforcing_local_origin_success_rate: 0
    enforcing_consecutive_gateway_failure: 0
`,
}

func TestTheSeedsExamplesGiveTheSeedsOutputs(t *testing.T) {
	for name, text := range seedExamples {
		t.Run(name, func(t *testing.T) {
			var want golden
			if err := sigsyaml.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			got := translate(t, readObjects(t, "testdata/"+name+".in.yaml"))[0].cluster
			if got.GetCommonLbConfig().GetUpdateMergeWindow().AsDuration() != 0 || got.GetCommonLbConfig().GetUpdateMergeWindow() == nil {
				t.Error("the one field that the seed's examples don't have, docs/adr/0075, is", got.GetCommonLbConfig().GetUpdateMergeWindow())
			}
			got.CommonLbConfig.UpdateMergeWindow = nil
			compare(t, want.Cluster, &clusterv3.Cluster{CommonLbConfig: got.CommonLbConfig, OutlierDetection: got.OutlierDetection}, &clusterv3.Cluster{})
		})
	}
}
