package detector_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/detector"
)

func settings(t testing.TB, spec string) outlier.Settings {
	t.Helper()
	op := &v1alpha1.OutlierPolicy{}
	if err := yaml.UnmarshalStrict([]byte(spec), &op.Spec); err != nil {
		t.Fatal(err)
	}
	p, err := outlier.NewPolicy(op)
	if err != nil {
		t.Fatal(err)
	}
	return p.Settings
}

func eventLines(events []detector.Event) (lines []string) {
	for _, e := range events {
		line := fmt.Sprintf("%v %s %s", e.At, e.Host, e.Action)
		if e.Cause != "" {
			line += " " + map[detector.Cause]string{"CONSECUTIVE_5XX": "5xx", "CONSECUTIVE_LOCAL_ORIGIN_FAILURE": "local"}[e.Cause]
		}
		if e.For > 0 {
			line += fmt.Sprintf(" for %v", e.For)
		}
		lines = append(lines, line)
	}
	return lines
}

// trace makes one of words: "1 a 503x4 200" is four 503 and a 200 of host a after a second.
func trace(hosts string, words ...string) detector.Trace {
	lines := []string{"time,host,result"}
	for _, host := range strings.Fields(hosts) {
		lines = append(lines, ","+host+",")
	}
	for _, w := range words {
		fields := strings.Fields(w)
		for _, result := range fields[2:] {
			times := 1
			if r, n, many := strings.Cut(result, "x"); many {
				result = r
				_, _ = fmt.Sscan(n, &times)
			}
			for range times {
				lines = append(lines, fields[0]+","+fields[1]+","+result)
			}
		}
	}
	t, err := detector.ReadTrace(strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		panic(err)
	}
	return t
}

func TestSimulate(t *testing.T) {
	for name, test := range map[string]struct {
		spec  string
		trace detector.Trace
		want  []string
	}{
		"one less than the threshold ejects nobody, and a success begins anew": {
			"outlierDetection: {consecutiveServerErrors: 5, maxEjectionPercent: 100}", trace("a b", "1 a 503x4 200 503x4"), nil,
		},
		"the threshold does; the ejection ends at the first sweep after base": {
			"outlierDetection: {consecutiveServerErrors: 5, maxEjectionPercent: 100}", trace("a b", "1 a 503x5"),
			[]string{"1s a Ejected 5xx for 30s", "40s a Returned for 39s"},
		},
		"the second time it is twice as long, and so on up to the maximum": {
			"outlierDetection: {consecutiveServerErrors: 1, maxEjectionPercent: 100, interval: 1s, baseEjectionTime: 10s, maxEjectionTime: 25s}",
			trace("a b", "0 a 500", "10.5 a 500", "30.5 a 500", "56.5 a 500"),
			[]string{
				"0s a Ejected 5xx for 10s", "10s a Returned for 10s", "10.5s a Ejected 5xx for 20s", "31s a Returned for 20.5s",
				"56.5s a Ejected 5xx for 10s", "1m7s a Returned for 10.5s",
			},
		},
		"at once after each return": {
			"outlierDetection: {consecutiveServerErrors: 1, maxEjectionPercent: 100, interval: 1s, baseEjectionTime: 10s, maxEjectionTime: 25s}",
			trace("a b", "0 a 500", "10.5 a 500", "31.5 a 500", "57.5 a 500"),
			[]string{
				"0s a Ejected 5xx for 10s", "10s a Returned for 10s", "10.5s a Ejected 5xx for 20s", "31s a Returned for 20.5s",
				"31.5s a Ejected 5xx for 25s", "57s a Returned for 25.5s", "57.5s a Ejected 5xx for 25s", "1m23s a Returned for 25.5s",
			},
		},
		"each sweep after a return forgives one, but not the one of the return": {
			"outlierDetection: {consecutiveServerErrors: 1, maxEjectionPercent: 100, interval: 10s, baseEjectionTime: 10s}",
			trace("a b", "0 a 500", "11 a 500", "40 a 500", "61 a 500"),
			[]string{
				"0s a Ejected 5xx for 10s", "10s a Returned for 10s", "11s a Ejected 5xx for 20s", "40s a Returned for 29s",
				"40s a Ejected 5xx for 30s", "1m10s a Returned for 30s",
			},
		},
		"10% of two hosts is nobody": {
			"outlierDetection: {alwaysEjectOneHost: false}", trace("a b", "1 a 503x5"), []string{"1s a Spared 5xx"},
		},
		"but for alwaysEjectOneHost, which is one": {
			"outlierDetection: {}", trace("a b", "1 a 503x5", "2 b 503x5"), []string{"1s a Ejected 5xx for 30s", "2s b Spared 5xx", "40s a Returned for 39s"},
		},
		"half of five is two": {
			"outlierDetection: {maxEjectionPercent: 50}", trace("a b c d e", "1 a 503x5", "1 b 503x5", "1 c 503x5"),
			[]string{"1s a Ejected 5xx for 30s", "1s b Ejected 5xx for 30s", "1s c Spared 5xx", "40s a Returned for 39s", "40s b Returned for 39s"},
		},
		"local errors are 5xx unless they are told apart": {
			"outlierDetection: {maxEjectionPercent: 100}", trace("a b", "1 a connect-failurex2 timeoutx2 503"), []string{"1s a Ejected 5xx for 30s", "40s a Returned for 39s"},
		},
		"told apart, an answer of any status is no local failure": {
			"outlierDetection: {maxEjectionPercent: 100, splitExternalLocalOriginErrors: true}", trace("a b", "1 a connect-failurex4 503 connect-failurex5"),
			[]string{"1s a Ejected local for 30s", "40s a Returned for 39s"},
		},
		"told apart, who doesn't answer in time was connected": {
			"outlierDetection: {maxEjectionPercent: 100, splitExternalLocalOriginErrors: true}", trace("a b", "1 a timeoutx20"), nil,
		},
		"told apart, only local ones count when 5xx are off": {
			"outlierDetection: {consecutiveServerErrors: 0, maxEjectionPercent: 100, splitExternalLocalOriginErrors: true}", trace("a b", "1 a 503x5", "2 a connect-failurex5"),
			[]string{"1s a Observed 5xx", "2s a Ejected local for 30s", "40s a Returned for 38s"},
		},
		"bytes alone": {
			"outlierDetection: {maxEjectionPercent: 100}", trace("a b", "1 a connect-failurex4 connected connect-failurex5"), []string{"1s a Ejected 5xx for 30s", "40s a Returned for 39s"},
		},
		"observing counts and ejects nobody": {
			"mode: Observe\noutlierDetection: {maxEjectionPercent: 100}", trace("a b", "1 a 503x10"), []string{"1s a Observed 5xx", "1s a Observed 5xx"},
		},
		"an ejected host's errors are counted, and forgotten at its return": {
			"outlierDetection: {maxEjectionPercent: 100}", trace("a b", "1 a 503x9", "41 a 503x4"), []string{"1s a Ejected 5xx for 30s", "40s a Returned for 39s"},
		},
		"very many sweeps": {
			"outlierDetection: {consecutiveServerErrors: 1, interval: 1ms, baseEjectionTime: 24h, maxEjectionTime: 24h}", trace("a b", "0 a 500"), []string{"0s a Ejected 5xx for 24h0m0s", "24h0m0s a Returned for 24h0m0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, eventLines(detector.Simulate(settings(t, test.spec), test.trace, nil))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestReadTraceSaysWhatIsWrongWhere(t *testing.T) {
	for text, want := range map[string]string{
		"time,host,result\n1,a,200\n2,a,teapot": `read trace: line 3: result "teapot" is no HTTP status, connected, connect-failure or timeout`,
		"x,a,200":                               `line 1: time "x" is neither`,
		"-1s,a,200":                             `line 1: time "-1s" is neither`,
		"1,,200":                                "line 1: a host is missing",
		"1,a":                                   "wrong number of fields",
		"2026-01-01T00:00:01Z,a,200\n2026-01-01T00:00:00Z,a,200": "line 2: time 2026-01-01T00:00:00Z is before the first line's",
		"1,a,200\n2026-01-01T00:00:00Z,a,200":                    "line 2: time 2026-01-01T00:00:00Z is before the first line's, or those before are no moments",
		"time,host,result":                                       "it has no hosts",
	} {
		if _, err := detector.ReadTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	got, err := detector.ReadTrace(strings.NewReader("2026-01-01T00:00:01Z,a,200\n# a comment\n2026-01-01T00:00:03.5Z, b ,timeout"))
	if err != nil || len(got.Samples) != 2 || got.Samples[1].At != 2500*time.Millisecond || got.Samples[1].Host != "b" {
		t.Errorf("%+v, %v", got, err)
	}
}

// drawn is a policy and a trace.
func drawn(t *rapid.T) (outlier.Settings, detector.Trace) {
	pick := func(name string, n ...int32) *int32 { v := rapid.SampledFrom(n).Draw(t, name); return &v }
	flag := func(name string) *bool { v := rapid.Bool().Draw(t, name); return &v }
	text := func(name string, of ...v1alpha1.EjectionTime) v1alpha1.EjectionTime {
		return rapid.SampledFrom(of).Draw(t, name)
	}
	p, err := outlier.NewPolicy(&v1alpha1.OutlierPolicy{Spec: v1alpha1.OutlierPolicySpec{
		Mode: rapid.SampledFrom([]v1alpha1.Mode{"", "", "Observe"}).Draw(t, "mode"),
		OutlierDetection: &v1alpha1.OutlierDetection{
			ConsecutiveServerErrors: pick("errors", 0, 1, 3), SplitExternalLocalOriginErrors: flag("split"), ConsecutiveLocalOriginFailure: pick("local", 0, 1, 2),
			MaxEjectionPercent: pick("percent", 0, 10, 50, 100), AlwaysEjectOneHost: flag("always"), Interval: text("interval", "1s", "10s"),
			BaseEjectionTime: text("base", "5s", "30s"), MaxEjectionTime: text("max", "30s", "2m"), MaxEjectionTimeJitter: text("jitter", "0s", "3s"),
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	tr := detector.Trace{Hosts: []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "hosts")]}
	at := time.Duration(0)
	for range rapid.IntRange(0, 60).Draw(t, "requests") {
		at += time.Duration(rapid.SampledFrom([]int{0, 0, 100, 2500, 40000}).Draw(t, "pause")) * time.Millisecond
		tr.Samples = append(tr.Samples, detector.Sample{At: at, Host: rapid.SampledFrom(tr.Hosts).Draw(t, "host"), Result: rapid.SampledFrom([]detector.Result{
			{Status: 200}, {Status: 503}, {Status: 503}, {Outcome: detector.ConnectFailed}, {Outcome: detector.ConnectFailed}, {Outcome: detector.TimedOut},
		}).Draw(t, "result")})
	}
	return p.Settings, tr
}

// TestWhatHoldsOfEverySimulation: caps, lengths and sweeps, for any policy and any trace.
func TestWhatHoldsOfEverySimulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, tr := drawn(t)
		events := detector.Simulate(s, tr, func(most time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(most/time.Millisecond)).Draw(t, "jitter")) * time.Millisecond
		})
		ejected := map[string]detector.Event{}
		times := map[string]int{}
		last := time.Duration(0)
		for _, e := range events {
			if e.At < last {
				t.Fatalf("%v is before %v", e, last)
			}
			last = e.At
			ejection, isEjected := ejected[e.Host]
			switch e.Action {
			case detector.Ejected:
				times[e.Host]++
				if s.Observe || isEjected || e.Ejections != times[e.Host] {
					t.Fatalf("ejected while observing, twice, or miscounted: %+v", e)
				}
				if ejected[e.Host] = e; len(ejected) > s.Ejectable(len(tr.Hosts)) {
					t.Fatalf("%d of %d hosts are ejected, of at most %d", len(ejected), len(tr.Hosts), s.Ejectable(len(tr.Hosts)))
				}
				if e.For < min(s.BaseEjectionTime(), s.MaxEjectionTime()) || e.For > min(time.Duration(times[e.Host])*s.BaseEjectionTime(), s.MaxEjectionTime())+s.MaxJitter() {
					t.Fatalf("ejected for %v, the %dth time", e.For, times[e.Host])
				}
			case detector.Returned:
				ends, step := ejection.At+ejection.For, s.SweepInterval()
				if !isEjected || e.At%step != 0 || e.At < ends || e.At-step >= ends && e.At-step > ejection.At {
					t.Fatalf("returned at %v; it was ejected at %v for %v, sweeps are every %v", e.At, ejection.At, ejection.For, step)
				}
				delete(ejected, e.Host)
			case detector.Spared:
				if isEjected || len(ejected) < s.Ejectable(len(tr.Hosts)) && !s.Observe && s.ServerErrorThreshold()+s.LocalOriginThreshold() > 0 {
					t.Fatalf("spared, though only %d are ejected: %+v", len(ejected), e)
				}
			}
		}
		if len(ejected) > 0 {
			t.Fatalf("for ever ejected: %v", ejected)
		}
	})
}

// TestNobodyIsEjectedWithoutARunOfErrors: before each ejection its host failed as often as the policy says, without a success.
func TestNobodyIsEjectedWithoutARunOfErrors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, tr := drawn(t)
		for i, e := range detector.Simulate(s, tr, nil) {
			if e.Action != detector.Ejected {
				continue
			}
			run := uint32(0)
			for _, sample := range tr.Samples {
				if sample.Host != e.Host || sample.At > e.At {
					continue
				}
				local := sample.Result.Outcome != detector.Answered
				switch {
				case e.Cause == detector.ConsecutiveLocalOrigin && !local, e.Cause == detector.ConsecutiveServerErrors && !local && sample.Result.Status < 500:
					if sample.At < e.At {
						run = 0
					}
				case e.Cause == detector.ConsecutiveServerErrors && local && s.Split:
				default:
					run++
				}
			}
			want := map[detector.Cause]uint32{detector.ConsecutiveServerErrors: s.ServerErrorThreshold(), detector.ConsecutiveLocalOrigin: s.LocalOriginThreshold()}[e.Cause]
			if want == 0 || run < want {
				t.Fatalf("event %d: %+v after %d errors, want %d", i, e, run, want)
			}
		}
	})
}
