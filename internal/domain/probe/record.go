package probe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// Record is what an object's annotation says of the replicas that were taken from it. It is written before they are, and
// removed after they were given back, so that nothing is forgotten whenever the manager dies.
type Record struct {
	// Replicas that it gets back, at least 1.
	Replicas int32 `json:"replicas"`
	// Owner, Policy and Generation are the UID of the ProbeConfig that it was done for, its namespace/name, and its
	// generation. One that was deleted and restored has another UID and takes over what it did.
	Owner      types.UID `json:"owner"`
	Policy     string    `json:"policy"`
	Generation int64     `json:"generation"`
	// ObjectGeneration is the object's before the record was written, see neverScaledDown.
	ObjectGeneration int64 `json:"objectGeneration"`
	// MeltdownProtection: Gardener's annotation came with the record, and goes with it.
	MeltdownProtection bool `json:"meltdownProtection,omitempty"`
	// Since is when the protection began that it belongs to, to the second. All records of one protection have the same.
	Since metav1.Time `json:"since"`
}

// ParseRecord reads an object's annotation; nil for empty text. Text that is no record gives an error, and its object is
// left alone.
func ParseRecord(annotation string) (*Record, error) {
	if annotation == "" {
		return nil, nil
	}
	r := &Record{}
	if err := json.Unmarshal([]byte(annotation), r); err != nil || r.Replicas < 1 || r.Owner == "" || r.Policy == "" {
		return nil, fmt.Errorf("its annotation %s says nothing that Autohealer wrote; scale it by hand if need be, and remove the annotation", v1alpha1.AnnotationOriginalReplicas)
	}
	return r, nil
}

// String is the annotation's value.
func (r Record) String() string {
	text, err := json.Marshal(r)
	if err != nil { // strings, numbers and times always marshal
		panic(fmt.Sprintf("marshal record of replicas: %v", err))
	}
	return string(text)
}

// Config is as much of the config that the record is of as it tells.
func (r *Record) Config() *Config {
	c := &Config{UID: r.Owner, Generation: r.Generation}
	c.Namespace, c.Name, _ = strings.Cut(r.Policy, "/")
	return c
}

// Of says whether the record is the config's.
func (r *Record) Of(c *Config) bool { return r.Owner == c.UID || r.Policy == c.Key().String() }

// neverScaledDown says whether an object that has replicas never lost them: its record was written, and nothing since. Taking them
// is a generation more, and giving them back another; the record itself is one more with some kinds, as with Deployments.
func (r *Record) neverScaledDown(o *Object) bool {
	return o.Replicas != 0 && o.Generation <= r.ObjectGeneration+1
}

// newRecord is the record of an object whose replicas are about to be taken.
func newRecord(c *Config, o *Object, episode time.Time) *Record {
	return &Record{
		Replicas: o.Replicas, Owner: c.UID, Policy: c.Key().String(), Generation: c.Generation,
		ObjectGeneration: o.Generation, MeltdownProtection: c.MeltdownProtection, Since: metav1.NewTime(episode),
	}
}

// Protection is what a process knows of the protection that is going on. The zero value: nothing yet.
type Protection struct {
	// Since is when it began; zero while that isn't known.
	Since time.Time
	// Over: this process gave back something since the latest began, and whatever begins now is another.
	Over bool
}

// ProtectionStart is when the protection began that is going on: as it is known, else as records say, else now. To the second, as
// records keep it. The record of an object that has replicas again counts too, unless the protection is known to be over: most
// likely someone scaled it up meanwhile, and then it is theirs.
func ProtectionStart(c *Config, objects []Object, known Protection, now time.Time) time.Time {
	if !known.Since.IsZero() {
		return known.Since.Truncate(time.Second)
	}
	var latest time.Time
	for _, o := range objects {
		r := o.Record
		if r == nil || !r.Of(c) || known.Over && o.Replicas != 0 {
			continue
		}
		if r.Since.After(latest) {
			latest = r.Since.Time
		}
	}
	if !latest.IsZero() {
		return latest
	}
	return now.Truncate(time.Second)
}

// Undo plans to give back to one object what its record says was taken, whatever ProbeConfigs say: for people who do it by
// hand, with no manager or even no policies left. It gives the config for which it was taken, as far as the record tells.
func Undo(namespace string, ref Ref, o Object, hibernated bool) (*Config, Plan) {
	c := &Config{Namespace: namespace}
	if o.Record != nil {
		c = o.Record.Config()
	}
	c.Dependents = []Dependent{{Ref: ref}}
	plan := PlanScaling(Scaling{Config: c, Objects: []Object{o}, Withdrawn: true, Hibernated: hibernated})
	for i := range plan.Acts {
		if o.Copied {
			plan.Acts[i].Step = StepRemoveRecord
		}
	}
	return c, plan
}

// restoreAll undoes everything at once.
func (in *Scaling) restoreAll() Plan {
	p := Plan{Done: true, Flow: Flow{Direction: Up, ScaledUp: map[Ref]int32{}}}
	for i, d := range in.Config.Dependents {
		s := in.restore(&p, d.Ref, in.Objects[i])
		p.Done = p.Done && !s.blocked && s.Step == StepNone
	}
	p.Blocked = !p.Done && len(p.Acts) == 0
	slices.SortFunc(p.Acts, func(a, b Act) int { return cmp.Compare(a.Ref.String(), b.Ref.String()) })
	return p
}

// restore plans to give back at once what was taken from an object.
func (in *Scaling) restore(p *Plan, ref Ref, o Object) Verdict {
	s := o.up(in.Config, 0)
	if s.Step == StepScaleUp && in.Hibernated {
		s.Step = StepRemoveRecord
	}
	if s.Step != StepNone {
		p.Acts = append(p.Acts, in.act(ref, o, s.Step))
	}
	if s.Reason != "" {
		p.Findings = append(p.Findings, s.finding(ref))
	}
	if s.unrestored {
		p.Unrestored = append(p.Unrestored, s.finding(ref))
	}
	return s
}
