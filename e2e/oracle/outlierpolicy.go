package oracle

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// patchedForKey is the annotation in which an EnvoyPatchPolicy tells for whom each cluster is patched.
	patchedForKey = "autohealer.resourcestack.com/patched-for"
	// mayPatchKey is the label by which a Gateway's owner asks for it.
	mayPatchKey = "autohealer.resourcestack.com/envoy-patches"
	// undoKey is the finalizer of policies that did something.
	undoKey = "autohealer.resourcestack.com/undo"
	// clustersName is the ConfigMap that tells, after a restart, which clusters Envoys have.
	clustersName = "autohealer-envoy-clusters"
)

// OutlierPolicies is the kind that has Envoys eject hosts.
type OutlierPolicies struct {
	// Gateways says to follow EnvoyPatchPolicies, and the Gateways that they are for. Their CRDs must be installed.
	Gateways bool
}

// Policies are the OutlierPolicies.
func (OutlierPolicies) Policies() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: ourGroup, Version: "v1alpha1", Resource: "outlierpolicies"}
}

var (
	envoyPatchPolicies = schema.GroupVersionResource{Group: "gateway.envoyproxy.io", Version: "v1alpha1", Resource: "envoypatchpolicies"}
	gateways           = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
)

// Foreign are what Envoys run with, by patches or by what they are served, the record of that, the Services that it is for, and Events.
func (k OutlierPolicies) Foreign() []schema.GroupVersionResource {
	all := []schema.GroupVersionResource{
		envoyClusters, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "configmaps"},
		{Group: "events.k8s.io", Version: "v1", Resource: "events"},
	}
	if k.Gateways {
		all = append(all, envoyPatchPolicies, gateways)
	}
	return all
}

// Trim drops what Envoy Gateway says, and the words of Events.
func (OutlierPolicies) Trim(object *unstructured.Unstructured) {
	switch object.GetKind() {
	case "EnvoyPatchPolicy", "Gateway":
		delete(object.Object, "status")
	case "Event":
		for field := range object.Object {
			if !slices.Contains([]string{"apiVersion", "kind", "metadata", "reason", "regarding", "related", "reportingController"}, field) {
				delete(object.Object, field)
			}
		}
	}
}

// Begin gives a reader that has seen nothing yet.
func (OutlierPolicies) Begin(o Options) Reader { return newDetectors(o) }

// gatewayAsks is whether a Gateway may be patched.
type gatewayAsks struct {
	key  types.NamespacedName
	asks bool
}

// recordedClusters are the names in the record of what Envoys have.
type recordedClusters struct{ names map[string]bool }

// reachable is a Service.
type reachable struct{ key types.NamespacedName }

// ejectionTold is an Event that tells of ejected hosts, or of hosts that are back.
type ejectionTold struct {
	policy types.UID
	reason string
}

// inEnvoy is how one Envoy detects outliers in a cluster; nil: it doesn't.
type inEnvoy struct {
	cluster   string
	detection *detection
	text      string
	// by are the policies for which it was told so, and owed gives those of them that are to be undone.
	by   []types.UID
	owed func(*inEnvoy) []types.UID
}

// Records gives whose word an Envoy goes by that doesn't count any more.
func (r *inEnvoy) Records() []types.UID        { return r.owed(r) }
func (*gatewayAsks) Records() []types.UID      { return nil }
func (*recordedClusters) Records() []types.UID { return nil }
func (*reachable) Records() []types.UID        { return nil }
func (*ejectionTold) Records() []types.UID     { return nil }

func (s *detectors) View(object []byte) (View, error) {
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &meta); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	key := types.NamespacedName{Namespace: meta.Namespace, Name: meta.Name}
	switch meta.Kind {
	case "EnvoyPatchPolicy":
		return parsePatching(object)
	case "Gateway":
		return &gatewayAsks{key: key, asks: meta.Labels[mayPatchKey] == "true"}, nil
	case "Service":
		return &reachable{key: key}, nil
	case "EnvoyCluster":
		return s.parseInEnvoy(object)
	case "Event":
		return parseEvent(object)
	case "ConfigMap":
		if key == (types.NamespacedName{Namespace: ownNamespace, Name: clustersName}) {
			return parseRecordedClusters(object)
		}
		return nil, nil // it doesn't concern this kind
	}
	return nil, fmt.Errorf("read an object: its kind is %q", meta.Kind)
}

func (s *detectors) parseInEnvoy(object []byte) (View, error) {
	var is struct {
		Name      string
		Detection *json.RawMessage `json:"outlier_detection"`
	}
	if err := json.Unmarshal(object, &is); err != nil {
		return nil, fmt.Errorf("read an Envoy's cluster: %w", err)
	}
	r := &inEnvoy{cluster: is.Name, owed: s.owed}
	if is.Detection == nil {
		return r, nil
	}
	r.text = string(*is.Detection)
	var err error
	r.detection, err = parseDetection(*is.Detection)
	return r, err
}

// parseEvent gives nothing for one of another matter.
func parseEvent(object []byte) (View, error) {
	var is struct {
		Reason, ReportingController string
		Regarding, Related          corev1.ObjectReference
	}
	if err := json.Unmarshal(object, &is); err != nil {
		return nil, fmt.Errorf("read an Event: %w", err)
	}
	if is.ReportingController != "autohealer" || is.Reason != "HostsEjected" && is.Reason != "HostsReturned" {
		return nil, nil // it doesn't concern this kind
	}
	for _, of := range []corev1.ObjectReference{is.Regarding, is.Related} {
		if of.Kind == "OutlierPolicy" {
			return &ejectionTold{policy: of.UID, reason: is.Reason}, nil
		}
	}
	return nil, fmt.Errorf("read an Event: %s is of no OutlierPolicy", is.Reason)
}

func parseRecordedClusters(object []byte) (View, error) {
	var m corev1.ConfigMap
	if err := json.Unmarshal(object, &m); err != nil {
		return nil, fmt.Errorf("read a ConfigMap: %w", err)
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(m.BinaryData["clusters.gz"]))
	if err != nil {
		return nil, fmt.Errorf("read the record of clusters: %w", err)
	}
	text, err := io.ReadAll(unzipped)
	if err != nil {
		return nil, fmt.Errorf("read the record of clusters: %w", err)
	}
	r := &recordedClusters{names: map[string]bool{}}
	for name := range strings.Lines(string(text)) {
		r.names[strings.TrimSuffix(name, "\n")] = true
	}
	return r, nil
}
