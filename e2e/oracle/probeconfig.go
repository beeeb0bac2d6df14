package oracle

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// replicasKey is the annotation in which an object tells how many replicas were taken from it, and for whom.
	replicasKey = "autohealer.resourcestack.com/original-replicas"
	// meltdownKey comes and goes with it, where it says so.
	meltdownKey = "dependency-watchdog.gardener.cloud/meltdown-protection-active"
	// scaledDownKey is the label that comes and goes with it.
	scaledDownKey = "autohealer.resourcestack.com/scaled-down"
	// ignoreKey, and theirIgnoreKey as dependency-watchdog's, is how people ask for an object to be left alone, hibernatedKey how they put a
	// namespace to sleep.
	ignoreKey      = "autohealer.resourcestack.com/ignore-scaling"
	theirIgnoreKey = "dependency-watchdog.gardener.cloud/ignore-scaling"
	hibernatedKey  = "autohealer.resourcestack.com/hibernated"
)

// yes are the words with which they ask.
var yes = []string{"1", "t", "T", "TRUE", "true", "True"}

// ProbeConfigs is the kind that scales the controllers of a cluster down whose nodes can't reach their API server.
type ProbeConfigs struct {
	// More are resources with a scale that configs name, besides Deployments and StatefulSets. They must be served.
	More []schema.GroupVersionResource
}

// Policies are the ProbeConfigs.
func (ProbeConfigs) Policies() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: ourGroup, Version: "v1alpha1", Resource: "probeconfigs"}
}

// Foreign are what is scaled, the namespaces that configs select, and the Secrets that they probe with.
func (p ProbeConfigs) Foreign() []schema.GroupVersionResource {
	return append([]schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "statefulsets"},
		{Version: "v1", Resource: "namespaces"}, {Version: "v1", Resource: "secrets"},
	}, p.More...)
}

// Trim drops the status, and what is secret.
func (ProbeConfigs) Trim(object *unstructured.Unstructured) {
	delete(object.Object, "status")
	if object.GetKind() == "Secret" {
		trimSecret(object)
	}
}

// Begin gives a reader that has seen nothing yet.
func (ProbeConfigs) Begin(o Options) Reader { return newDependents(o) }

// taking is the record on an object of what was taken from it.
type taking struct {
	Replicas   int64     `json:"replicas"`
	Owner      types.UID `json:"owner"`
	Generation int64     `json:"generation"`
	Meltdown   bool      `json:"meltdownProtection"`
}

// dependent is what one revision of an object with a scale says.
type dependent struct {
	uid                               types.UID
	apiVersion, kind, namespace, name string
	replicas                          int64
	// taken is nil without a record.
	taken     *taking
	takenText string
	takenErr  error
	labelled  bool
	// ignore: people ask to leave it alone; held, until a time which is zero when it can't be read, not to scale it down.
	ignore, held bool
	heldUntil    time.Time
	// rest is all that Autohealer has no business with.
	rest map[string]any
}

// home is a namespace, as configs select it.
type home struct {
	name       string
	labels     map[string]string
	hibernated bool
}

// Records gives whoever may have to give something back. Who asks to be left alone keeps what is recorded.
func (d *dependent) Records() []types.UID {
	if d.taken == nil || d.ignore {
		return nil
	}
	return []types.UID{d.taken.Owner}
}

func (*home) Records() []types.UID { return nil }

func (d *dependent) String() string { return fmt.Sprintf("%s %s/%s", d.kind, d.namespace, d.name) }

// down says whether it is scaled down by us.
func (d *dependent) down() bool { return d.taken != nil && d.replicas == 0 }

func parseDependent(object []byte) (View, error) {
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(object); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	notes := u.GetAnnotations()
	switch u.GetKind() {
	case "Namespace":
		value, annotated := notes[hibernatedKey]
		return &home{name: u.GetName(), labels: u.GetLabels(), hibernated: annotated && value != "false"}, nil
	case "Secret":
		mark, _, _ := unstructured.NestedString(u.Object, "data", "mark")
		return &kubeconfig{name: types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}, mark: mark}, nil
	}
	d := &dependent{
		uid: u.GetUID(), apiVersion: u.GetAPIVersion(), kind: u.GetKind(), namespace: u.GetNamespace(), name: u.GetName(),
		takenText: notes[replicasKey], ignore: slices.Contains(yes, notes[ignoreKey]) || slices.Contains(yes, notes[theirIgnoreKey]),
	}
	_, d.labelled = u.GetLabels()[scaledDownKey]
	d.replicas, _, _ = unstructured.NestedInt64(u.Object, "spec", "replicas")
	if until, held := notes[holdKey]; held {
		d.held = true
		d.heldUntil, _ = time.Parse(time.RFC3339, until)
	}
	if d.takenText != "" {
		d.taken = &taking{}
		d.takenErr = json.Unmarshal([]byte(d.takenText), d.taken)
	}
	if d.taken != nil && d.taken.Meltdown {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations", meltdownKey)
	}
	d.rest = foreignOf(&u)
	return d, nil
}

// foreignOf is an object without what Autohealer writes, and what the API server changes with it.
func foreignOf(u *unstructured.Unstructured) map[string]any {
	unstructured.RemoveNestedField(u.Object, "spec", "replicas")
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", replicasKey)
	unstructured.RemoveNestedField(u.Object, "metadata", "labels", scaledDownKey)
	if len(u.GetAnnotations()) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "annotations")
	}
	if len(u.GetLabels()) == 0 {
		unstructured.RemoveNestedField(u.Object, "metadata", "labels")
	}
	unstructured.RemoveNestedField(u.Object, "metadata", "generation")
	return u.Object
}

func sameForeign(a, b *dependent) bool { return reflect.DeepEqual(a.rest, b.rest) }

// prober is what a ProbeConfig's spec says about what it scales.
type prober struct {
	Namespace  string `json:"-"`
	Mode       string `json:"mode"`
	External   string `json:"externalKubeConfigSecretName"`
	NodeLeases struct {
		MaxProtectionDuration string `json:"maxProtectionDuration"`
	} `json:"nodeLeases"`
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
	Dependents        []struct {
		Ref struct{ APIVersion, Kind, Name string }
	} `json:"dependentResourceInfos"`
}

func readProber(config *unstructured.Unstructured) (prober, error) {
	p := prober{Namespace: config.GetNamespace()}
	encoded, err := json.Marshal(config.Object["spec"])
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(encoded, &p)
}

// longest is for how long leases that aren't renewed hold the dependents down.
func (p prober) longest() time.Duration {
	if longest, err := time.ParseDuration(p.NodeLeases.MaxProtectionDuration); err == nil {
		return longest
	}
	return time.Hour
}

// targets says whether the config is about a namespace.
func (p prober) targets(h *home) bool {
	if p.NamespaceSelector == nil {
		return h.name == p.Namespace
	}
	return p.Namespace == ownNamespace && matches(p.NamespaceSelector, h.labels)
}

func (p prober) names(d *dependent) bool {
	for _, info := range p.Dependents {
		if r := info.Ref; r.APIVersion == d.apiVersion && r.Kind == d.kind && r.Name == d.name {
			return true
		}
	}
	return false
}
