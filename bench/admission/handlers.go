package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/guard/catalog"
	"github.com/resourcestack/autohealer/webhooks"
)

const requestsPerRound = 1000

// numbersOfRules are those that the design has figures for.
var numbersOfRules = []int{10, 25, 100}

// handlers compares what webhooks cost by themselves, over TLS and in one process: ours with so many rules, over small and
// large clusters, and one that decides nothing. One request at a time, the kinds in turn, so that noise hits all alike.
func (b *Bench) handlers(ctx context.Context) error {
	b.Say("the webhook's handler by itself, over TLS")
	body, err := review()
	if err != nil {
		return err
	}
	hooks, builtin := map[string]hook{"/noop": {noop(), body}}, 0
	for _, c := range clustersOfSets {
		rules, err := c.guardOfSets(catalog.FS)
		if err != nil {
			return err
		}
		hooks[c.path], builtin = hook{webhooks.New(rules), body}, len(rules.Rules("ConditionSet"))
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
	for i := range 2 {
		pods, targets := clustersOfPods[i], clustersOfTargets[i]
		if hooks[pods.path], err = pods.hookOfPods(); err != nil {
			return err
		}
		if hooks[targets.path], err = targets.hookOfTargets(ctx); err != nil {
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

func (b *Bench) reportHandlers(took map[string]*report.Rounds, builtin int) {
	p50 := func(what, path, reference string, goal report.Goal) {
		b.Report.Ratio(what, "%.0f", took[path].P50, took[reference].P50, goal)
	}
	for _, n := range numbersOfRules {
		var goal report.Goal
		if n <= 25 {
			goal = report.AtMost(2)
		}
		p50(fmt.Sprintf("handler over HTTPS with %d rules, against a no-op handler, µs a request, p50", n), pathOf(n), "/noop", goal)
		b.Report.Ratio("the same, p99", "%.0f", took[pathOf(n)].P99, took["/noop"].P99, nil)
	}
	p50(fmt.Sprintf("handler over HTTPS with the %d built-in rules, against a no-op handler, µs a request, p50", builtin), "/small", "/noop", nil)
	for _, c := range clustersOfSets[1:] {
		p50(fmt.Sprintf("the same with %d nodes and %d stored sets, against 10 and 10", c.nodes, c.sets), c.path, "/small", report.Flat)
	}
	few, many := clustersOfTargets[0], clustersOfTargets[1]
	p50(fmt.Sprintf("the same for a WeederConfig, with %d pods, %d Services and %d stored configs, against %d, %d and %d",
		many.pods, many.services, many.services, few.pods, few.services, few.services), clustersOfPods[1].path, clustersOfPods[0].path, report.Flat)
	p50(fmt.Sprintf("the same for a ProbeConfig, with %d targets of others and a namespace with %d pods and %d Services, against %d, %d and %d",
		many.targets, many.pods, many.services, few.targets, few.pods, few.services), many.path, few.path, report.Flat)
}

// timeRounds measures requests one after the other, by a function that adds what each took to the samples of its path.
func timeRounds(request func(samples map[string][]time.Duration) error) (map[string]*report.Rounds, error) {
	took := map[string]*report.Rounds{}
	for round := range rounds + 1 {
		samples := map[string][]time.Duration{}
		for range requestsPerRound {
			if err := request(samples); err != nil {
				return nil, err
			}
		}
		for path, s := range samples {
			if took[path] == nil {
				took[path] = &report.Rounds{Unit: time.Microsecond}
			}
			if round > 0 { // the first one warms up
				took[path].Add(s)
			}
		}
	}
	return took, nil
}

// compare gives how long requests to each path took.
func (s *server) compare(ctx context.Context, hooks map[string]hook) (map[string]*report.Rounds, error) {
	return timeRounds(func(samples map[string][]time.Duration) error {
		for path, hook := range hooks {
			began := time.Now()
			if err := s.ask(ctx, path, hook.review); err != nil {
				return err
			}
			samples[path] = append(samples[path], time.Since(began))
		}
		return nil
	})
}

// engine measures a guard of n rules without any handler, and gives it.
func (b *Bench) engine(ctx context.Context, n int) (*guard.Guard, error) {
	catalogue, err := catalogueOf(n)
	if err != nil {
		return nil, err
	}
	rules, err := clustersOfSets[0].guardOfSets(catalogue)
	if err != nil {
		return nil, err
	}
	request, err := creation()
	if err != nil {
		return nil, err
	}
	all, err := timeRounds(func(samples map[string][]time.Duration) error {
		began := time.Now()
		if verdict := rules.Review(ctx, request); !verdict.Allowed {
			return errors.New(verdict.Message())
		}
		samples[""] = append(samples[""], time.Since(began))
		return nil
	})
	if err != nil {
		return nil, err
	}
	took := all[""]
	goal, reached := fmt.Sprintf("p50 ≤ %d (12 a rule)", 12*n), took.P50.Median() <= float64(12*n)
	if n == 25 {
		goal, reached = goal+", p99 ≤ 300", reached && took.P99.Median() <= 300
	}
	b.Report.Checked(fmt.Sprintf("engine alone with %d rules, p50 and p99, µs a review", n), took.P50.Text("%.0f")+", "+took.P99.Text("%.0f"), goal, reached)
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
