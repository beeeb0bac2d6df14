package envoy

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

const childEnv = "AUTOHEALER_ENVOY_TEST_CHILD"

func TestNoEnvoyIsLeftWhenTheTestIsKilled(t *testing.T) {
	Binary(t)
	if os.Getenv(childEnv) != "" {
		e := Start(t, Options{Bootstrap: []string{"--server", cluster.Unserved(), "--plaintext"}, Change: impatient})
		pid, err := os.ReadFile(e.path("pid"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nchild %s %s\n", strings.TrimSpace(string(pid)), e.dir)
		select {}
	}
	g := NewWithT(t)
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(child.Start()).To(Succeed())
	var pid int
	var dir string
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "child" {
			pid, err = strconv.Atoi(fields[1])
			g.Expect(err).NotTo(HaveOccurred())
			dir = fields[2]
		}
	}
	g.Expect(pid).NotTo(BeZero(), "it told of its Envoy")
	g.Expect(syscall.Kill(pid, 0)).To(Succeed(), "Envoy runs")
	g.Expect(child.Process.Signal(syscall.SIGKILL)).To(Succeed())
	_ = child.Wait() // its error is the signal
	g.Eventually(func() error { return syscall.Kill(pid, 0) }, "10s").Should(MatchError(syscall.ESRCH))
	g.Eventually(func() error { _, err := os.Stat(dir); return err }, "10s").Should(MatchError(os.ErrNotExist))
}
