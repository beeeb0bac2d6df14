package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// restarted restarts the manager and lets it come to rest.
func (b *bench) restarted(ctx context.Context) error {
	if err := b.withoutManager(ctx, func() error { return nil }); err != nil {
		return err
	}
	_, err := b.quiet(ctx)
	return err
}

// liveMemory is what the manager's heap holds after a collection, in bytes: the least of a few, since what is made while a
// collection runs counts as held, and looks that are due by themselves make much.
func (b *bench) liveMemory(ctx context.Context) (int, error) {
	const collections, apart = 5, 2 * time.Second
	least := math.MaxInt
	for i := range collections {
		if i > 0 {
			if err := pause(ctx, apart); err != nil {
				return 0, err
			}
		}
		held, err := b.memStat(ctx, "HeapAlloc")
		if err != nil {
			return 0, err
		}
		least = min(least, held)
	}
	return least, nil
}

// liveStacks is what its goroutines' stacks take, in bytes.
func (b *bench) liveStacks(ctx context.Context) (int, error) { return b.memStat(ctx, "Stack") }

// memStat is one of the manager's runtime.MemStats after a collection, as its heap profile has them.
func (b *bench) memStat(ctx context.Context, name string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.pprof+"/debug/pprof/heap?gc=1&debug=1", nil)
	if err != nil {
		return 0, fmt.Errorf("ask for the manager's heap: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask for the manager's heap: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // only read from
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, fmt.Errorf("read the manager's heap: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "# "+name+" = "); ok {
			value, _, _ = strings.Cut(value, "/") // of stacks: in use, and had from the system
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, errors.New("the manager's heap profile has no " + name)
}
