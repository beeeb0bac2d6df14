// Package suite is what end-to-end suites share: each spec is a test of its own to go test, and one that fails leaves what tells
// why, most of which is gone with the control plane.
package suite

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2"

	"github.com/resourcestack/autohealer/e2e/harness"
)

// A report is short, or what failed isn't found in it.
const (
	logLines, statusLines = 15, 40
	lineLength            = 240
)

// patience is for kubectl autohealer status; a control plane that is broken on purpose may never answer.
const patience = 20 * time.Second

// OfFailures reports of each spec that fails what status says then, how the manager's log ends, and in which directory all logs
// and the audit log stay: before anything is cleaned up. A suite declares it, before its harness starts.
func OfFailures(of func() *harness.Harness) bool {
	return ginkgo.JustAfterEach(func() {
		h := of()
		if !ginkgo.CurrentSpecReport().Failed() || h == nil {
			return
		}
		ginkgo.AddReportEntry("status says", status(h))
		ginkgo.AddReportEntry("the manager's log ends with", short(h.LogTail(harness.Manager, logLines), logLines))
		ginkgo.AddReportEntry("logs and the audit log stay", fmt.Sprintf("in %s", h.KeepLogs()))
	})
}

// status is what an operator would ask for first.
func status(h *harness.Harness) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	said, err := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), "status", "--kubeconfig="+h.Kubeconfig).CombinedOutput()
	if err != nil {
		said = fmt.Appendf(said, "(%v)", err)
	}
	return short(string(said), statusLines)
}

// short is the beginning of a text, with the beginnings of its lines.
func short(text string, most int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if more := len(lines) - most; more > 0 {
		lines = append(lines[:most], fmt.Sprintf("… and %d lines more", more))
	}
	for i, line := range lines {
		if len(line) > lineLength {
			lines[i] = strings.ToValidUTF8(line[:lineLength], "") + "…"
		}
	}
	return strings.Join(lines, "\n")
}
