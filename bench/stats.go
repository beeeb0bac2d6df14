package main

import (
	"fmt"
	"slices"
	"time"
)

// quantile gives the value below which the share q of the samples lies; 0 without samples.
func quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// series is one figure measured in several rounds. Machines are noisy: the median is quoted, the spread shown.
type series []float64

func (s series) median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// text is the median and, of several rounds, the least and the greatest.
func (s series) text(format string) string {
	if len(s) == 0 {
		return "–"
	}
	median := fmt.Sprintf(format, s.median())
	if len(s) == 1 {
		return median
	}
	return fmt.Sprintf("%s ("+format+"–"+format+")", median, slices.Min(s), slices.Max(s))
}

// over divides round by round, so that a machine whose speed drifts doesn't.
func (s series) over(reference series) series {
	var ratios series
	for i := range min(len(s), len(reference)) {
		ratios = append(ratios, s[i]/reference[i])
	}
	return ratios
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.3g ms", d.Seconds()*1000)
}
