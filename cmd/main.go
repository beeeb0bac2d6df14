// The manager: admission webhook and controllers in one binary.
package main

import (
	"os"

	"github.com/resourcestack/autohealer/internal/domain/timing"
	"github.com/resourcestack/autohealer/internal/manager"
)

// version is set with -ldflags "-X main.version=…".
var version string

func main() { os.Exit(manager.Main(version, timing.Timings{}, os.Args[1:])) }
