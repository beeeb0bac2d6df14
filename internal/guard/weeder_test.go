package guard

import (
	"slices"
	"strings"
	"testing"
)

// rulesOf lists a kind's rules with severity and when they are judged.
func rulesOf(t *testing.T, kind string) []string {
	t.Helper()
	var got []string
	for _, rule := range newTestGuard(t, nil).Rules(kind) {
		when := "on change"
		switch {
		case rule.Portable && rule.AtRunTime:
			when = "always, by the API server too"
		case rule.AtRunTime:
			when = "always"
		}
		got = append(got, rule.ID+" "+string(rule.Severity)+" "+when)
	}
	return got
}

func TestTheRulesOfWeederConfigs(t *testing.T) {
	want := []string{
		"weederconfig/no-services Deny always, by the API server too",
		"weederconfig/no-pod-selectors Deny always, by the API server too",
		"weederconfig/empty-pod-selector Deny always, by the API server too",
		"weederconfig/negative-pod-selector Deny always, by the API server too",
		"weederconfig/invalid-pod-selector Deny always",
		"weederconfig/contradictory-pod-selector Deny always",
		"weederconfig/service-name Deny always, by the API server too",
		"weederconfig/watch-duration Deny always, by the API server too",
		"weederconfig/short-watch Warn always, by the API server too",
		"weederconfig/budgets Deny always, by the API server too",
		"weederconfig/cooldown Deny always, by the API server too",
		"weederconfig/namespace-selector-of-tenant Deny always",
		"weederconfig/account-may-not-delete Deny always",
		"weederconfig/unreadable-spec Deny always",
		"weederconfig/selects-own-pods Deny on change",
		"weederconfig/dependency-cycle Deny on change",
		"weederconfig/selects-autohealer Deny on change",
		"weederconfig/selects-ownerless-pods Warn on change",
		"weederconfig/selects-mirror-pods Warn on change",
		"weederconfig/selects-job-pods Warn on change",
		"weederconfig/shared-pods Warn on change",
		"weederconfig/selects-most-pods Warn on change",
		"weederconfig/selects-quorum Warn on change",
		"weederconfig/service-missing Warn on change",
		"weederconfig/service-without-selector Warn on change",
		"weederconfig/service-external Warn on change",
		"weederconfig/service-publishes-not-ready Warn on change",
	}
	if got := rulesOf(t, "WeederConfig"); !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
}
