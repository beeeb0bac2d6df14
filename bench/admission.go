package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// armLabel says which admission an object gets here: every arm is installed at the same time, and requests of all arms
// take turns, so that noise hits all alike.
const armLabel = "bench.example.com/arm"

// Arms of the comparison, the cheapest first.
const (
	armNothing = "nothing"
	armNoop    = "no-op-webhook"
	armPolicy  = "policy"
	armWebhook = "webhook"
	armBoth    = "webhook-and-policy"
)

var arms = []string{armNothing, armNoop, armPolicy, armWebhook, armBoth}

const (
	admissionRounds  = 5
	admissionAtOnce  = 4
	requestsASecond  = 200
	slowestAdmission = "0.005" // a bucket of the API server's own histogram, in seconds: the goal's 5 ms
)

// admission compares what a creation costs with nothing to admit it, a webhook that decides nothing, the generated
// policy, the manager's webhook, and both as they are installed. Every request is a dry run.
func (b *bench) admission(ctx context.Context) error {
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
	asker, err := b.newAsker()
	if err != nil {
		return err
	}
	if err := asker.awaitArms(ctx); err != nil {
		return err
	}
	if err := b.closedLoop(ctx, asker); err != nil {
		return err
	}
	if err := b.openLoop(ctx, asker); err != nil {
		return err
	}
	return b.flood(ctx, asker)
}

// closedLoop sends requests back to back, a few at once.
func (b *bench) closedLoop(ctx context.Context, a *asker) error {
	b.say("admission through the API server: %d creations of each kind, %d rounds, %d at once", b.size.requests, admissionRounds, admissionAtOnce)
	medians := map[string]series{}
	for round := range admissionRounds + 1 {
		latencies, err := a.round(ctx, b.size.requests)
		if err != nil {
			return err
		}
		for arm, l := range latencies {
			if round > 0 { // the first one warms up
				medians[arm] = append(medians[arm], quantile(l, .5).Seconds()*1000)
			}
		}
	}
	for _, c := range []struct{ arm, against string }{
		{armNoop, armNothing}, {armPolicy, armNothing}, {armWebhook, armNoop}, {armWebhook, armPolicy}, {armBoth, armNoop},
	} {
		b.report.ratio(row{what: fmt.Sprintf("creation with %s, against %s, median ms", c.arm, c.against), ours: medians[c.arm].text("%.2f"),
			reference: medians[c.against].text("%.2f"), ratio: medians[c.arm].over(medians[c.against])})
	}
	return nil
}

// openLoop sends 200 requests a second whatever becomes of them, and reads from the API server's own histogram how many
// calls of the webhook took longer than the goal.
func (b *bench) openLoop(ctx context.Context, a *asker) error {
	n := int(b.size.openLoop.Seconds()) * requestsASecond
	b.say("admission at %d requests a second, %s of each kind", requestsASecond, b.size.openLoop)
	for _, arm := range []string{armNothing, armNoop, armWebhook} {
		before, err := b.webhookCalls(ctx)
		if err != nil {
			return err
		}
		latencies := make([]time.Duration, n)
		if err := paced(ctx, n, requestsASecond, func(ctx context.Context, i int) (err error) {
			latencies[i], err = a.create(ctx, arm)
			return err
		}); err != nil {
			return err
		}
		after, err := b.webhookCalls(ctx)
		if err != nil {
			return err
		}
		b.report.absolute(row{what: fmt.Sprintf("%d requests/s with %s: creation seen by the client, p50 and p99", requestsASecond, arm),
			ours: milliseconds(quantile(latencies, .5)) + ", " + milliseconds(quantile(latencies, .99))})
		if arm != armNothing {
			b.reportCalls(arm, before[arm], after[arm])
		}
	}
	return nil
}

func (b *bench) reportCalls(arm string, before, after calls) {
	w := row{what: fmt.Sprintf("%d requests/s with %s: calls of the webhook within 5 ms as the API server sees them", requestsASecond, arm)}
	share := float64(after.fast-before.fast) / float64(max(1, after.all-before.all))
	w.ours = fmt.Sprintf("%.2f%% of %d", 100*share, after.all-before.all)
	if arm == armWebhook {
		w.goal, w.reached = "≥ 99%", share >= .99
	}
	b.report.absolute(w)
}

// asker creates sets, without storing them.
type asker struct {
	client *rest.RESTClient
	bodies map[string][]byte
}

func (b *bench) newAsker() (*asker, error) {
	a := &asker{bodies: map[string][]byte{}}
	for _, arm := range arms {
		cs := newSet()
		cs.Labels = map[string]string{armLabel: arm}
		var err error
		if a.bodies[arm], err = json.Marshal(cs); err != nil {
			return nil, fmt.Errorf("encode a set: %w", err)
		}
	}
	config := rest.CopyConfig(b.Config)
	config.APIPath, config.GroupVersion = "/apis", &v1alpha1.GroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	var err error
	if a.client, err = rest.RESTClientFor(config); err != nil {
		return nil, fmt.Errorf("make a bare client: %w", err)
	}
	return a, nil
}

// create gives how long one creation took.
func (a *asker) create(ctx context.Context, arm string) (time.Duration, error) {
	began := time.Now()
	if err := a.send(ctx, a.bodies[arm]); err != nil {
		return 0, fmt.Errorf("create with %s: %w", arm, err)
	}
	return time.Since(began), nil
}

func (a *asker) send(ctx context.Context, body []byte) error {
	return a.client.Post().Resource("conditionsets").Param("dryRun", metav1.DryRunAll).Body(body).Do(ctx).Error()
}

// round sends n requests of each arm, in turn.
func (a *asker) round(ctx context.Context, n int) (map[string][]time.Duration, error) {
	latencies := map[string][]time.Duration{}
	for _, arm := range arms {
		latencies[arm] = make([]time.Duration, n)
	}
	err := eachOf(ctx, admissionAtOnce, n*len(arms), func(ctx context.Context, i int) (err error) {
		arm := arms[i%len(arms)]
		latencies[arm][i/len(arms)], err = a.create(ctx, arm)
		return err
	})
	return latencies, err
}
