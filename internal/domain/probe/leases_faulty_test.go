package probe_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func TestWhichNodesAreAtFaultThemselves(t *testing.T) {
	for name, tt := range map[string]struct {
		is     corev1.NodeCondition
		faulty bool
	}{
		"ready":                         {corev1.NodeCondition{Type: "Ready", Status: "True"}, false},
		"cut off, as others say":        {corev1.NodeCondition{Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown"}, false},
		"not ready, as it says itself":  {corev1.NodeCondition{Type: "Ready", Status: "False", Reason: "KubeletNotReady"}, true},
		"no network":                    {corev1.NodeCondition{Type: "NetworkUnavailable", Status: "True"}, false},
		"a full disk":                   {corev1.NodeCondition{Type: "DiskPressure", Status: "True"}, true},
		"a full disk, perhaps":          {corev1.NodeCondition{Type: "DiskPressure", Status: "Unknown"}, false},
		"no full disk":                  {corev1.NodeCondition{Type: "DiskPressure", Status: "False"}, false},
		"too little memory":             {corev1.NodeCondition{Type: "MemoryPressure", Status: "True"}, true},
		"too many processes":            {corev1.NodeCondition{Type: "PIDPressure", Status: "True"}, true},
		"a kernel that hangs":           {corev1.NodeCondition{Type: "KernelDeadlock", Status: "True"}, true},
		"a file system that is lost":    {corev1.NodeCondition{Type: "ReadonlyFilesystem", Status: "True"}, true},
		"a machine that goes":           {corev1.NodeCondition{Type: "Terminating", Status: "True", Reason: "Unhealthy"}, true},
		"a machine that is updated":     {corev1.NodeCondition{Type: "InPlaceUpdate", Status: "True", Reason: "ReadyForUpdate"}, true},
		"an update that failed":         {corev1.NodeCondition{Type: "InPlaceUpdate", Status: "True", Reason: "UpdateFailed"}, true},
		"an update that waits":          {corev1.NodeCondition{Type: "InPlaceUpdate", Status: "True", Reason: "CandidateForUpdate"}, false},
		"a condition that nobody knows": {corev1.NodeCondition{Type: "Example", Status: "True"}, false},
		"an empty one":                  {corev1.NodeCondition{Type: "Example"}, false},
	} {
		node := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True"}, tt.is}}}
		if got := probe.Faulty(node); got != tt.faulty {
			t.Errorf("%s: at fault %t", name, got)
		}
	}
	node := &corev1.Node{}
	if node.Annotations = map[string]string{"node.machine.sapcloud.io/not-managed-by-mcm": "1"}; !probe.Faulty(node) {
		t.Error("a node that nobody manages counts")
	}
}
