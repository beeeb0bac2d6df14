package manager

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// outspoken is a manager whose log says why it isn't ready: readyz itself withholds the reasons from whoever asks.
type outspoken struct{ ctrl.Manager }

// AddReadyzCheck adds a check whose outcome is logged.
func (m outspoken) AddReadyzCheck(name string, check healthz.Checker) error {
	return m.Manager.AddReadyzCheck(name, logged(m.GetLogger().WithValues("check", name), check))
}

// logged logs what a check says when it says something else than before; probes come every few seconds.
func logged(log logr.Logger, check healthz.Checker) healthz.Checker {
	var mu sync.Mutex
	said := ""
	return func(r *http.Request) error {
		err := check(r)
		says := ""
		if err != nil {
			says = err.Error()
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case says == said:
		case err != nil:
			log.Info("Not ready", "reason", says)
		default:
			log.Info("Ready")
		}
		said = says
		return err
	}
}

// withoutProbes leaves out what controller-runtime logs at each failed probe, without a reason.
type withoutProbes struct{ slog.Handler }

// Handle writes an entry, unless it is about a probe.
func (h withoutProbes) Handle(ctx context.Context, entry slog.Record) error {
	ofProbe := false
	entry.Attrs(func(a slog.Attr) bool {
		ofProbe = a.Key == "logger" && a.Value.String() == "controller-runtime/healthz"
		return !ofProbe
	})
	if ofProbe {
		return nil
	}
	return h.Handler.Handle(ctx, entry)
}

// WithAttrs implements slog.Handler.
func (h withoutProbes) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutProbes{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h withoutProbes) WithGroup(name string) slog.Handler {
	return withoutProbes{h.Handler.WithGroup(name)}
}
