package oracle

import (
	"cmp"
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

	text string
}

func parseDetection(text []byte) (*detection, error) {
	d := &detection{text: string(text)}
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

// differs says what an OutlierPolicy doesn't say; "" when it has Envoy do this very thing.
func (d *detection) differs(policy *unstructured.Unstructured) string {
	var spec struct {
		Disabled         bool
		Mode             string
		OutlierDetection struct {
			ConsecutiveServerErrors, MaxEjectionPercent                        *int64
			SplitExternalLocalOriginErrors                                     bool
			Interval, BaseEjectionTime, MaxEjectionTime, MaxEjectionTimeJitter string
		}
	}
	encoded, err := json.Marshal(policy.Object["spec"])
	if err = cmp.Or(err, json.Unmarshal(encoded, &spec)); err != nil {
		return fmt.Sprintf("its spec can't be read: %v", err)
	}
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
	for _, is := range []struct{ what, is, asked string }{
		{"number of server errors", numberOf(d.ServerErrors), numberOf(asked.ConsecutiveServerErrors)},
		{"maximum percentage", numberOf(d.Percent), numberOf(asked.MaxEjectionPercent)},
		{"interval", lengthOf(d.Interval), lengthOf(asked.Interval)},
		{"first ejection", lengthOf(d.Base), lengthOf(asked.BaseEjectionTime)},
		{"longest ejection", lengthOf(d.Max), lengthOf(asked.MaxEjectionTime)},
		{"jitter", lengthOf(d.Jitter), lengthOf(asked.MaxEjectionTimeJitter)},
	} {
		if is.is != is.asked {
			return fmt.Sprintf("the %s is %s, not %s", is.what, is.is, is.asked)
		}
	}
	return ""
}

func numberOf(n *int64) string { return fmt.Sprint(ptr.Deref(n, 0)) }

// lengthOf reads a duration of Envoy's or of ours, which are admitted only as Go writes them; none is zero.
func lengthOf(text string) string {
	length, err := time.ParseDuration(text)
	if err != nil && text != "" {
		return text
	}
	return length.String()
}
