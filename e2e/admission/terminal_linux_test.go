package admission

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// terminal opens a new pseudoterminal: who, and what programs write to.
func terminal() (who, line *os.File) {
	GinkgoHelper()
	who, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(who.Close)
	Expect(unix.IoctlSetPointerInt(int(who.Fd()), unix.TIOCSPTLCK, 0)).To(Succeed())
	number, err := unix.IoctlGetInt(int(who.Fd()), unix.TIOCGPTN)
	Expect(err).NotTo(HaveOccurred())
	line, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	Expect(err).NotTo(HaveOccurred())
	return who, line
}

var _ = Describe("kubectl autohealer on a terminal", func() {
	const (
		colored  = "\x1b[31m"
		progress = "\r\x1b[Kreading nodes: "
	)
	var path string
	BeforeEach(func() {
		path = file(manifest("colored", `{type: Colored, effect: NoSchedule, taintKey: example.com/colored, conditions: {KernelDeadlock: {status: false}}}`))
	})
	validate := func(ctx SpecContext, env ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, filepath.Join(h.BinDir, "kubectl-autohealer"), "validate", "-f", path, "--live", "--kubeconfig", h.Kubeconfig)
		cmd.Env = append(os.Environ(), append([]string{"TERM=xterm-256color", "NO_COLOR="}, env...)...)
		return cmd
	}
	// shown is what somebody sees who runs it.
	shown := func(ctx SpecContext, env ...string) string {
		GinkgoHelper()
		who, line := terminal()
		cmd := validate(ctx, env...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = line, line, line
		Expect(cmd.Start()).To(Succeed())
		Expect(line.Close()).To(Succeed())
		var screen bytes.Buffer
		if _, err := io.Copy(&screen, who); !errors.Is(err, syscall.EIO) { // that is how a terminal ends
			Expect(err).NotTo(HaveOccurred())
		}
		exit, exited := errors.AsType[*exec.ExitError](cmd.Wait())
		Expect(exited && exit.ExitCode() == 1).To(BeTrue(), screen.String())
		Expect(screen.String()).To(ContainSubstring("conditionset/matches-healthy-nodes"))
		return screen.String()
	}

	It("shows progress and colors", func(ctx SpecContext) {
		Expect(shown(ctx)).To(And(ContainSubstring(colored), ContainSubstring(progress)))
	}, NodeTimeout(specTime))

	It("shows no colors where NO_COLOR is set, or the terminal can't", func(ctx SpecContext) {
		for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
			Expect(shown(ctx, env)).To(And(Not(ContainSubstring("\x1b[3")), Not(ContainSubstring("\x1b[0m")), ContainSubstring(progress)), env)
		}
	}, NodeTimeout(specTime))

	It("shows neither in a pipe", func(ctx SpecContext) {
		cmd := validate(ctx)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		_, exited := errors.AsType[*exec.ExitError](cmd.Run())
		Expect(exited).To(BeTrue())
		Expect(stdout.String()).To(And(ContainSubstring("conditionset/matches-healthy-nodes"), Not(ContainSubstring("\x1b")), Not(ContainSubstring("\r"))))
		Expect(stderr.String()).To(BeEmpty())
	}, NodeTimeout(specTime))
})
