package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/bench/testbed"
)

const (
	// floodClients send Guardrails, each the next as soon as one is answered.
	floodClients = 8
	// newRules are in each of these Guardrails, so that all must be compiled.
	newRules = 25
	// ordinaryPerSecond creations are measured meanwhile, which the API server keeps up with.
	ordinaryPerSecond = 50
)

// flood measures what ordinary creations wait for while the webhook judges Guardrails, which takes much longer: rules must be
// compiled.
func (b *Bench) flood(ctx context.Context, c *creator) error {
	b.Say("%d creations a second while %d clients send Guardrails", ordinaryPerSecond, floodClients)
	quiet, flooded := report.Rounds{Unit: time.Millisecond}, report.Rounds{Unit: time.Millisecond}
	ordinary := func(ctx context.Context, into *report.Rounds) error {
		_, latencies, err := testbed.Timed(ctx, int(b.FloodFor.Seconds())*ordinaryPerSecond, ordinaryPerSecond, func(ctx context.Context, _ int) error {
			return c.create(ctx, armWebhook)
		})
		into.Add(latencies)
		return err
	}
	var judged, refused atomic.Int64
	var took time.Duration
	for range b.Rounds {
		if err := ordinary(ctx, &quiet); err != nil {
			return err
		}
		began := time.Now()
		if err := c.whileFlooded(ctx, &judged, &refused, func(ctx context.Context) error { return ordinary(ctx, &flooded) }); err != nil {
			return err
		}
		took += time.Since(began)
	}
	what := fmt.Sprintf("creation while Guardrails of %d new rules flood the webhook, against none, ms, ", newRules)
	b.Report.Ratio(what+"p50", "%.1f", flooded.P50, quiet.P50, nil)
	b.Report.Ratio(what+"p99", "%.1f", flooded.P99, quiet.P99, nil)
	b.Report.Value(fmt.Sprintf("Guardrails of %d new rules judged meanwhile; refused, though nothing is wrong with them", newRules),
		fmt.Sprintf("%.1f a second; %d of %d", float64(judged.Load())/took.Seconds(), refused.Load(), judged.Load()))
	return nil
}

// whileFlooded does something while Guardrails are sent.
func (c *creator) whileFlooded(ctx context.Context, judged, refused *atomic.Int64, do func(context.Context) error) error {
	var over atomic.Bool
	return testbed.EachOf(ctx, floodClients+1, floodClients+1, func(ctx context.Context, i int) error {
		if i == floodClients {
			defer over.Store(true)
			return do(ctx)
		}
		for !over.Load() {
			body, err := guardrail(judged.Add(1))
			if err != nil {
				return err
			}
			err = c.send(ctx, "guardrails", body)
			switch {
			case apierrors.IsForbidden(err):
				refused.Add(1)
			case err != nil:
				return fmt.Errorf("create a Guardrail: %w", err)
			}
		}
		return nil
	})
}

// guardrail has rules that no other has.
func guardrail(number int64) ([]byte, error) {
	rail := &v1alpha1.Guardrail{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Guardrail"},
		ObjectMeta: metav1.ObjectMeta{Name: "flood", Labels: map[string]string{armLabel: armWebhook}},
	}
	for i := range newRules {
		rail.Spec.Rules = append(rail.Spec.Rules, v1alpha1.GuardrailRule{
			Name: fmt.Sprintf("rule-%d", i), Kinds: []string{"ConditionSet"},
			Expression:        fmt.Sprintf("!variables.evicts || object.spec.taintKey.startsWith('example.com/') || object.metadata.name == 'n%d-%d'", number, i),
			MessageExpression: "'write a key of ours, not ' + object.spec.taintKey",
		})
	}
	body, err := json.Marshal(rail)
	if err != nil {
		return nil, fmt.Errorf("encode a Guardrail: %w", err)
	}
	return body, nil
}
