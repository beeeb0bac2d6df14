package manager

import (
	"maps"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestOwnPodIsTheOneThatItsEnvironmentNames(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "healing", Name: "manager-1", Labels: map[string]string{"app": "healer"}}}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	asItsHost := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "healing", Name: host, Labels: map[string]string{"app": "host"}}}
	read := ownPod(fake.NewClientBuilder().WithObjects(pod, asItsHost).Build(), "healing")
	for name, want := range map[string]labels.Set{"manager-1": pod.Labels, "manager-2": nil, "": asItsHost.Labels} {
		t.Setenv("POD_NAME", name)
		if got, err := read(t.Context()); err != nil || !maps.Equal(got, want) {
			t.Errorf("as %q: %v, %v", name, got, err)
		}
	}
}
