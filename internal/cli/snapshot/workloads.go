package snapshot

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/weed"
	"github.com/resourcestack/autohealer/internal/kube/survey"
)

// Workloads are what the planner of WeederConfigs reads of a cluster.
type Workloads struct {
	Namespaces     []Namespace     `json:"namespaces"`
	Services       []Service       `json:"services"`
	EndpointSlices []EndpointSlice `json:"endpointSlices"`
	Pods           []Pod           `json:"pods"`
	// Held are the Deployments, StatefulSets and DaemonSets whose annotation asks to leave their pods alone.
	Held []Held `json:"held,omitempty"`
}

// Held is a workload with its annotation hold-until.
type Held struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	HoldUntil string `json:"holdUntil"`
}

// Namespace with the labels by which configs choose it.
type Namespace struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels,omitempty"`
	// Unprobed: it is hibernated or ends, so nothing is probed there.
	Unprobed bool `json:"unprobed,omitempty"`
}

// Service with those fields of its spec that say whose pods are behind it and by which ports: type, selector,
// publishNotReadyAddresses, ports and ipFamilies.
type Service struct {
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Spec      corev1.ServiceSpec `json:"spec"`
	// Annotations by which Contour knows what its ports speak.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Addresses by which it is reached, of the cluster and of its load balancers.
	Addresses []string `json:"addresses,omitempty"`
}

// EndpointSlice says who is behind a Service.
type EndpointSlice struct {
	Namespace   string                     `json:"namespace"`
	Name        string                     `json:"name"`
	Service     string                     `json:"service"`
	AddressType discoveryv1.AddressType    `json:"addressType,omitempty"`
	Ports       []discoveryv1.EndpointPort `json:"ports,omitempty"`
	Endpoints   []Endpoint                 `json:"endpoints,omitempty"`
}

// Endpoint is what is behind a Service, mostly a pod.
type Endpoint struct {
	Pod        string                         `json:"pod,omitempty"`
	Address    string                         `json:"address,omitempty"`
	Zone       *string                        `json:"zone,omitempty"`
	Conditions discoveryv1.EndpointConditions `json:"conditions"`
}

// Pod is what decides whether a pod is deleted, and for whom; nothing of its spec.
type Pod struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	UID         types.UID         `json:"uid"`
	Created     metav1.Time       `json:"created"`
	Labels      map[string]string `json:"labels,omitempty"`
	Controller  *Controller       `json:"controller,omitempty"`
	Mirror      bool              `json:"mirror,omitempty"`
	Terminating bool              `json:"terminating,omitempty"`
	// HoldUntil is its annotation of that name.
	HoldUntil *string `json:"holdUntil,omitempty"`
	// ReadySince is set for a pod that is Ready.
	ReadySince *metav1.Time `json:"readySince,omitempty"`
	// CrashLoop and InitCrashLoop are the first containers of each sort that crash-loop.
	CrashLoop     *CrashLoop `json:"crashLoop,omitempty"`
	InitCrashLoop *CrashLoop `json:"initCrashLoop,omitempty"`
}

// Controller is a pod's controlling owner.
type Controller struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Name       string    `json:"name"`
	UID        types.UID `json:"uid"`
}

// CrashLoop is a container that crash-loops.
type CrashLoop struct {
	Container string `json:"container"`
	Init      bool   `json:"init,omitempty"`
	Waiting   bool   `json:"waiting,omitempty"`
	Restarts  int32  `json:"restarts"`
	ExitCode  int32  `json:"exitCode"`
}

func (w *Workloads) addNamespace(ns *corev1.Namespace) {
	w.Namespaces = append(w.Namespaces, Namespace{Name: ns.Name, Labels: ns.Labels, Unprobed: !survey.Probed(ns)})
}

func (w *Workloads) addService(svc *corev1.Service) {
	w.Services = append(w.Services, Service{Namespace: svc.Namespace, Name: svc.Name, Spec: corev1.ServiceSpec{
		Type: svc.Spec.Type, Selector: svc.Spec.Selector, PublishNotReadyAddresses: svc.Spec.PublishNotReadyAddresses,
		Ports: portsOf(svc), IPFamilies: svc.Spec.IPFamilies,
	}, Annotations: outlier.ProtocolAnnotations(svc), Addresses: survey.Addresses(svc)})
}

// portsOf leaves out what only nodes and kube-proxy read.
func portsOf(svc *corev1.Service) (ports []corev1.ServicePort) {
	for _, p := range svc.Spec.Ports {
		ports = append(ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
	}
	return ports
}

func (w *Workloads) addSlice(slice *discoveryv1.EndpointSlice) {
	s := EndpointSlice{Namespace: slice.Namespace, Name: slice.Name, Service: slice.Labels[discoveryv1.LabelServiceName], AddressType: slice.AddressType, Ports: slice.Ports}
	if s.Service == "" {
		return
	}
	for _, e := range slice.Endpoints {
		one := Endpoint{Zone: e.Zone, Conditions: e.Conditions}
		if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
			one.Pod = e.TargetRef.Name
		}
		if len(e.Addresses) > 0 {
			one.Address = e.Addresses[0]
		}
		s.Endpoints = append(s.Endpoints, one)
	}
	w.EndpointSlices = append(w.EndpointSlices, s)
}

func (w *Workloads) addPod(pod *corev1.Pod) {
	read := weed.ReadPod(pod)
	p := Pod{
		Namespace: read.Namespace, Name: read.Name, UID: read.UID, Created: pod.CreationTimestamp, Labels: read.Labels,
		Mirror: read.Mirror, Terminating: read.Terminating, CrashLoop: loopOf(read.Main), InitCrashLoop: loopOf(read.Init),
	}
	if read.Controller.Kind != "" {
		p.Controller = (*Controller)(&read.Controller)
	}
	if read.Hold != nil {
		p.HoldUntil = &read.Hold.Text
	}
	if read.Ready {
		since := metav1.NewTime(read.ReadySince)
		p.ReadySince = &since
	}
	w.Pods = append(w.Pods, p)
}

// addHeld adds a workload of a kind, if it asks to be left alone.
func (w *Workloads) addHeld(kind string, m *metav1.PartialObjectMetadata) {
	if until, asked := m.Annotations[v1alpha1.AnnotationHoldUntil]; asked {
		w.Held = append(w.Held, Held{Namespace: m.Namespace, Kind: kind, Name: m.Name, HoldUntil: until})
	}
}

func holdOf(until string) *hold.Hold {
	return hold.Of(map[string]string{v1alpha1.AnnotationHoldUntil: until})
}

func loopOf(c weed.CrashLoop) *CrashLoop {
	if c.Container == "" {
		return nil
	}
	return (*CrashLoop)(&c)
}

func (p *Pod) read() *weed.Pod {
	pod := &weed.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: p.UID, Created: p.Created.Time, Labels: p.Labels, Mirror: p.Mirror, Terminating: p.Terminating,
	}
	if p.Controller != nil {
		pod.Controller = weed.Controller(*p.Controller)
	}
	if p.HoldUntil != nil {
		pod.Hold = holdOf(*p.HoldUntil)
	}
	if p.ReadySince != nil {
		pod.Ready, pod.ReadySince = true, p.ReadySince.Time
	}
	if p.CrashLoop != nil {
		pod.Main = weed.CrashLoop(*p.CrashLoop)
	}
	if p.InitCrashLoop != nil {
		pod.Init = weed.CrashLoop(*p.InitCrashLoop)
	}
	return pod
}

func (s *Service) read() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, Annotations: s.Annotations}, Spec: s.Spec}
}

func (s *EndpointSlice) read() *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.Namespace, Name: s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Service},
	}, AddressType: s.AddressType, Ports: s.Ports}
	for _, e := range s.Endpoints {
		one := discoveryv1.Endpoint{Zone: e.Zone, Conditions: e.Conditions}
		if e.Pod != "" {
			one.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: e.Pod}
		}
		if e.Address != "" {
			one.Addresses = []string{e.Address}
		}
		slice.Endpoints = append(slice.Endpoints, one)
	}
	return slice
}

// feed tells a yard of all workloads.
func (w *Workloads) feed(y *weed.Yard, at weed.Moment) {
	for _, ns := range w.Namespaces {
		y.ObserveNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name, Labels: ns.Labels}}, at)
	}
	for i := range w.Services {
		y.ObserveService(w.Services[i].read())
	}
	for _, h := range w.Held {
		y.ObserveHold(weed.Workload{Namespace: h.Namespace, Kind: h.Kind, Name: h.Name}, holdOf(h.HoldUntil), "", at)
	}
	for i := range w.Pods {
		y.ObservePod(w.Pods[i].read(), at)
	}
	for i := range w.EndpointSlices {
		y.ObserveSlice(w.EndpointSlices[i].read(), at)
	}
}

// forgetUnread drops from pods what addPod doesn't read: of ten thousand whole ones the program would be full.
func forgetUnread(pods *corev1.PodList) {
	for i := range pods.Items {
		pod := &pods.Items[i]
		pod.ManagedFields = nil
		containers := func(all []corev1.Container) (some []corev1.Container) {
			for _, c := range all {
				some = append(some, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, RestartPolicyRules: c.RestartPolicyRules})
			}
			return some
		}
		pod.Spec = corev1.PodSpec{
			RestartPolicy: pod.Spec.RestartPolicy, Containers: containers(pod.Spec.Containers), InitContainers: containers(pod.Spec.InitContainers),
		}
	}
}

// weederAt is the snapshot's moment for the planner of WeederConfigs, which compares the API server's clock with that of the
// manager. Here there is no manager, and this machine's clock says nothing of the cluster.
func (s *Snapshot) weederAt() weed.Moment {
	return weed.Moment{Now: s.ServerTime.Time, Server: s.ServerTime.Time}
}
