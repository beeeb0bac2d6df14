// Command manager is the manager with a part of the durations that it waits by itself, so that tests take less time.
package main

import (
	"os"

	"github.com/resourcestack/autohealer/e2e/timings"
	"github.com/resourcestack/autohealer/internal/manager"
)

func main() { os.Exit(manager.Main("e2e", timings.Short, os.Args[1:])) }
