package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const handlerRounds = 5

// handlers compares what webhooks cost by themselves, over TLS and in one process: ours over small and large clusters,
// and one that decides nothing. One request at a time, the kinds in turn, so that noise hits all alike.
func (b *bench) handlers(ctx context.Context) error {
	fleets := []struct {
		path        string
		nodes, sets int
	}{{"/small", 10, 10}, {"/nodes", 5000, 10}, {"/sets", 10, 10000}}
	hooks := map[string]http.Handler{"/noop": noop()}
	rules := 0
	b.say("the webhook's handler by itself, over TLS")
	for _, f := range fleets {
		hook, rulesOf, err := handlerOver(f.nodes, f.sets)
		if err != nil {
			return err
		}
		hooks[f.path], rules = hook, len(rulesOf.Rules("ConditionSet"))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s, err := serve(ctx, hooks)
	if err != nil {
		return err
	}
	medians, err := s.compare(ctx, []string{"/noop", "/small", "/nodes", "/sets"}, b.size.requests)
	if err != nil {
		return err
	}
	b.report.ratio(row{
		what: fmt.Sprintf("handler over HTTPS, all %d rules, against a no-op handler, µs a request", rules), ours: medians["/small"].text("%.0f"),
		reference: medians["/noop"].text("%.0f"), ratio: medians["/small"].over(medians["/noop"]),
		goal: "≤ 2 (with 10 rules)", reached: medians["/small"].over(medians["/noop"]).median() <= 2,
	})
	for _, f := range fleets[1:] {
		ratio := medians[f.path].over(medians["/small"])
		b.report.ratio(row{
			what: fmt.Sprintf("the same with %d nodes and %d stored sets, against 10 and 10", f.nodes, f.sets), ours: medians[f.path].text("%.0f"),
			reference: medians["/small"].text("%.0f"), ratio: ratio, goal: "flat (≤ 1.1)", reached: ratio.median() <= 1.1,
		})
	}
	return nil
}

// compare gives, for each path and round, the median of n requests in µs.
func (s *server) compare(ctx context.Context, paths []string, n int) (map[string]series, error) {
	body, err := review()
	if err != nil {
		return nil, err
	}
	medians := map[string]series{}
	for round := range handlerRounds + 1 {
		latencies := map[string][]time.Duration{}
		for range n {
			for _, path := range paths {
				began := time.Now()
				if err := s.ask(ctx, path, body); err != nil {
					return nil, err
				}
				latencies[path] = append(latencies[path], time.Since(began))
			}
		}
		for path, l := range latencies {
			if round > 0 { // the first one warms up
				medians[path] = append(medians[path], quantile(l, .5).Seconds()*1e6)
			}
		}
	}
	return medians, nil
}
