package weederconfig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// killManager ends the manager as a crash does, and returns once it is gone.
func killManager() {
	GinkgoHelper()
	Expect(h.Kill(harness.Manager, syscall.SIGKILL)).To(Succeed())
	Expect(h.StopComponent(harness.Manager)).To(Succeed())
}

// startManager starts it again with the flags it had.
func startManager(ctx context.Context) {
	GinkgoHelper()
	Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
}

// act is a line of the manager's audit trail.
type act struct {
	At        time.Time `json:"time"`
	ID        string    `json:"act"`
	Verb      string    `json:"verb"`
	Namespace string    `json:"policyNamespace"`
	TargetUID string    `json:"targetUID"`
	Owner     string    `json:"owner"`
	Repeats   int       `json:"repeats"`
}

// acts are the lines of the audit trail about a namespace's configs.
func (s shop) acts() []act {
	GinkgoHelper()
	log, err := os.ReadFile(h.Log(harness.Manager))
	Expect(err).NotTo(HaveOccurred())
	var acts []act
	lines := bufio.NewScanner(bytes.NewReader(log))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var a act
		if json.Unmarshal(lines.Bytes(), &a) == nil && a.ID != "" && a.Namespace == s.namespace {
			acts = append(acts, a)
		}
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return acts
}
