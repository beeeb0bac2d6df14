package x

import (
	_ "context"
	clock "time"

	_ "github.com/resourcestack/autohealer/internal/guard"
)

func age(t clock.Time) (clock.Duration, clock.Time) { return clock.Since(t), clock.Now() }
