package certs

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// writePair makes a pair for host and puts it into dir, and gives its serial number.
func writePair(g Gomega, dir, host string) string {
	ca, err := newAuthority(time.Now(), time.Hour)
	g.Expect(err).NotTo(HaveOccurred())
	issued, err := ca.issue(time.Now(), time.Hour, []string{host})
	g.Expect(err).NotTo(HaveOccurred())
	leaf := issued.leaf
	g.Expect(os.WriteFile(filepath.Join(dir, "tls.key"), leaf.keyPEM, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), leaf.certPEM, 0o600)).To(Succeed())
	return leaf.certs[0].SerialNumber.String()
}

// logLines collects what is logged.
type logLines struct {
	sync.Mutex
	lines []string
}

func (l *logLines) count(part string) int {
	l.Lock()
	defer l.Unlock()
	return strings.Count(strings.Join(l.lines, "\n"), part)
}

func (l *logLines) add(_, args string) {
	l.Lock()
	defer l.Unlock()
	l.lines = append(l.lines, args)
}

func (l *logLines) text() string {
	l.Lock()
	defer l.Unlock()
	return strings.Join(l.lines, "\n")
}

func (l *logLines) reset() {
	l.Lock()
	defer l.Unlock()
	l.lines = nil
}

// logged is all that is logged. It is set before any test runs: controller-runtime gives up on a logger that isn't set
// half a minute after the start, and then takes none any more.
var logged logLines

func TestMain(m *testing.M) {
	log.SetLogger(funcr.New(logged.add, funcr.Options{}))
	os.Exit(m.Run())
}

func TestFilesAreServedOnceThereAndFollowed(t *testing.T) {
	g := NewWithT(t)
	logged.reset()
	dir := t.TempDir()
	f := NewFiles(dir)
	config := &tls.Config{}
	f.TLSConfig(config)
	served := func() (string, error) {
		pair, err := config.GetCertificate(nil)
		if err != nil {
			return "", err
		}
		return pair.Leaf.SerialNumber.String(), nil
	}
	stopped := make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	go func() { stopped <- f.Start(ctx) }()

	g.Eventually(logged.text, "10s").Should(ContainSubstring("Can't load the serving certificate"))
	g.Expect(f.Ready(nil)).To(MatchError("no serving certificate yet in " + dir))
	_, err := served()
	g.Expect(err).To(MatchError("no serving certificate yet"))

	first := writePair(g, dir, "a.example.org")
	g.Eventually(func() error { return f.Ready(nil) }, "10s").Should(Succeed())
	g.Eventually(served, "10s").Should(Equal(first))

	g.Expect(os.WriteFile(filepath.Join(dir, "tls.crt"), []byte("broken"), 0o600)).To(Succeed())
	g.Eventually(logged.text, "20s").Should(MatchRegexp("error.*read.* certificate"), "a broken replacement is reported")
	g.Expect(served()).To(Equal(first), "and the last good pair stays")
	g.Expect(f.Ready(nil)).To(Succeed())

	second := writePair(g, dir, "b.example.org")
	g.Eventually(served, "20s").Should(Equal(second))

	stop()
	g.Eventually(stopped, "10s").Should(Receive(BeNil()))
}

func TestFilesThatNeverComeDoNotHoldUpTheEnd(t *testing.T) {
	g := NewWithT(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	g.Expect(NewFiles(t.TempDir()).Start(ctx)).To(Succeed())
}
