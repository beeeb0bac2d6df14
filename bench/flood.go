package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

const (
	// floods is how many clients send Guardrails, each the next as soon as one is answered.
	floods = 8
	// rulesOfFlood are new in each of these Guardrails, so that all must be compiled.
	rulesOfFlood = 25
	// ordinaryPerSecond creations are measured meanwhile.
	ordinaryPerSecond = 50
)

// flood measures what ordinary creations wait for while the webhook judges Guardrails, which takes much longer: rules must be
// compiled.
func (b *bench) flood(ctx context.Context, a *asker) error {
	b.say("%d creations a second while %d clients send Guardrails", ordinaryPerSecond, floods)
	quiet, flooded := quantiles{unit: time.Millisecond}, quantiles{unit: time.Millisecond}
	var judged, refused atomic.Int64
	var took time.Duration
	for range b.size.rounds {
		if err := b.ordinary(ctx, a, &quiet); err != nil {
			return err
		}
		began := time.Now()
		if err := b.whileFlooded(ctx, a, &judged, &refused, func(ctx context.Context) error { return b.ordinary(ctx, a, &flooded) }); err != nil {
			return err
		}
		took += time.Since(began)
	}
	for _, of := range []struct {
		what           string
		ours, ordinary series
	}{{"p50", flooded.p50, quiet.p50}, {"p99", flooded.p99, quiet.p99}} {
		b.report.ratio(row{what: fmt.Sprintf("creation while Guardrails of %d new rules flood the webhook, against none, ms, %s", rulesOfFlood, of.what),
			ours: of.ours.text("%.1f"), reference: of.ordinary.text("%.1f"), ratio: of.ours.over(of.ordinary)})
	}
	b.report.absolute(row{what: fmt.Sprintf("Guardrails of %d new rules judged meanwhile; refused, though nothing is wrong with them", rulesOfFlood),
		ours: fmt.Sprintf("%.1f a second; %d of %d", float64(judged.Load())/took.Seconds(), refused.Load(), judged.Load())})
	return nil
}

// ordinary measures creations at a pace that the API server keeps up with.
func (b *bench) ordinary(ctx context.Context, a *asker, into *quantiles) error {
	latencies := make([]time.Duration, int(b.size.flood.Seconds())*ordinaryPerSecond)
	err := paced(ctx, len(latencies), ordinaryPerSecond, func(ctx context.Context, i int) (err error) {
		latencies[i], err = a.create(ctx, armWebhook)
		return err
	})
	into.add(latencies)
	return err
}

// whileFlooded does something while Guardrails are sent.
func (b *bench) whileFlooded(ctx context.Context, a *asker, judged, refused *atomic.Int64, do func(context.Context) error) error {
	var over atomic.Bool
	return eachOf(ctx, floods+1, floods+1, func(ctx context.Context, i int) error {
		if i == floods {
			defer over.Store(true)
			return do(ctx)
		}
		for !over.Load() {
			body, err := guardrailOf(judged.Add(1))
			if err != nil {
				return err
			}
			err = a.client.Post().Resource("guardrails").Param("dryRun", metav1.DryRunAll).Body(body).Do(ctx).Error()
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

// guardrailOf has rules that no other has.
func guardrailOf(number int64) ([]byte, error) {
	rail := &v1alpha1.Guardrail{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Guardrail"},
		ObjectMeta: metav1.ObjectMeta{Name: "flood", Labels: map[string]string{armLabel: armWebhook}},
	}
	for i := range rulesOfFlood {
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
