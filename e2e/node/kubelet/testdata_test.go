//go:build linux

package kubelet

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var update = flag.Bool("update", false, "write what the kubelet reported of crash loops to internal/domain/weeder/testdata")

// observation is a line of internal/domain/weeder/testdata/kubelet.jsonl.
type observation struct {
	App string `json:"app"`
	// Container of the pod that crash-loops.
	Container string `json:"container"`
	// Seconds since the pod was created.
	Seconds float64 `json:"seconds"`
	// CrashLooping is what weed should say of the pod.
	CrashLooping bool        `json:"crashLooping"`
	Pod          *corev1.Pod `json:"pod"`
}

// updateTestdata writes real revisions for unit tests, one a line, without what differs from run to run and says nothing.
func updateTestdata(r *recording, of []crasher) {
	GinkgoHelper()
	if !*update {
		return
	}
	file, err := os.Create(filepath.Join(h.Root(), "internal", "domain", "weed", "testdata", "kubelet.jsonl"))
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(file.Close()).To(Succeed()) }()
	lines := json.NewEncoder(file)
	for _, c := range of {
		revisions := r.of(c.app)
		for _, revision := range revisions {
			seconds := revision.at.Sub(revisions[0].at).Seconds()
			Expect(lines.Encode(observation{
				App: c.app, Container: c.container, Seconds: math.Round(seconds*100) / 100,
				CrashLooping: c.crashLoops(revision.pod), Pod: essence(revision.pod),
			})).To(Succeed())
		}
	}
}

func essence(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	essential := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, Labels: pod.Labels, OwnerReferences: pod.OwnerReferences,
		},
		Spec: corev1.PodSpec{RestartPolicy: pod.Spec.RestartPolicy, NodeName: pod.Spec.NodeName},
		Status: corev1.PodStatus{
			Phase:             pod.Status.Phase,
			ContainerStatuses: pod.Status.ContainerStatuses, InitContainerStatuses: pod.Status.InitContainerStatuses,
		},
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			essential.Status.Conditions = []corev1.PodCondition{c}
		}
	}
	for _, c := range pod.Spec.Containers {
		essential.Spec.Containers = append(essential.Spec.Containers, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
	}
	for _, c := range pod.Spec.InitContainers {
		essential.Spec.InitContainers = append(essential.Spec.InitContainers, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
	}
	for _, statuses := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			s.ContainerID, s.Image, s.ImageID, s.VolumeMounts, s.Resources, s.AllocatedResources = "", "", "", nil, nil, nil
			for _, state := range []*corev1.ContainerState{&s.State, &s.LastTerminationState} {
				if state.Terminated != nil {
					state.Terminated.ContainerID = ""
				}
			}
		}
	}
	return essential
}
