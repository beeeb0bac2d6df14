// Package suite is what end-to-end suites share: each spec is a test of its own to go test, and one that fails leaves what tells
// why, most of which is gone with the control plane.
package suite

import (
	"context"
	"fmt"
	"os"
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

// OfFailures reports of each spec that fails what status says then, how the manager's log ends, where its goroutines are written to,
// and in which directory all logs and the audit log stay: before anything is cleaned up. A suite declares it, before its harness starts.
func OfFailures(of func() *harness.Harness) bool {
	return ginkgo.JustAfterEach(func() {
		h := of()
		if !ginkgo.CurrentSpecReport().Failed() || h == nil {
			return
		}
		ginkgo.AddReportEntry("status says", status(h))
		ginkgo.AddReportEntry("the manager's log ends with", short(h.LogTail(harness.Manager, logLines), logLines))
		ginkgo.AddReportEntry("the manager's goroutines", goroutines(h))
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

// goroutines writes the manager's beside its log; a manager that hangs tells by them where.
func goroutines(h *harness.Harness) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stacks, err := h.Goroutines(ctx, harness.Manager)
	if err != nil {
		return err.Error()
	}
	file := strings.TrimSuffix(h.Log(harness.Manager), ".log") + fmt.Sprintf("-goroutines-%d.txt", time.Now().Unix())
	if err := os.WriteFile(file, []byte(strings.Join(stacks, "\n\n")), 0o600); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d, in %s", len(stacks), file)
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
