package registration

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/sample"
)

// Forecast is what a registration would make of its targets, and what else concerns it. Rules read all but Items.
type Forecast struct {
	// Targets are the selected objects among those that were read, Looked those of them that were looked at. AllRead: no
	// others exist.
	Targets, Looked int
	AllRead         bool
	// WouldFail counts targets with a condition that would turn False, WouldFailTargets tells of some. WouldBeDoubted counts
	// those where the breaker wouldn't believe it.
	WouldFail        int
	WouldFailTargets []string
	WouldBeDoubted   int
	// WouldBeUnknown counts targets with a condition that would be Unknown, since an expression of a check can't be evaluated,
	// WouldBeUnknownTargets tells of some.
	WouldBeUnknown        int
	WouldBeUnknownTargets []string
	// ForeignConditions are some that are on targets already and someone else's.
	ForeignConditions []string
	// UnknownKinds aren't served; UnreadableKinds Autohealer may not read.
	UnknownKinds, UnreadableKinds []string
	// Unwritable says why targets take no conditions; "" when they do.
	Unwritable string
	// TypeErrors are the parts of expressions that fail for every object, by the types of what they read; UndefinedFields those that they
	// read and that the kinds' schemas don't have.
	TypeErrors, UndefinedFields []string
	// OtherShapes are condition types that another registration writes to the same kind in another shape.
	OtherShapes []string
	// Cycles are ways by which conditions depend on themselves.
	Cycles []string
	// StatuslessChecks judge by status what has none of the conditions that kstatus reads; each with its objects' kind and conditions.
	StatuslessChecks []string
	// Workerless are some targets without workers, for which EveryNodeReady would be decided.
	Workerless []string
	// UnsafeKubeconfigs are some Secrets of shoots, each with what is wrong.
	UnsafeKubeconfigs []string

	// Items tell people the same of each target that was looked at.
	Items Items
}

// Items are what a registration would make of each target.
type Items struct {
	// Targets that were looked at, the worst first; More says that not all objects of the kind were read.
	Targets []TargetForecast
	More    bool
	// Failing counts targets with a condition that is False already, Writes the conditions that would be written.
	Failing, Writes int
	// Untyped is why the types of some fields that expressions read can't be told; nil when they can.
	Untyped error
}

// NotKnown is why it isn't known what a field of the forecast would be, by its name; nil when it is.
func (f Forecast) NotKnown(field string) error {
	if field == "TypeErrors" && len(f.TypeErrors) == 0 || field == "UndefinedFields" && len(f.UndefinedFields) == 0 {
		return f.Items.Untyped
	}
	return nil
}

// Plan plans targets one after the other, with one breaker over all: targets is how many the registration has among the objects
// that were read, and more says that there are others. Open is its breaker, nil while that is closed.
func (f *Forecast) Plan(circumstances []TargetInput, targets int, more bool, open *limit.Opening, now time.Time) {
	var flips health.Breaker
	if open != nil {
		flips.Restore(open)
	}
	for _, c := range circumstances {
		name := types.NamespacedName{Namespace: c.Target.GetNamespace(), Name: c.Target.GetName()}.String()
		c.AllowFalse = func(place int, conditionType string, doubted, counts bool) bool {
			switch {
			case place > 0:
				return !c.Registrations[place].BreakerOpen
			case more && open == nil: // of how many targets too many are a share isn't known
				return true
			case !counts:
				_, open := flips.Opening()
				return !open
			}
			return flips.AllowFalse(name, conditionType, doubted, targets, now)
		}
		f.Items.Targets = append(f.Items.Targets, c.Forecast(now))
	}
	slices.SortStableFunc(f.Items.Targets, func(a, b TargetForecast) int {
		return cmp.Or(cmp.Compare(slices.Index(worstFirst, a.Worst()), slices.Index(worstFirst, b.Worst())),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	f.Targets, f.Looked, f.Items.More, f.AllRead = targets, len(circumstances), more, !more
	for i := range f.Items.Targets {
		f.count(&f.Items.Targets[i])
	}
}

// count takes in what the items say.
func (f *Forecast) count(t *TargetForecast) {
	name := strings.TrimPrefix(t.Namespace+"/"+t.Name, "/")
	fails, held, failing, unknown := 0, 0, 0, 0
	for i := range t.Conditions {
		c := &t.Conditions[i]
		if c.Foreign {
			sample.Once(&f.ForeignConditions, c.Type+" of "+name)
		} else if c.Now == health.False {
			failing = 1
		}
		if c.Fails() {
			fails = 1
			sample.Once(&f.WouldFailTargets, name+": "+c.Type+" "+strings.TrimRight(c.Verdict.Message, "."))
		}
		if c.Held {
			held = 1
		}
		if c.Faulty() {
			unknown = 1
			sample.Once(&f.WouldBeUnknownTargets, name+": "+c.Type+" "+strings.TrimRight(c.Verdict.Message, "."))
		}
		if c.Writes {
			f.Items.Writes++
		}
	}
	f.WouldFail, f.WouldBeDoubted, f.Items.Failing = f.WouldFail+fails, f.WouldBeDoubted+held, f.Items.Failing+failing
	f.WouldBeUnknown += unknown
}
