package manager

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

func TestWhyItIsNotReadyIsLoggedOnceAChange(t *testing.T) {
	g := NewWithT(t)
	var out strings.Builder
	log := logr.FromSlogHandler(logHandler(options{logFormat: "text"}, &out))
	logf.SetLogger(log) // controller-runtime's own, of every probe
	var outcome error
	probes := &healthz.Handler{Checks: map[string]healthz.Checker{
		"guardrails": logged(log.WithValues("check", "guardrails"), func(*http.Request) error { return outcome }),
	}}
	for _, outcome = range []error{errors.New("not read yet"), errors.New("not read yet"), errors.New("no CRD"), nil, nil} {
		probes.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/?verbose", nil))
	}
	var said []string
	for line := range strings.Lines(out.String()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " level=INFO ")
		said = append(said, line)
	}
	g.Expect(said).To(Equal([]string{
		`msg="Not ready" check=guardrails reason="not read yet"`, `msg="Not ready" check=guardrails reason="no CRD"`, `msg=Ready check=guardrails`,
	}))
	slog.New(logHandler(options{logFormat: "text"}, &out)).With("logger", "another").Info("kept")
	g.Expect(out.String()).To(HaveSuffix("msg=kept logger=another\n"))
}
