package weeder_test

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/weeder"
)

// What a kubelet reported, revision by revision: `go test ./e2e/node/kubelet -update` records it anew.
func TestCrashLoopingOfWhatAKubeletReports(t *testing.T) {
	file, err := os.Open("testdata/kubelet.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	count := 0
	for ; lines.Scan(); count++ {
		var seen struct {
			App, Container string
			Seconds        float64
			CrashLooping   bool
			Pod            *corev1.Pod
		}
		if err := json.Unmarshal(lines.Bytes(), &seen); err != nil {
			t.Fatal(err)
		}
		loop := weeder.ReadPod(seen.Pod).Loop(true)
		if looping := loop.Container != ""; looping != seen.CrashLooping || looping && loop.Container != seen.Container {
			t.Errorf("%s after %.2f s: %+v", seen.App, seen.Seconds, loop)
		}
	}
	if err := lines.Err(); err != nil || count < 80 {
		t.Errorf("%d revisions: %v", count, err)
	}
}
