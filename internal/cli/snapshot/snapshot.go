package snapshot

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/condition"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kube/dependents"
	"github.com/resourcestack/autohealer/internal/kube/survey"
)

// The type of a facts file. It is of no API group that a cluster serves.
const (
	APIVersion = "facts." + group + "/v1alpha1"
	Kind       = "ClusterFacts"
	group      = "autohealer.resourcestack.com"
)

// Snapshot is a cluster at one moment.
type Snapshot struct {
	metav1.TypeMeta `json:",inline"`
	// TakenAt is when it was read, by the clock of the machine that did.
	TakenAt metav1.Time `json:"takenAt"`
	// ServerTime is the API server's clock at that moment; heartbeats are judged by it.
	ServerTime metav1.Time `json:"serverTime"`
	// OwnNamespace is where Autohealer runs; "" when it wasn't found, and in files of older programs.
	OwnNamespace string `json:"ownNamespace,omitempty"`

	Nodes                    []corev1.Node                      `json:"nodes"`
	Leases                   []Lease                            `json:"leases,omitempty"`
	SystemPods               []SystemPod                        `json:"systemPods,omitempty"`
	ConditionSets            []v1alpha1.ConditionSet            `json:"conditionSets,omitempty"`
	Guardrails               []v1alpha1.Guardrail               `json:"guardrails,omitempty"`
	GuardrailExceptions      []v1alpha1.GuardrailException      `json:"guardrailExceptions,omitempty"`
	WeederConfigs            []v1alpha1.WeederConfig            `json:"weederConfigs,omitempty"`
	ProbeConfigs             []v1alpha1.ProbeConfig             `json:"probeConfigs,omitempty"`
	OutlierPolicies          []v1alpha1.OutlierPolicy           `json:"outlierPolicies,omitempty"`
	HealthCheckRegistrations []v1alpha1.HealthCheckRegistration `json:"healthCheckRegistrations,omitempty"`
	// Workloads are nil when they could not be read, and in files of older programs.
	Workloads *Workloads `json:"workloads,omitempty"`
	// Probed is nil when it could not be read, and in files of older programs.
	Probed *Probed `json:"probed,omitempty"`

	// Routed is nil when it could not be read, and in files of older programs.
	Routed *Routed `json:"routed,omitempty"`

	// Checked is nil when it could not be read, and in files of older programs.
	Checked *Checked `json:"checked,omitempty"`

	// Rights asks the API server that it was read from; nil for a file, and when the user may not ask.
	Rights authorizer.UnconditionalAuthorizer `json:"-"`
	// live reads single objects of the API server that it was read from; nil for a file.
	live survey.Objects
	// dependents does the same for HealthCheckRegistrations.
	dependents dependents.Objects
	// written has the policies' specs as their authors wrote them; of those that it lacks, the Go type's form stands for it.
	written specs
	// Namespace of the kubeconfig's context that it was read by; "" for a file.
	Namespace string `json:"-"`
}

// Lease is the sign of life of a node whose conditions carry no heartbeat.
type Lease struct {
	Node  string           `json:"node"`
	Renew metav1.MicroTime `json:"renew"`
}

// SystemPod stands for the pods of a DaemonSet that nodes can't do without.
type SystemPod struct {
	Namespace   string              `json:"namespace"`
	Name        string              `json:"name"`
	Role        string              `json:"role"`
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// Read reads a facts file. Unknown fields are errors: they would be facts that nobody looks at.
func Read(text []byte) (*Snapshot, error) {
	s := &Snapshot{}
	if err := yaml.UnmarshalStrict(text, s); err != nil {
		return nil, fmt.Errorf("read facts: %s; write the file with facts export", unreadable(err))
	}
	switch {
	case s.APIVersion != APIVersion || s.Kind != Kind:
		return nil, fmt.Errorf("read facts: want apiVersion %s and kind %s, got %q and %q; write the file with facts export", APIVersion, Kind, s.APIVersion, s.Kind)
	case s.TakenAt.IsZero():
		return nil, errors.New("read facts: takenAt is missing")
	}
	var err error
	if s.written, err = specsOf(text); err != nil {
		return nil, fmt.Errorf("read facts: %w", err)
	}
	return s, nil
}

// unreadable is why a file is none that facts export wrote, without what decoders say of themselves.
func unreadable(err error) string {
	if what, isMisfit := guard.Misfit(err, ""); isMisfit {
		return what
	}
	_, said, _ := strings.Cut(strings.TrimPrefix(err.Error(), "error "), ": ") // converting YAML to JSON, unmarshaling JSON
	for _, decoder := range []string{"while decoding JSON: ", "json: ", "yaml: "} {
		said = strings.TrimPrefix(said, decoder)
	}
	return said
}

// Write writes a facts file.
func (s *Snapshot) Write(w io.Writer) error {
	file, err := s.asWritten()
	if err != nil {
		return fmt.Errorf("write facts: %w", err)
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		return fmt.Errorf("write facts: %w", err)
	}
	if _, err := w.Write(text); err != nil {
		return fmt.Errorf("write facts: %w", err)
	}
	return nil
}

// Age is how old the facts are.
func (s *Snapshot) Age(now time.Time) time.Duration { return max(0, now.Sub(s.TakenAt.Time)) }

// Describe says what the facts are of, and how old they are.
func (s *Snapshot) Describe(now time.Time) string {
	of := []string{count(len(s.Nodes), "node")}
	if s.Workloads != nil {
		of = append(of, count(len(s.Workloads.Pods), "pod"))
	}
	of = append(of, count(len(s.ConditionSets), "ConditionSet"))
	if s.Workloads != nil {
		of = append(of, count(len(s.WeederConfigs), "WeederConfig"))
	}
	last := len(of) - 1
	return fmt.Sprintf("facts of %s and %s, %s old", strings.Join(of[:last], ", "), of[last], s.Age(now).Round(time.Second))
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func (s *Snapshot) addNode(node *corev1.Node) {
	trimmed := corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
		CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
	}}
	for _, ours := range []string{v1alpha1.AnnotationOwnedTaints, v1alpha1.AnnotationHoldUntil} {
		if text, ok := node.Annotations[ours]; ok {
			metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, ours, text)
		}
	}
	trimmed.Spec.Taints = node.Spec.Taints
	for _, c := range node.Status.Conditions {
		c.Reason, c.Message = "", ""
		trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
	}
	s.Nodes = append(s.Nodes, trimmed)
}

func (s *Snapshot) addLease(lease *coordinationv1.Lease) {
	if lease.Spec.RenewTime != nil {
		s.Leases = append(s.Leases, Lease{Node: lease.Name, Renew: *lease.Spec.RenewTime})
	}
}

func (s *Snapshot) addDaemonSet(ds *appsv1.DaemonSet) {
	pod := &ds.Spec.Template
	meta := metav1.ObjectMeta{Name: ds.Name, Namespace: ds.Namespace, Labels: pod.Labels}
	if role := condition.SystemRole(&meta, &pod.Spec); role != "" {
		s.SystemPods = append(s.SystemPods, SystemPod{Namespace: ds.Namespace, Name: ds.Name, Role: role, Tolerations: pod.Spec.Tolerations})
	}
}

// ours trims what a policy carries for others.
func ours(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	delete(meta.Annotations, corev1.LastAppliedConfigAnnotation)
}

func (s *Snapshot) addConditionSet(cs *v1alpha1.ConditionSet) {
	ours(&cs.ObjectMeta)
	s.ConditionSets = append(s.ConditionSets, *cs)
}

func (s *Snapshot) addWeederConfig(wc *v1alpha1.WeederConfig) {
	ours(&wc.ObjectMeta)
	s.WeederConfigs = append(s.WeederConfigs, *wc)
}

func (s *Snapshot) addProbeConfig(pc *v1alpha1.ProbeConfig) {
	ours(&pc.ObjectMeta)
	s.ProbeConfigs = append(s.ProbeConfigs, *pc)
}

func (s *Snapshot) addOutlierPolicy(op *v1alpha1.OutlierPolicy) {
	ours(&op.ObjectMeta)
	s.OutlierPolicies = append(s.OutlierPolicies, *op)
}

func (s *Snapshot) addRegistration(hcr *v1alpha1.HealthCheckRegistration) {
	ours(&hcr.ObjectMeta)
	s.HealthCheckRegistrations = append(s.HealthCheckRegistrations, *hcr)
}

func (s *Snapshot) addGuardrail(g *v1alpha1.Guardrail) {
	ours(&g.ObjectMeta)
	s.Guardrails = append(s.Guardrails, *g)
}

func (s *Snapshot) addException(x *v1alpha1.GuardrailException) {
	ours(&x.ObjectMeta)
	s.GuardrailExceptions = append(s.GuardrailExceptions, *x)
}

// systemPods are those of the snapshot as the planner reads them.
func (s *Snapshot) systemPods() []condition.SystemPod {
	var pods []condition.SystemPod
	for _, p := range s.SystemPods {
		pods = append(pods, condition.SystemPod(p))
	}
	return pods
}
