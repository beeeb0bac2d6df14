package report

import (
	"testing"
	"time"
)

func TestQuantile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Millisecond)
	}
	for _, c := range []struct {
		name    string
		samples []time.Duration
		q       float64
		want    time.Duration
	}{
		{"half of a hundred lie below the 51st", hundred, .5, 51 * time.Millisecond},
		{"99 of a hundred lie below the last", hundred, .99, 100 * time.Millisecond},
		{"the whole of one sample is that sample", hundred[:1], 1, 100 * time.Millisecond},
		{"no samples have no quantile", nil, .5, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Quantile(c.samples, c.q); got != c.want {
				t.Errorf("quantile %v is %v, want %v", c.q, got, c.want)
			}
		})
	}
}

func TestSeries(t *testing.T) {
	for _, c := range []struct {
		name   string
		series Series
		want   string
	}{
		{"several rounds show their spread", Series{3, 1, 2}, "2.0 (1.0–3.0)"},
		{"an even number of rounds has its median between two", Series{1, 2, 3, 8}, "2.5 (1.0–8.0)"},
		{"one round has no spread", Series{4}, "4.0"},
		{"nothing measured is said so", nil, "–"},
		{"ratios are taken round by round", Series{2, 9}.Over(Series{1, 3}), "2.5 (2.0–3.0)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.series.Text("%.1f"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
