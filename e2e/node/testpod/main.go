// The program of every container on a test's node. What it does is its first argument:
//
//	pause         nothing, until it is told to end; none is the same, for the sandbox of each pod
//	need ADDR     connect to an upstream, and exit with 1 when it isn't there or goes away: a dependent
//	exit CODE     exit at once
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 0, len(args) == 1 && args[0] == "pause":
		<-ctx.Done()
		return nil
	case len(args) == 2 && args[0] == "need":
		return need(ctx, args[1])
	case len(args) == 2 && args[0] == "exit":
		code, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("read the exit code: %w", err)
		}
		os.Exit(code)
	}
	return fmt.Errorf("don't know what to do with %q", args)
}

func need(ctx context.Context, address string) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("upstream isn't there: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	fmt.Println("connected to", address)
	_, err = io.Copy(io.Discard, conn)
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errors.New("upstream went away"), err)
}
