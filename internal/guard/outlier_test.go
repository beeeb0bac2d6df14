package guard

import (
	"slices"
	"strings"
	"testing"
)

func TestTheRulesOfOutlierPolicies(t *testing.T) {
	want := []string{
		"outlierpolicy/unparseable-duration Deny always, by the API server too",
		"outlierpolicy/zero-duration Deny always, by the API server too",
		"outlierpolicy/max-below-base Deny always, by the API server too",
		"outlierpolicy/percent-over-100 Deny always, by the API server too",
		"outlierpolicy/nothing-detected Deny always, by the API server too",
		"outlierpolicy/jitter-over-max Deny always, by the API server too",
		"outlierpolicy/ejection-over-a-day Deny always, by the API server too",
		"outlierpolicy/ejects-at-first-error Deny always, by the API server too",
		"outlierpolicy/no-target Deny always, by the API server too",
		"outlierpolicy/same-target Deny on change",
		"outlierpolicy/tcp-undetected Deny on change",
		"outlierpolicy/unreadable-spec Deny on change",
		"outlierpolicy/ejection-over-an-hour Warn always, by the API server too",
		"outlierpolicy/few-errors Warn always, by the API server too",
		"outlierpolicy/local-without-split Warn always, by the API server too",
		"outlierpolicy/disabled-with-detection Warn always, by the API server too",
		"outlierpolicy/interval-over-base Warn always, by the API server too",
		"outlierpolicy/interval-under-a-second Warn always, by the API server too",
		"outlierpolicy/split-misses-hangs Warn always, by the API server too",
		"outlierpolicy/connect-timeout Warn always, by the API server too",
		"outlierpolicy/jitter-over-base Warn always, by the API server too",
		"outlierpolicy/panic-undoes-ejections Warn always, by the API server too",
		"outlierpolicy/ejects-everything Warn on change",
		"outlierpolicy/inert Warn on change",
		"outlierpolicy/target-missing Warn on change",
		"outlierpolicy/target-empty Warn on change",
		"outlierpolicy/target-external Warn on change",
		"outlierpolicy/target-over-tls Warn on change",
		"outlierpolicy/edit-while-ejecting Warn on change",
	}
	if got := rulesOf(t, "OutlierPolicy"); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
