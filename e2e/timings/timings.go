// Package timings says with which durations the manager of a suite runs.
package timings

import (
	"os"

	"github.com/resourcestack/autohealer/internal/domain/timing"
)

// FullEnv names the environment variable that has suites run with production's durations, if it isn't empty: `make test-full`.
const FullEnv = "AUTOHEALER_FULL_LENGTH"

// Short are those of e2e/manager. A third leaves each of them longer than what a busy machine takes for what happens meanwhile.
var Short = timing.Divided(3)

// OfSuites are production's or the short ones, as whoever runs the tests wants.
func OfSuites() timing.Timings {
	if os.Getenv(FullEnv) != "" {
		return timing.Timings{}
	}
	return Short
}
