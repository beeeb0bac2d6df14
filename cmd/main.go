// The manager: admission webhook and controllers in one binary.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// version is set with -ldflags "-X main.version=…".
var version string

func main() {
	o, err := parse(flag.CommandLine, os.Args[1:]) // the command line's set, because it has --kubeconfig already
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "autohealer:", err)
		os.Exit(2)
	case o.version:
		fmt.Println(buildVersion())
		return
	}
	handler := logHandler(o, os.Stderr)
	slog.SetDefault(slog.New(handler)) // net/http's servers log there
	logger := logr.FromSlogHandler(handler)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		logger.Error(err, "The manager ends")
		os.Exit(1)
	}
}

// logHandler writes one line an entry. logr's V(n) is slog's level -n.
func logHandler(o options, out io.Writer) slog.Handler {
	handlerOptions := &slog.HandlerOptions{Level: slog.Level(-o.verbosity)}
	if o.logFormat == "text" {
		return withoutProbes{slog.NewTextHandler(out, handlerOptions)}
	}
	return withoutProbes{slog.NewJSONHandler(out, handlerOptions)}
}
