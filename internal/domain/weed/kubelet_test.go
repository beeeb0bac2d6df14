package weed_test

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/weed"
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
		loop, ok := weed.CrashLooping(seen.Pod, true)
		if ok != seen.CrashLooping || ok && loop.Container != seen.Container || weed.ReadPod(seen.Pod).Loop(true) != loop {
			t.Errorf("%s after %.2f s: %+v, kept as %+v", seen.App, seen.Seconds, loop, weed.ReadPod(seen.Pod).Loop(true))
		}
	}
	if err := lines.Err(); err != nil || count < 80 {
		t.Errorf("%d revisions: %v", count, err)
	}
}
