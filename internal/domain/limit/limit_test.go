package limit_test

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

func TestHowManyNodesACapAllows(t *testing.T) {
	tests := []struct {
		name  string
		limit string
		total int
		want  int
	}{
		{"a percentage rounds down", "10%", 29, 2},
		{"a percentage of a round number", "10%", 30, 3},
		{"five of a hundred", "5%", 100, 5},
		{"five of a hundred and nineteen", "5%", 119, 5},
		{"a small cluster allows one", "10%", 9, 1},
		{"three nodes allow one", "5%", 3, 1},
		{"two nodes allow none", "10%", 2, 0},
		{"one node allows none, whatever the percentage", "100%", 1, 0},
		{"no nodes allow none", "10%", 0, 0},
		{"nothing per cent is none, also of many", "0%", 5000, 0},
		{"all", "100%", 40, 40},
		{"a number is as it is", "7", 5, 7},
		{"a number is as it is in a tiny cluster", "1", 1, 1},
		{"zero", "0", 100, 0},
		{"a negative number allows none", "-3", 100, 0},
		{"what can't be read allows none", "many", 100, 0},
		{"more than all can't be read", "101%", 100, 0},
		{"a fraction can't be read", "2.5%", 100, 0},
		{"a sign alone can't be read", "%", 100, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := limit.Of(intstr.Parse(tt.limit), tt.total); got != tt.want {
				t.Errorf("%s of %d is %d, want %d", tt.limit, tt.total, got, tt.want)
			}
		})
	}
}

func TestHowManyNodesOfAZoneACapAllows(t *testing.T) {
	tests := []struct {
		name          string
		limit         string
		zone, cluster int
		want          int
	}{
		{"a zone's own share", "10%", 30, 100, 3},
		{"a small zone of a cluster that is large enough", "10%", 1, 100, 1},
		{"two nodes in each of three zones", "10%", 2, 6, 1},
		{"a zone without nodes", "10%", 0, 100, 0},
		{"a cluster that is too small", "10%", 1, 2, 0},
		{"nothing per cent", "0%", 30, 100, 0},
		{"a number holds in each zone", "4", 3, 100, 4},
		{"what can't be read", "many", 30, 100, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := limit.CapOf(intstr.Parse(tt.limit)).OfZone(tt.zone, tt.cluster); got != tt.want {
				t.Errorf("%s of a zone of %d in %d is %d, want %d", tt.limit, tt.zone, tt.cluster, got, tt.want)
			}
		})
	}
}

func TestNoPercentageAllowsMoreThanItsShareButForTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		percent, total := rapid.IntRange(0, 100).Draw(t, "percent"), rapid.IntRange(0, 20000).Draw(t, "total")
		got := limit.Of(intstr.FromString(fmt.Sprintf("%d%%", percent)), total)
		if got > 1 && got*100 > percent*total || got < 0 || got > total {
			t.Fatalf("%d%% of %d is %d", percent, total, got)
		}
	})
}

func TestWhenABreakerOpens(t *testing.T) {
	tests := []struct {
		name            string
		matching, total int
		want            bool
	}{
		{"more than a fifth, and three", 3, 14, true},
		{"a fifth exactly", 3, 15, false},
		{"two of two", 2, 2, false},
		{"three of three", 3, 3, true},
		{"many, but a small share", 1000, 5000, false},
		{"one more", 1001, 5000, true},
		{"none of none", 0, 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := limit.Builtin().OpensBreaker(tt.matching, tt.total); got != tt.want {
				t.Errorf("%d of %d opens: %t, want %t", tt.matching, tt.total, got, tt.want)
			}
		})
	}
}

func TestHowManyTargetsMayBeScaledDown(t *testing.T) {
	tests := []struct {
		name   string
		cap    string
		probed int
		want   int
	}{
		{"a fifth", "20%", 50, 10},
		{"it rounds down", "20%", 14, 2},
		{"one of four", "20%", 4, 1},
		{"one of two", "20%", 2, 1},
		{"the only one", "20%", 1, 1},
		{"none of none", "20%", 0, 0},
		{"both of two", "100%", 2, 2},
		{"nothing per cent", "0%", 50, 0},
		{"a number", "3", 50, 3},
		{"zero", "0", 1, 0},
		{"what can't be read", "many", 50, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			limits := limit.Limits{MaxScaledDownTargets: limit.CapOf(intstr.Parse(tt.cap))}
			if got := limits.ScaledDownTargets(tt.probed); got != tt.want {
				t.Errorf("%s of %d is %d, want %d", tt.cap, tt.probed, got, tt.want)
			}
		})
	}
}

func TestWhenProbesAreSuspect(t *testing.T) {
	for _, tt := range []struct {
		turned, probed int
		want           bool
	}{{2, 2, false}, {3, 3, true}, {3, 29, true}, {3, 30, false}, {100, 1000, false}, {101, 1000, true}, {0, 0, false}} {
		if got := limit.Builtin().Suspects(tt.turned, tt.probed); got != tt.want {
			t.Errorf("%d of %d: %t, want %t", tt.turned, tt.probed, got, tt.want)
		}
	}
}

func TestTheBuiltinLimits(t *testing.T) {
	got := limit.Builtin()
	if got.MaxTaintedNodes.String() != "10%" || got.MaxEvictingNodes.String() != "5%" || got.EvictPace != 5*time.Minute || got.BreakerPercent != 20 || got.BreakerMin != 3 ||
		got.MaxScaledDownTargets.String() != "20%" || got.MaxFailingTogether.String() != "10%" || got.SuspectMin != 3 {
		t.Errorf("built-in limits %+v, want 10%%, 5%%, one in 5m a zone, breaker over 20%% and at least 3", got)
	}
}
