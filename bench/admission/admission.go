// Package admission measures what the webhook costs: its handler by itself, over clusters in memory of different sizes (begin at
// handlers.go; judged.go makes the clusters); creations through the API server, against a webhook that decides nothing and the generated
// policies; and ordinary creations while Guardrails flood it. Every request is a dry run.
package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
)

const (
	rounds            = 5 // of handlers, and of requests back to back
	requestsAtOnce    = 4
	requestsPerSecond = 200
)

// Bench measures admission.
type Bench struct {
	*testbed.Bed
	// Requests of each kind a round.
	Requests int
	// OpenLoopFor is how long requests of each kind are sent at a pace, and FloodFor a round of the flood.
	OpenLoopFor, FloodFor time.Duration
}

// Admission compares what a creation costs with nothing to admit it, a webhook that decides nothing, the generated
// policy, the manager's webhook, and both as they are installed.
func (b *Bench) Admission(ctx context.Context) error {
	if err := b.handlers(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reference, err := serve(ctx, map[string]hook{"/noop": {Handler: noop()}})
	if err != nil {
		return err
	}
	if err := b.installArms(ctx, reference); err != nil {
		return fmt.Errorf("install the arms: %w", err)
	}
	c, err := b.newCreator()
	if err != nil {
		return err
	}
	if err := c.awaitArms(ctx); err != nil {
		return err
	}
	for _, measure := range []func(context.Context, *creator) error{b.closedLoop, b.openLoop, b.flood} {
		if err := measure(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// closedLoop sends requests back to back, a few at once.
func (b *Bench) closedLoop(ctx context.Context, c *creator) error {
	b.Say("admission through the API server: %d creations of each kind, %d rounds, %d at once", b.Requests, rounds, requestsAtOnce)
	medians := map[string]report.Series{}
	for round := range rounds + 1 {
		latencies, err := c.round(ctx, b.Requests)
		if err != nil {
			return err
		}
		for arm, l := range latencies {
			if round > 0 { // the first one warms up
				medians[arm] = append(medians[arm], report.Quantile(l, .5).Seconds()*1000)
			}
		}
	}
	for _, of := range []struct{ arm, against string }{
		{armNoop, armNothing}, {armPolicy, armNothing}, {armWebhook, armNoop}, {armWebhook, armPolicy}, {armBoth, armNoop},
	} {
		b.Report.Ratio(fmt.Sprintf("creation with %s, against %s, median ms", of.arm, of.against), "%.2f", medians[of.arm], medians[of.against], nil)
	}
	return nil
}

// openLoop sends 200 requests a second whatever becomes of them, and reads from the API server's own histogram how many
// calls of the webhook took longer than the goal.
func (b *Bench) openLoop(ctx context.Context, c *creator) error {
	n := int(b.OpenLoopFor.Seconds()) * requestsPerSecond
	b.Say("admission at %d requests a second, %s of each kind", requestsPerSecond, b.OpenLoopFor)
	for _, arm := range []string{armNothing, armNoop, armWebhook} {
		before, err := b.webhookCalls(ctx, arm)
		if err != nil {
			return err
		}
		_, latencies, err := testbed.Timed(ctx, n, requestsPerSecond, func(ctx context.Context, _ int) error { return c.create(ctx, arm) })
		if err != nil {
			return err
		}
		after, err := b.webhookCalls(ctx, arm)
		if err != nil {
			return err
		}
		b.Report.Value(fmt.Sprintf("%d requests/s with %s: creation seen by the client, p50 and p99", requestsPerSecond, arm), report.P50P99(latencies))
		all := after.all - before.all
		share := float64(after.fast-before.fast) / float64(max(1, all))
		what := fmt.Sprintf("%d requests/s with %s: calls of the webhook within 5 ms as the API server sees them", requestsPerSecond, arm)
		ours := fmt.Sprintf("%.2f%% of %d", 100*share, all)
		switch arm {
		case armNoop:
			b.Report.Value(what, ours)
		case armWebhook:
			b.Report.Checked(what, ours, "≥ 99%", share >= .99)
		}
	}
	return nil
}

// creator creates sets with each arm, without storing them.
type creator struct {
	client *rest.RESTClient
	bodies map[string][]byte
}

func (b *Bench) newCreator() (c *creator, err error) {
	c = &creator{bodies: map[string][]byte{}}
	for _, arm := range arms {
		cs := newSet()
		cs.Labels = map[string]string{armLabel: arm}
		if c.bodies[arm], err = json.Marshal(cs); err != nil {
			return nil, fmt.Errorf("encode a set: %w", err)
		}
	}
	config := rest.CopyConfig(b.Config)
	config.APIPath, config.GroupVersion = "/apis", &v1alpha1.GroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if c.client, err = rest.RESTClientFor(config); err != nil {
		return nil, fmt.Errorf("make a bare client: %w", err)
	}
	return c, nil
}

func (c *creator) create(ctx context.Context, arm string) error {
	if err := c.send(ctx, "conditionsets", c.bodies[arm]); err != nil {
		return fmt.Errorf("create with %s: %w", arm, err)
	}
	return nil
}

func (c *creator) send(ctx context.Context, resource string, body []byte) error {
	return c.client.Post().Resource(resource).Param("dryRun", metav1.DryRunAll).Body(body).Do(ctx).Error()
}

// round sends n requests of each arm, in turn.
func (c *creator) round(ctx context.Context, n int) (map[string][]time.Duration, error) {
	latencies := map[string][]time.Duration{}
	for _, arm := range arms {
		latencies[arm] = make([]time.Duration, n)
	}
	err := testbed.EachOf(ctx, requestsAtOnce, n*len(arms), func(ctx context.Context, i int) error {
		arm, began := arms[i%len(arms)], time.Now()
		err := c.create(ctx, arm)
		latencies[arm][i/len(arms)] = time.Since(began)
		return err
	})
	return latencies, err
}
