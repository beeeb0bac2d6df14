// Package manager is the manager's program: admission webhook and controllers in one process. Main begins it.
package manager

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/version"
)

// Main is the manager's main, and gives the exit code. Built is its version; empty for what the Go toolchain noted. With other
// timings than production's it works on this machine only.
func Main(built string, timings timing.Timings, args []string) int {
	if len(args) > 0 && args[0] == uninstallCheck {
		return checkUninstall(ctrl.SetupSignalHandler(), flag.CommandLine, args[1:], os.Stderr)
	}
	o, err := parse(flag.CommandLine, args) // the command line's set, because it has --kubeconfig already
	o.built, o.timings = version.Of(built), timings
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "autohealer:", err)
		return 2
	case o.version:
		fmt.Println(o.built)
		return 0
	}
	handler := logHandler(o, os.Stderr)
	slog.SetDefault(slog.New(handler)) // net/http's servers log there
	logger := logr.FromSlogHandler(handler)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	if err := run(ctrl.SetupSignalHandler(), o); err != nil {
		logger.Error(err, "The manager ends")
		return 1
	}
	return 0
}
