// Package limit holds the caps on how much of a cluster healing may touch at once, and their arithmetic.
package limit

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Limits are the caps in force. A cap holds acts back; it never refuses a policy at run time.
type Limits struct {
	// MaxTaintedNodes caps nodes with taints of ours that keep pods away (NoSchedule, NoExecute), over all sets.
	MaxTaintedNodes Cap
	// MaxEvictingNodes caps nodes with a NoExecute taint of ours.
	MaxEvictingNodes Cap
	// EvictPace is the least time between two nodes of one zone that begin to evict.
	EvictPace time.Duration
	// BreakerPercent and BreakerMin open a policy's breaker when more than BreakerPercent of its targets, and at least
	// BreakerMin, match at once: the cause is then more likely the reporter, the network or us.
	BreakerPercent, BreakerMin int
	// MaxPodDeletionsPerMinute caps the pods deleted in any minute, over all WeederConfigs.
	MaxPodDeletionsPerMinute int
	// MaxScaledDownTargets caps the targets of ProbeConfigs that are scaled down at once, over all of them.
	MaxScaledDownTargets Cap
	// MaxFailingTogether caps the namespaces that ProbeConfigs probe which may turn unhealthy together; more, and at least
	// SuspectMin, open the breaker.
	MaxFailingTogether Cap
	SuspectMin         int
}

// Builtin are the limits of a cluster without Guardrails.
func Builtin() Limits {
	return Limits{
		MaxTaintedNodes:  CapOf(intstr.FromString("10%")),
		MaxEvictingNodes: CapOf(intstr.FromString("5%")),
		EvictPace:        5 * time.Minute,
		BreakerPercent:   20,
		BreakerMin:       3,

		MaxPodDeletionsPerMinute: 60,

		MaxScaledDownTargets: CapOf(intstr.FromString("20%")),
		MaxFailingTogether:   CapOf(intstr.FromString("10%")),
		SuspectMin:           3,
	}
}

// SmallestCluster is the number of nodes from which a percentage allows at least one.
const SmallestCluster = 3

// Of is how many of total a cap allows: a number as it is, a percentage rounded down, but at least 1 from
// SmallestCluster on and 0 below it. A cap that can't be read allows none.
func Of(limit intstr.IntOrString, total int) int {
	if limit.Type == intstr.Int {
		return max(0, limit.IntValue())
	}
	percent, _ := Percent(limit)
	return share(percent, total, total)
}

// share is a percentage of some nodes of the cluster.
func share(percent, nodes, cluster int) int {
	if percent == 0 || nodes == 0 || cluster < SmallestCluster {
		return 0
	}
	return max(1, percent*nodes/100)
}

// Percent reads a percentage from 0% to 100%.
func Percent(limit intstr.IntOrString) (percent int, ok bool) {
	digits, found := strings.CutSuffix(limit.StrVal, "%")
	n, err := strconv.Atoi(digits)
	if limit.Type != intstr.String || !found || err != nil || n < 0 || n > 100 {
		return 0, false
	}
	return n, true
}

// OpensBreaker says whether matching of total targets are more than is plausible.
func (l Limits) OpensBreaker(matching, total int) bool {
	return matching >= l.BreakerMin && matching*100 > l.BreakerPercent*total
}

// ScaledDownTargets is how many of the probed targets may be scaled down at once: at least one, unless the cap is zero. A
// target is a cluster of its own; who has but one or two of them wants these protected, too.
func (l Limits) ScaledDownTargets(probed int) int {
	percent, count := l.MaxScaledDownTargets.Strictest()
	if percent == 0 || count == 0 {
		return 0
	}
	return min(probed, count, max(1, percent*probed/100))
}

// Suspects says whether more of the probed targets turned unhealthy together than is plausible.
func (l Limits) Suspects(turned, probed int) bool {
	percent, count := l.MaxFailingTogether.Strictest()
	return turned >= l.SuspectMin && (turned*100 > percent*probed || turned > count)
}

// None is the number of nodes that an effect without a limit allows.
const None = math.MaxInt32

// Cap is a limit on a number of nodes. Which of a number and a percentage is stricter depends on the cluster's size, so a
// Cap has the strictest of each, and both hold. The zero value allows none. Caps can be compared with ==.
type Cap struct {
	count, percent    int
	counted, percents bool
}

// CapOf is the cap under which all values hold. One that can't be read allows none.
func CapOf(values ...intstr.IntOrString) Cap {
	var c Cap
	for _, v := range values {
		percent, isPercent := Percent(v)
		switch {
		case isPercent && c.percents:
			c.percent = min(c.percent, percent)
		case isPercent:
			c.percent, c.percents = percent, true
		case c.counted:
			c.count = min(c.count, Of(v, 0))
		default:
			c.count, c.counted = Of(v, 0), true
		}
	}
	return c
}

// Of is how many of total the cap allows.
func (c Cap) Of(total int) int { return c.least(total, total) }

// OfZone is how many of a zone's nodes the cap allows. A zone with nodes has at least 1 where the cluster is large enough
// for a percentage to allow any; otherwise three zones of two nodes would never be healed.
func (c Cap) OfZone(zone, cluster int) int { return c.least(zone, cluster) }

func (c Cap) least(nodes, cluster int) int {
	_, least := c.Strictest()
	if c.percents {
		least = min(least, share(c.percent, nodes, cluster))
	}
	return least
}

// Values are the strictest percentage and the strictest number, where there are any.
func (c Cap) Values() []intstr.IntOrString {
	var values []intstr.IntOrString
	if c.percents {
		values = append(values, intstr.FromString(strconv.Itoa(c.percent)+"%"))
	}
	if c.counted {
		values = append(values, intstr.FromInt32(int32(min(c.count, None))))
	}
	return values
}

// Strictest gives both values, 100 and None where there is none.
func (c Cap) Strictest() (percent, count int) {
	percent, count = 100, None
	if c.percents {
		percent = c.percent
	}
	if c.counted || !c.percents {
		count = c.count
	}
	return percent, count
}

// String is what users write, such as 10% or 4; "10% and 4" where both hold.
func (c Cap) String() string {
	var texts []string
	for _, v := range c.Values() {
		texts = append(texts, v.String())
	}
	if len(texts) == 0 {
		return "0"
	}
	return strings.Join(texts, " and ")
}

// Act is one that a limit counts: on which object, where, and when it began.
type Act struct {
	UID        types.UID
	Name, Zone string
	Began      time.Time
}

// Memory remembers acts whatever becomes of the objects that they were done to, or of who asked for them: what is deleted, undone or
// made anew gives back no place under a limit that counts in time. The zero value is empty. Not safe for concurrent use.
type Memory struct {
	acts map[types.UID]Act // the latest of each object
}

// Remember takes in an act. It says whether that is news: of an object, the latest counts. What lies after latest comes from a clock that
// was wrong, or is forged: it is ignored, and hides nothing.
func (m *Memory) Remember(a Act, latest time.Time) (news bool) {
	was, known := m.acts[a.UID]
	known = known && !was.Began.After(latest)
	if a.Began.IsZero() || a.Began.After(latest) || known && !a.Began.After(was.Began) {
		return false
	}
	if m.acts == nil {
		m.acts = map[types.UID]Act{}
	}
	m.acts[a.UID] = a
	return true
}

// Last is when an act last began in a zone, zero for none. What lies after before comes from a clock that was wrong, or is forged,
// and would close a limit for ever.
func (m *Memory) Last(zone string, before time.Time) (last time.Time) {
	for _, a := range m.acts {
		if a.Zone == zone && !a.Began.After(before) && a.Began.After(last) {
			last = a.Began
		}
	}
	return last
}

// Forget drops what began before a time, when no limit counts it any more.
func (m *Memory) Forget(before time.Time) {
	maps.DeleteFunc(m.acts, func(_ types.UID, a Act) bool { return a.Began.Before(before) })
}

// Acts are all that are remembered, the oldest first.
func (m *Memory) Acts() []Act {
	return slices.SortedFunc(maps.Values(m.acts), func(a, b Act) int { return a.Began.Compare(b.Began) })
}
