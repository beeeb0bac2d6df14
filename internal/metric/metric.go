// Package metric has what all metrics of the product need beside prometheus.
package metric

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Register adds metrics to the manager's registry. What is there already is shared: by several managers, servers or kinds of one
// process.
func Register(collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := metrics.Registry.Register(c); err != nil && !errors.As(err, &prometheus.AlreadyRegisteredError{}) {
			return fmt.Errorf("register a metric: %w", err)
		}
	}
	return nil
}

// AtZero gives a counter a series at 0 for each combination of values, which are in the order of its labels: Prometheus' increase() and
// rate() see nothing of what a series begins with, so of one that began at 1 they would miss the first event.
func AtZero(counter *prometheus.CounterVec, values ...[]string) {
	combinations := [][]string{nil}
	for _, of := range values {
		var longer [][]string
		for _, combination := range combinations {
			for _, value := range of {
				longer = append(longer, append(slices.Clip(combination), value))
			}
		}
		combinations = longer
	}
	for _, combination := range combinations {
		counter.WithLabelValues(combination...)
	}
}

// Bool is a gauge's value for what holds or doesn't: 1 or 0.
func Bool(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// Vector is a metric with labels.
type Vector interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

// Forget drops the series with these labels: of what is gone.
func Forget(labels prometheus.Labels, of ...Vector) {
	for _, v := range of {
		v.DeletePartialMatch(labels)
	}
}
