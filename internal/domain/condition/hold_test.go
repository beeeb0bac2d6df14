package condition_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/resourcestack/autohealer/internal/domain/condition"
)

func heldUntil(until string) nodeOption {
	return annotated("autohealer.resourcestack.com/hold-until", until)
}

const later = "2026-11-03T14:00:00Z" // two hours after noon

func TestAHeldNodeGetsNothingNewAndIsUndoneAllTheSame(t *testing.T) {
	ours := owning("a", "example.com/k", "NoSchedule", ago(time.Hour))
	heldBack := outcome{holds: []string{"a-uid HoldUntil"}}
	for name, c := range map[string]struct {
		spec string
		node []nodeOption
		want outcome
	}{
		"no taint":           {noSchedule, []nodeOption{kubeletSick, heldUntil(later)}, heldBack},
		"none by garbage":    {noSchedule, []nodeOption{kubeletSick, heldUntil("next week")}, heldBack},
		"none for a century": {noSchedule, []nodeOption{kubeletSick, heldUntil("2126-11-03T14:00:00Z")}, heldBack},
		"no higher effect":   {evictLater, []nodeOption{kernelSick, ours, heldUntil(later)}, heldBack},
		"nothing put back":   {noSchedule, []nodeOption{kubeletSick, claiming("a", "example.com/k", "NoSchedule", ago(time.Hour)), heldUntil(later)}, outcome{steps: []string{"Repair a example.com/k NoSchedule> TaintWasRemoved"}, holds: []string{"a-uid HoldUntil"}}},
		"what recovered":     {noSchedule, []nodeOption{kubeletWell, ours, heldUntil(later)}, outcome{steps: []string{"Untaint a example.com/k NoSchedule> ConditionsRecovered"}}},
		"what matches stays": {noSchedule, []nodeOption{kubeletSick, ours, heldUntil(later)}, outcome{}},
		"a hold that is over": {noSchedule, []nodeOption{kubeletSick, heldUntil("2026-11-03T12:00:00Z")},
			outcome{taints: []string{"example.com/k:NoSchedule"}, claims: []string{"a-uid example.com/k:NoSchedule"}, steps: []string{"Taint a example.com/k >NoSchedule ConditionsMatched"}}},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.check(t, condition.PlanNode(planInput(steady(newNode("n", c.node...)), claimant(t, "a", c.spec, active))))
		})
	}
}

func TestAHoldIsLookedAtAgainWhenItEnds(t *testing.T) {
	plan := condition.PlanNode(planInput(steady(newNode("n", kubeletSick, heldUntil(later))), claimant(t, "a", noSchedule, active)))
	if !plan.RequeueAt.Equal(noon.Add(2 * time.Hour)) {
		t.Errorf("looks again at %s", plan.RequeueAt)
	}
	if want := "the annotation autohealer.resourcestack.com/hold-until keeps Autohealer from it until 2026-11-03T14:00:00Z"; plan.Holds[0].Message != want {
		t.Errorf("says %s", plan.Holds[0].Message)
	}
}

func TestAHeldNodeTakesNobodysPlaceUnderALimit(t *testing.T) {
	m := manage(t, calm("1", "1"), workers(10, kubeletSick), newSet(t, "a", noSchedule))
	m.see("w00", heldUntil(later)) // it has waited longest, by its name
	for _, n := range workers(10) {
		m.settle(n.Name)
	}
	if got := m.tainted("example.com/k"); len(got) != 1 || got[0] == "w00" {
		t.Errorf("tainted: %v", got)
	}
	m.see("w00", func(n *corev1.Node) { delete(n.Annotations, "autohealer.resourcestack.com/hold-until") })
	m.settle("w00")
	if sum, _ := m.fleet.Summary("a-uid", moment(m.now)); sum.Holds["HoldUntil"].Nodes != 0 || sum.Holds["LimitReached"].Nodes != 9 {
		t.Errorf("held back: %v", sum.Holds)
	}
}

func TestEachReasonToHoldBackIsDocumentedWithWhatToDo(t *testing.T) {
	source, err := os.ReadFile("plan.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "concepts", "condition-sets.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Why a node is held back")
	section, _, _ = strings.Cut(section, "\n## ")
	reasons := regexp.MustCompile(`HeldBy\w+ +Reason = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if len(reasons) < 10 {
		t.Fatalf("found %d reasons", len(reasons))
	}
	for _, reason := range reasons {
		if !strings.Contains(section, "`"+reason[1]+"`") {
			t.Errorf("%s isn't in the docs", reason[1])
		}
	}
}
