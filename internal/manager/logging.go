package manager

import (
	"context"
	"io"
	"log/slog"

	"github.com/resourcestack/autohealer/internal/actuate"
)

// logHandler writes one line an entry. logr's V(n) is slog's level -n.
func logHandler(o options, out io.Writer) slog.Handler {
	handlerOptions := &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}
	if o.logFormat == "text" {
		return withoutNoise{slog.NewTextHandler(out, handlerOptions)}
	}
	return withoutNoise{slog.NewJSONHandler(out, handlerOptions)}
}

// withoutNoise leaves out what libraries log at their own discretion and nobody can do anything about.
type withoutNoise struct{ slog.Handler }

// Handle writes an entry, unless it is noise.
func (h withoutNoise) Handle(ctx context.Context, entry slog.Record) error {
	noise := false
	entry.Attrs(func(a slog.Attr) bool {
		noise = isNoise(entry.Message, a)
		return !noise
	})
	if noise {
		return nil
	}
	return h.Handler.Handle(ctx, entry)
}

// eventRejected is what client-go logs, as an error, of an Event that the API server didn't take.
const eventRejected = "Server rejected event (will not retry!)"

// isNoise tells by an attribute whether an entry is noise: controller-runtime logs each failed probe, without a reason; and client-go
// each Event in a namespace that is being deleted, where nothing may be created any more.
func isNoise(message string, a slog.Attr) bool {
	switch a.Key {
	case "logger":
		return a.Value.String() == "controller-runtime/healthz"
	case "err":
		err, ok := a.Value.Any().(error)
		return ok && message == eventRejected && actuate.NamespaceEnds(err)
	}
	return false
}

// WithAttrs implements slog.Handler.
func (h withoutNoise) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutNoise{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h withoutNoise) WithGroup(name string) slog.Handler {
	return withoutNoise{h.Handler.WithGroup(name)}
}
