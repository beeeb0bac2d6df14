package guard

import "fmt"

// costs are sums of what expressions cost. Questions to the authorizer count by themselves: CEL gives each a price that
// nothing else comes near.
type costs struct {
	units, checks uint64
}

func (c *costs) add(p program) { c.addUnits(p.cost) }

func (c *costs) addUnits(units uint64) {
	c.checks += units / checkCost
	c.units += units % checkCost
}

// excess says what is too much, "" when nothing is.
func (c *costs) excess() string {
	switch {
	case c.units > maxRequestCost:
		return fmt.Sprintf("may cost %d, at most %d allowed", c.units, uint64(maxRequestCost))
	case c.checks > maxRequestChecks:
		return fmt.Sprintf("may ask the authorizer %d times, at most %d allowed", c.checks, uint64(maxRequestChecks))
	}
	return ""
}

// take spends what was left.
func (c *costs) take(units uint64) {
	var spent costs
	spent.addUnits(units)
	c.units -= min(c.units, spent.units)
	c.checks -= min(c.checks, spent.checks)
}
