package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/guard/catalog"
	"github.com/resourcestack/autohealer/webhooks"
)

const (
	handlerRounds   = 5
	handlerRequests = 1000
)

// numbersOfRules are those that the design has figures for.
var numbersOfRules = []int{10, 25, 100}

// fleets are what the built-in rules judge over; the first is the reference of the others.
var fleets = []struct {
	path        string
	nodes, sets int
}{{"/small", 10, 10}, {"/nodes", 5000, 10}, {"/sets", 10, 10000}}

// handlers compares what webhooks cost by themselves, over TLS and in one process: ours with so many rules, over small and
// large clusters, and one that decides nothing. One request at a time, the kinds in turn, so that noise hits all alike.
func (b *bench) handlers(ctx context.Context) error {
	b.say("the webhook's handler by itself, over TLS")
	body, err := review()
	if err != nil {
		return err
	}
	hooks, builtin := map[string]hook{"/noop": {noop(), body}}, 0
	for _, f := range fleets {
		rules, err := guardOver(catalog.FS, f.nodes, f.sets)
		if err != nil {
			return err
		}
		hooks[f.path], builtin = hook{webhooks.New(rules), body}, len(rules.Rules("ConditionSet"))
	}
	for _, n := range numbersOfRules {
		rules, err := b.engine(ctx, n)
		if err != nil {
			return err
		}
		hooks[pathOf(n)] = hook{webhooks.New(rules), body}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for _, t := range towns {
		if hooks[t.path], err = t.hook(ctx); err != nil {
			return err
		}
	}
	for _, y := range yards {
		if hooks[y.path], err = y.hook(); err != nil {
			return err
		}
	}
	s, err := serve(ctx, hooks)
	if err != nil {
		return err
	}
	took, err := s.compare(ctx, hooks)
	if err != nil {
		return err
	}
	b.reportHandlers(took, builtin)
	return nil
}

func pathOf(rules int) string { return fmt.Sprintf("/rules-%d", rules) }

func (b *bench) reportHandlers(took map[string]*quantiles, builtin int) {
	against := func(what, path, reference string, of func(*quantiles) series) row {
		ours, theirs := of(took[path]), of(took[reference])
		return row{what: what, ours: ours.text("%.0f"), reference: theirs.text("%.0f"), ratio: ours.over(theirs)}
	}
	p50, p99 := func(q *quantiles) series { return q.p50 }, func(q *quantiles) series { return q.p99 }
	for _, n := range numbersOfRules {
		w := against(fmt.Sprintf("handler over HTTPS with %d rules, against a no-op handler, µs a request, p50", n), pathOf(n), "/noop", p50)
		if n <= 25 {
			w.goal, w.reached = "≤ 2", w.ratio.median() <= 2
		}
		b.report.ratio(w)
		b.report.ratio(against("the same, p99", pathOf(n), "/noop", p99))
	}
	b.report.ratio(against(fmt.Sprintf("handler over HTTPS with the %d built-in rules, against a no-op handler, µs a request, p50", builtin), "/small", "/noop", p50))
	for _, f := range fleets[1:] {
		w := against(fmt.Sprintf("the same with %d nodes and %d stored sets, against 10 and 10", f.nodes, f.sets), f.path, "/small", p50)
		w.goal, w.reached = "flat (≤ 1.1)", w.ratio.median() <= 1.1
		b.report.ratio(w)
	}
	few, many := yards[0], yards[1]
	w := against(fmt.Sprintf("the same for a WeederConfig, with %d pods, %d Services and %d stored configs, against %d, %d and %d",
		many.pods, many.services, many.services, few.pods, few.services, few.services), many.path, few.path, p50)
	w.goal, w.reached = "flat (≤ 1.1)", w.ratio.median() <= 1.1
	b.report.ratio(w)
	w = against(fmt.Sprintf("the same for a ProbeConfig, with %d targets of others and a namespace with %d pods and %d Services, against %d, %d and %d",
		towns[1].targets, many.pods, many.services, towns[0].targets, few.pods, few.services), towns[1].path, towns[0].path, p50)
	w.goal, w.reached = "flat (≤ 1.1)", w.ratio.median() <= 1.1
	b.report.ratio(w)
}

// hook is a webhook and what it is asked.
type hook struct {
	http.Handler
	review []byte
}

// quantiles are those of each round.
type quantiles struct {
	unit     time.Duration
	p50, p99 series
}

func (q *quantiles) add(round []time.Duration) {
	q.p50 = append(q.p50, float64(quantile(round, .5))/float64(q.unit))
	q.p99 = append(q.p99, float64(quantile(round, .99))/float64(q.unit))
}

// compare gives how long requests to each path took.
func (s *server) compare(ctx context.Context, hooks map[string]hook) (map[string]*quantiles, error) {
	took := map[string]*quantiles{}
	for round := range handlerRounds + 1 {
		latencies := map[string][]time.Duration{}
		for range handlerRequests {
			for path, hook := range hooks {
				began := time.Now()
				if err := s.ask(ctx, path, hook.review); err != nil {
					return nil, err
				}
				latencies[path] = append(latencies[path], time.Since(began))
			}
		}
		for path, l := range latencies {
			if took[path] == nil {
				took[path] = &quantiles{unit: time.Microsecond}
			}
			if round > 0 { // the first one warms up
				took[path].add(l)
			}
		}
	}
	return took, nil
}

// engine measures a guard of n rules without any handler, and gives it.
func (b *bench) engine(ctx context.Context, n int) (*guard.Guard, error) {
	catalogue, err := catalogueOf(n)
	if err != nil {
		return nil, err
	}
	rules, err := guardOver(catalogue, 10, 10)
	if err != nil {
		return nil, err
	}
	request, err := creation()
	if err != nil {
		return nil, err
	}
	took := quantiles{unit: time.Microsecond}
	for round := range handlerRounds + 1 {
		latencies := make([]time.Duration, handlerRequests)
		for i := range latencies {
			began := time.Now()
			if verdict := rules.Review(ctx, request); !verdict.Allowed {
				return nil, errors.New(verdict.Message())
			}
			latencies[i] = time.Since(began)
		}
		if round > 0 {
			took.add(latencies)
		}
	}
	w := row{what: fmt.Sprintf("engine alone with %d rules, p50 and p99, µs a review", n), ours: took.p50.text("%.0f") + ", " + took.p99.text("%.0f")}
	w.goal, w.reached = fmt.Sprintf("p50 ≤ %d (12 a rule)", 12*n), took.p50.median() <= float64(12*n)
	if n == 25 {
		w.goal, w.reached = w.goal+", p99 ≤ 300", w.reached && took.p99.median() <= 300
	}
	b.report.absolute(w)
	return rules, nil
}

// creation is what a handler makes of review.
func creation() (guard.Request, error) {
	body, err := review()
	if err != nil {
		return guard.Request{}, err
	}
	var asked admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &asked); err != nil {
		return guard.Request{}, fmt.Errorf("read a review: %w", err)
	}
	return guard.Request{
		Operation: asked.Request.Operation, Kind: asked.Request.Kind.Kind, Object: asked.Request.Object.Raw, UserInfo: asked.Request.UserInfo,
	}, nil
}
