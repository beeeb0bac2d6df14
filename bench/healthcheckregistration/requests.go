package healthcheckregistration

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/resourcestack/autohealer/bench/testbed"
)

// requests are how many there were so far about what registrations have to do with, by the API server's own count. They are the
// manager's alone while this program makes none. Watches aren't counted.
type requests struct {
	reads, writes int
	toTargets     int // those writes of targets that weren't refused
}

func (b *Bench) requests(ctx context.Context) (r requests, err error) {
	samples, err := b.APIServerMetric(ctx, "apiserver_request_total")
	for _, s := range samples {
		switch s.Labels["resource"] {
		case "workers", "managedresources", "deployments", "configmaps", "healthcheckregistrations":
			r.add(s)
		}
	}
	return r, err
}

func (r *requests) add(s testbed.Sample) {
	switch s.Labels["verb"] {
	case "WATCH":
	case "GET", "LIST":
		r.reads += int(s.Value)
	default:
		r.writes += int(s.Value)
		if s.Labels["resource"] == "workers" && strings.HasPrefix(s.Labels["code"], "2") {
			r.toTargets += int(s.Value)
		}
	}
}

// awaitNoRequests waits until nothing has been asked for so long.
func (b *Bench) awaitNoRequests(ctx context.Context, silence time.Duration) error {
	const patience = 10
	for range patience {
		before, err := b.requests(ctx)
		if err != nil {
			return err
		}
		if err := testbed.Pause(ctx, silence); err != nil {
			return err
		}
		if after, err := b.requests(ctx); err != nil || after == before {
			return err
		}
	}
	return errors.New("the manager never stops asking though nothing changes")
}
