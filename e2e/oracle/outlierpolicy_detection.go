package oracle

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

// detection is how Envoy detects outliers in a cluster, as Envoy writes it. What it lacks is Envoy's default.
type detection struct {
	ServerErrors             *int64 `json:"consecutive_5xx"`
	EnforcedServerErrors     *int64 `json:"enforcing_consecutive_5xx"`
	Split                    bool   `json:"split_external_local_origin_errors"`
	EnforcedLocalFailures    *int64 `json:"enforcing_consecutive_local_origin_failure"`
	EnforcedSuccessRate      *int64 `json:"enforcing_success_rate"`
	EnforcedLocalSuccessRate *int64 `json:"enforcing_local_origin_success_rate"`
	EnforcedGatewayFailures  *int64 `json:"enforcing_consecutive_gateway_failure"`
	Percent                  *int64 `json:"max_ejection_percent"`
	Interval                 string `json:"interval"`
	Base                     string `json:"base_ejection_time"`
	Max                      string `json:"max_ejection_time"`
	Jitter                   string `json:"max_ejection_time_jitter"`
}

func parseDetection(text []byte) (*detection, error) {
	d := &detection{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("read how Envoy detects outliers: %w", err)
	}
	return d, nil
}

// ejects says whether a host can be ejected by it; else Envoy only counts.
func (d *detection) ejects() bool {
	return ptr.Deref(d.EnforcedServerErrors, 100) != 0 || d.Split && ptr.Deref(d.EnforcedLocalFailures, 100) != 0
}

// byRates says whether it ejects by what no OutlierPolicy can ask for.
func (d *detection) byRates() bool {
	return ptr.Deref(d.EnforcedSuccessRate, 100) != 0 || d.Split && ptr.Deref(d.EnforcedLocalSuccessRate, 100) != 0 || ptr.Deref(d.EnforcedGatewayFailures, 0) != 0
}

// detecting is what is judged of an OutlierPolicy's spec.
type detecting struct {
	Disabled         bool
	Mode             string
	TargetRefs       []struct{}
	OutlierDetection struct {
		ConsecutiveServerErrors, MaxEjectionPercent                        *int64
		SplitExternalLocalOriginErrors                                     bool
		Interval, BaseEjectionTime, MaxEjectionTime, MaxEjectionTimeJitter string
	}
}

func detectingOf(policy *unstructured.Unstructured) (d detecting, err error) {
	encoded, err := json.Marshal(policy.Object["spec"])
	if err != nil {
		return d, err
	}
	return d, json.Unmarshal(encoded, &d)
}

// differs says what a spec doesn't say; "" when it has Envoy do this very thing.
func (d *detection) differs(spec detecting) string {
	asked := spec.OutlierDetection
	switch {
	case spec.Disabled:
		return "it is disabled"
	case d.byRates():
		return "hosts are ejected by success rates or gateway failures"
	case spec.Mode == "Observe" && d.ejects():
		return "it only observes"
	case d.Split != asked.SplitExternalLocalOriginErrors:
		return fmt.Sprintf("local errors are split: %t, not %t", d.Split, asked.SplitExternalLocalOriginErrors)
	}
	for _, n := range []struct {
		what      string
		is, asked *int64
	}{{"server errors", d.ServerErrors, asked.ConsecutiveServerErrors}, {"maximum percentage", d.Percent, asked.MaxEjectionPercent}} {
		if ptr.Deref(n.is, 0) != ptr.Deref(n.asked, 0) {
			return fmt.Sprintf("the %s is %d, not %d", n.what, ptr.Deref(n.is, 0), ptr.Deref(n.asked, 0))
		}
	}
	for _, t := range []struct{ what, is, asked string }{
		{"interval", d.Interval, asked.Interval}, {"first ejection", d.Base, asked.BaseEjectionTime},
		{"longest ejection", d.Max, asked.MaxEjectionTime}, {"jitter", d.Jitter, asked.MaxEjectionTimeJitter},
	} {
		if lengthOf(t.is) != lengthOf(t.asked) {
			return fmt.Sprintf("the %s is %q, not %q", t.what, t.is, t.asked)
		}
	}
	return ""
}

// lengthOf reads a duration of Envoy's or of ours, which are admitted only as Go writes them; zero for none.
func lengthOf(text string) time.Duration {
	length, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return length
}
