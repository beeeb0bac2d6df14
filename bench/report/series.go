package report

import (
	"fmt"
	"slices"
	"time"
)

// Quantile gives the value below which the share q of the samples lies; 0 without samples.
func Quantile(samples []time.Duration, q float64) time.Duration {
	if len(samples) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

// Milliseconds with three digits.
func Milliseconds(d time.Duration) string { return fmt.Sprintf("%.3g ms", d.Seconds()*1000) }

// Seconds with one digit after the point.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// KiB with one digit after the point.
func KiB(bytes int) string { return fmt.Sprintf("%.1f KiB", float64(bytes)/1024) }

// P50P99 are both quantiles in one cell.
func P50P99(samples []time.Duration) string {
	return Milliseconds(Quantile(samples, .5)) + ", " + Milliseconds(Quantile(samples, .99))
}

// Series is one figure measured in several rounds. Machines are noisy: the median is quoted, the spread shown.
type Series []float64

// Median lies in the middle; 0 when nothing was measured.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// Text is the median and, of several rounds, the least and the greatest.
func (s Series) Text(format string) string {
	if len(s) == 0 {
		return "–"
	}
	median := fmt.Sprintf(format, s.Median())
	if len(s) == 1 {
		return median
	}
	return fmt.Sprintf("%s ("+format+"–"+format+")", median, slices.Min(s), slices.Max(s))
}

// Over divides round by round, so that a machine whose speed drifts doesn't.
func (s Series) Over(reference Series) Series {
	var ratios Series
	for i := range min(len(s), len(reference)) {
		ratios = append(ratios, s[i]/reference[i])
	}
	return ratios
}

// Rounds are the quantiles of each round, in a unit.
type Rounds struct {
	Unit     time.Duration
	P50, P99 Series
}

// Add takes in the samples of one round.
func (r *Rounds) Add(samples []time.Duration) {
	r.P50 = append(r.P50, float64(Quantile(samples, .5))/float64(r.Unit))
	r.P99 = append(r.P99, float64(Quantile(samples, .99))/float64(r.Unit))
}
