package condition

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Undo plans to take back all that a node's record claims, whatever the policies say: for people who do it by hand, with no
// manager or even no policies left. Reserved keys stay, as ever. Of sets that exist the record keeps what is past, by which
// the next eviction is paced.
func Undo(node *Node, exists func(types.UID) bool, at Moment) Plan {
	plan := PlanNode(Input{
		Node: node, At: at, Precedence: PrecedenceKey,
		Declared:  func(string) bool { return true },
		Withdrawn: func(types.UID) bool { return true },
	})
	plan.Steps = slices.DeleteFunc(plan.Steps, func(s Step) bool { return s.Key == "" && exists(s.Set) })
	for _, past := range pruned(node.Owned.History, at.Now) {
		if exists(past.Set) {
			plan.Owned.History = append(plan.Owned.History, past)
		}
	}
	return plan
}
