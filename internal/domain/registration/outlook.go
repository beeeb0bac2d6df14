package registration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/health"
	"github.com/resourcestack/autohealer/internal/domain/limit"
)

// Outlook is what a registration would make of its targets.
type Outlook struct {
	// Targets are the objects that it selects among those that were read; More says that not all were read.
	Targets int
	More    bool
	// Forecasts of the targets that were looked at, the worst first.
	Forecasts []TargetForecast
	// Fails counts targets with a condition that would turn False, Held those where the breaker wouldn't believe it, and
	// Failing those with one that is False already.
	Fails, Held, Failing int
	// Writes counts the conditions that would be written.
	Writes int
}

// OutlookOf plans targets one after the other, with one breaker over all: targets is how many the registration has among the objects
// that were read, and more says that there are others. Open is its breaker, nil while that is closed.
func OutlookOf(r *Registration, circumstances []Circumstances, targets int, more bool, open *limit.Opening, now time.Time) Outlook {
	o := Outlook{Targets: targets, More: more}
	var flips health.Flips
	if open != nil {
		flips.Restore(*open)
	}
	for _, c := range circumstances {
		name := types.NamespacedName{Namespace: c.Target.GetNamespace(), Name: c.Target.GetName()}.String()
		// Of how many targets too many are a share isn't known when not all are read.
		c.MayFail = func(conditionType string) bool {
			return more && open == nil || flips.MayFail(name, conditionType, false, targets, now)
		}
		o.add(r.Forecast(c, now))
	}
	slices.SortStableFunc(o.Forecasts, func(a, b TargetForecast) int {
		return cmp.Or(cmp.Compare(slices.Index(fromWorst, a.Worst()), slices.Index(fromWorst, b.Worst())),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return o
}

func (o *Outlook) add(f TargetForecast) {
	fails, held, failing := false, false, false
	for i := range f.Conditions {
		c := &f.Conditions[i]
		fails, held = fails || c.Fails(), held || c.Held
		failing = failing || c.Now == health.False && !c.Foreign
		if c.Writes {
			o.Writes++
		}
	}
	o.Forecasts = append(o.Forecasts, f)
	o.Fails, o.Held, o.Failing = o.Fails+oneIf(fails), o.Held+oneIf(held), o.Failing+oneIf(failing)
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// Preview is what rules see of an Outlook, and of what else concerns the registration.
type Preview struct {
	// Targets are the selected objects among those that were read, Looked those of them that were looked at. AllRead: no
	// others exist.
	Targets, Looked int
	AllRead         bool
	// WouldFail counts targets with a condition that would turn False, WouldFailTargets tells of some. WouldBeDoubted counts
	// those where the breaker wouldn't believe it.
	WouldFail        int
	WouldFailTargets []string
	WouldBeDoubted   int
	// ForeignConditions are some that are on targets already and someone else's.
	ForeignConditions []string
	// UnknownKinds aren't served; UnreadableKinds Autohealer may not read.
	UnknownKinds, UnreadableKinds []string
	// Unwritable says why targets take no conditions; "" when they do.
	Unwritable string
	// OtherShapes are condition types that another registration writes to the same kind in another shape.
	OtherShapes []string
	// Cycles are ways by which conditions depend on themselves.
	Cycles []string
	// StatuslessChecks judge by status what has neither observedGeneration nor conditions.
	StatuslessChecks []string
	// Workerless are some targets without workers, for which EveryNodeReady would be decided.
	Workerless []string
	// UnsafeKubeconfigs are some Secrets of shoots, each with what is wrong.
	UnsafeKubeconfigs []string
}

// Tell takes what rules see of an outlook.
func (p *Preview) Tell(o Outlook) {
	p.Targets, p.Looked, p.AllRead = o.Targets, len(o.Forecasts), !o.More
	p.WouldFail, p.WouldBeDoubted = o.Fails, o.Held
	for i := range o.Forecasts {
		f := &o.Forecasts[i]
		name := strings.TrimPrefix(f.Namespace+"/"+f.Name, "/")
		for j := range f.Conditions {
			c := &f.Conditions[j]
			if c.Foreign {
				p.ForeignConditions = sample(p.ForeignConditions, c.Type+" of "+name)
			}
			if c.Fails() {
				p.WouldFailTargets = sample(p.WouldFailTargets, fmt.Sprintf("%s: %s %s", name, c.Type, strings.TrimRight(c.Would.Message, ".")))
			}
		}
	}
}

// sample adds a text, while there is room.
func sample(to []string, text string) []string {
	if len(to) >= SampleSize || slices.Contains(to, text) {
		return to
	}
	return append(to, text)
}

// Writes says whether the registration's conditions are written at all.
func (r *Registration) Writes() bool {
	return !r.Observes && r.Output != v1alpha1.OutputRegistrationOnly
}
