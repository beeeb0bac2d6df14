// Command image makes an OCI image of a static Go program, and pushes it: without Docker, without a base image, and the same image from
// the same commit whenever and wherever it is made. It is what make image and make push run.
//
// A module of its own, so that go-containerregistry doesn't weigh on the product's go.mod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `usage:
  image pack -name NAME:TAG [-version VERSION] [-revision COMMIT] -o PREFIX BINARY...   one binary of the program for each platform
  image push [-key FILE] LAYOUT NAME:TAG                                                with a signature, by an ECDSA key in PEM
`

var errUsage = errors.New(strings.TrimSpace(usage))

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage) }
	switch args[0] {
	case "pack":
		name := flags.String("name", "", "name and tag that the tars give the image")
		version := flags.String("version", "", "version of the program")
		revision := flags.String("revision", "", "commit that it was built from")
		prefix := flags.String("o", "", "what the paths of all that is made begin with")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return pack(*name, source{*version, *revision}, *prefix, flags.Args())
	case "push":
		key := flags.String("key", "", "file with the private key")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if flags.NArg() != 2 {
			return errUsage
		}
		digest, err := push(ctx, flags.Arg(0), flags.Arg(1), *key)
		if err != nil {
			return err
		}
		fmt.Println(digest)
		return nil
	}
	return errUsage
}
