// The kubectl plugin: `kubectl autohealer`.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/resourcestack/autohealer/cmd/rights"
	"github.com/resourcestack/autohealer/internal/cli"
)

// version is set with -ldflags "-X main.version=…".
var version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	app := &cli.App{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Version:   version,
		Rights: func(cfg *rest.Config) (authorizer.UnconditionalAuthorizer, error) {
			return rights.NewAuthorizer(cfg)
		},
	}
	code := cli.Run(ctx, app, os.Args[1:])
	stop()
	os.Exit(code)
}
