package limit

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
)

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

func (c Cap) least(part, cluster int) int {
	_, least := c.Strictest()
	if c.percents {
		least = min(least, share(c.percent, part, cluster))
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
