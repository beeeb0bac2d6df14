package ecosystem_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/internal/domain/ecosystem"
)

func TestReservedKeys(t *testing.T) {
	for key, want := range map[string]bool{
		"node.kubernetes.io/not-ready": true, "kubernetes.io/x": true, "k8s.io/x": true, "a.b.k8s.io/x": true,
		"node.cloudprovider.kubernetes.io/uninitialized": true, "karpenter.sh/disrupted": true, "sub.karpenter.sh/x": true,
		"ToBeDeletedByClusterAutoscaler": true, "DeletionCandidateOfClusterAutoscaler": true,
		"eks.amazonaws.com/x": true, "karpenter.k8s.aws/x": true, "karpenter.azure.com/x": true, "node.cluster.x-k8s.io/uninitialized": true,
		"cloud.google.com/gke-spot": true, "components.gke.io/x": true, "kubernetes.azure.com/scalesetpriority": true, "node.cilium.io/agent-not-ready": true,
		"ebs.csi.aws.com/agent-not-ready": true, "aws-node-termination-handler/spot-itn": true, "deployment.machine.sapcloud.io/prefer-no-schedule": true,
		"medik8s.io/remediation": true, "nvidia.com/gpu": false, "CriticalAddonsOnly": false, "amazonaws.com/x": false,
		"node.stakater.com/KubeletUnhealthy": false, "notkubernetes.io/x": false, "kubernetes.io": false, "example.com/k8s.io": false, "dedicated": false,
	} {
		if got := ecosystem.ReservedKey(key); got != want {
			t.Errorf("%s reserved: %t, want %t", key, got, want)
		}
	}
}

func TestSystemRole(t *testing.T) {
	path := func(p string) *corev1.PodSpec {
		return &corev1.PodSpec{Volumes: []corev1.Volume{{Name: "empty"}, {Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: p}}}}}
	}
	ofDaemonSet := []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", Controller: new(true)}}
	tests := []struct {
		name string
		meta metav1.ObjectMeta
		spec *corev1.PodSpec
		want string
	}{
		{"an ordinary pod", metav1.ObjectMeta{Name: "web"}, &corev1.PodSpec{}, ""},
		{"node-problem-detector by its name", metav1.ObjectMeta{Name: "node-problem-detector-x2v"}, &corev1.PodSpec{}, "condition reporter"},
		{"node-problem-detector by a label", metav1.ObjectMeta{Name: "npd", Labels: map[string]string{"app.kubernetes.io/name": "node-problem-detector"}}, &corev1.PodSpec{}, "condition reporter"},
		{"a reporter that says so", metav1.ObjectMeta{Name: "mine", Labels: map[string]string{"autohealer.resourcestack.com/reporter": "true"}}, &corev1.PodSpec{}, "condition reporter"},
		{"one that reads the kernel log", metav1.ObjectMeta{Name: "mine"}, path("/dev/kmsg"), "condition reporter"},
		{"a CNI plugin", metav1.ObjectMeta{Name: "net"}, path("/etc/cni/net.d"), "CNI"},
		{"a CNI plugin by its binaries", metav1.ObjectMeta{Name: "net"}, path("/opt/cni"), "CNI"},
		{"a CSI driver", metav1.ObjectMeta{Name: "disk"}, path("/var/lib/kubelet/plugins/disk.example.com"), "CSI"},
		{"a DaemonSet's that sees all devices", metav1.ObjectMeta{Name: "gpu", OwnerReferences: ofDaemonSet}, path("/dev/"), "sees the whole host"},
		{"a DaemonSet's that sees the whole host", metav1.ObjectMeta{Name: "agent", OwnerReferences: ofDaemonSet}, path("/"), "sees the whole host"},
		{"a DaemonSet's that sees one device", metav1.ObjectMeta{Name: "fuse", OwnerReferences: ofDaemonSet}, path("/dev/fuse"), ""},
		{"somebody's that sees the whole host, as for debugging", metav1.ObjectMeta{Name: "node-debugger-w1-x2v"}, path("/"), ""},
		{"kube-proxy by its name", metav1.ObjectMeta{Name: "kube-proxy-x2v"}, &corev1.PodSpec{}, "Service proxy"},
		{"kube-proxy by a label", metav1.ObjectMeta{Name: "proxy", Labels: map[string]string{"k8s-app": "kube-proxy"}}, &corev1.PodSpec{}, "Service proxy"},
		{"a path that only begins alike", metav1.ObjectMeta{Name: "x"}, path("/etc/cnidata"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := ecosystem.SystemRole(&tt.meta, tt.spec); got != tt.want {
				t.Errorf("role %q, want %q", got, tt.want)
			}
		})
	}
}

func TestADaemonSetStandsForItsPods(t *testing.T) {
	agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent"}}
	if p, is := ecosystem.SystemPodOf(agent); is {
		t.Errorf("%s is a system pod", p)
	}
	agent.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "root", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	if p, is := ecosystem.SystemPodOf(agent); !is || p.String() != "kube-system/agent (sees the whole host)" {
		t.Errorf("%s, system pod %t", p, is)
	}
}

func TestThePolarityTable(t *testing.T) {
	healthy := map[string]string{}
	for _, k := range ecosystem.Types() {
		healthy[k.Type] = string(k.Healthy)
	}
	want := map[string]string{
		"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "NetworkUnavailable": "False", "OutOfDisk": "False",
		"NTPProblem": "False", "CorruptDockerOverlay2": "False", "ContainerRuntimeUnhealthy": "False", "KubeletUnhealthy": "False", "KernelDeadlock": "False",
		"ReadonlyFilesystem": "False", "FrequentUnregisterNetDevice": "False", "FrequentKubeletRestart": "False", "FrequentDockerRestart": "False", "FrequentContainerdRestart": "False",
		"XfsShutdown": "False", "CperHardwareErrorFatal": "False", "DiskBadBlock": "False", "KubeProxyUnhealthy": "False",
		"KernelReady": "True", "NetworkingReady": "True", "StorageReady": "True", "ContainerRuntimeReady": "True", "AcceleratedHardwareReady": "True",
	}
	if diff := cmp.Diff(want, healthy); diff != "" {
		t.Errorf("healthy statuses differ:\n%s", diff)
	}
}

// What node-problem-detector's own configurations say is what we know: a log monitor raises a condition and never lowers it, and a custom
// plugin may say Unknown.
func TestNodeProblemDetectorsConditionsAreAsItsConfigurationsHaveThem(t *testing.T) {
	text, err := os.ReadFile("testdata/node-problem-detector.tsv")
	if err != nil {
		t.Fatal(err)
	}
	plugins := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		plugins[fields[2]] = append(plugins[fields[2]], fields[1])
	}
	reads := func(plugin string) bool { return plugin != "custom" }
	for _, k := range ecosystem.Types() {
		if k.Reporter != "node-problem-detector" {
			continue
		}
		by := plugins[k.Type]
		delete(plugins, k.Type)
		if len(by) == 0 {
			t.Errorf("%s is none of its conditions", k.Type)
		}
		if logs := !slices.Contains(by, "custom"); k.LogMonitor != logs || k.Sticky != slices.ContainsFunc(by, reads) || k.Healthy != corev1.ConditionFalse {
			t.Errorf("%s: only from logs %t, sticky %t, healthy at %s; its plugins are %v", k.Type, k.LogMonitor, k.Sticky, k.Healthy, by)
		}
	}
	for conditionType := range plugins {
		t.Errorf("%s isn't known", conditionType)
	}
}
