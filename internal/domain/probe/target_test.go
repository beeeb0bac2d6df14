package probe_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// place is a namespace with objects, of which some have a record, and what a process knows of it.
type place struct {
	t        *rapid.T
	recorded map[probe.Ref]*probe.Record
	is       probe.Target
	clock    time.Time
}

func object(i int) probe.Ref {
	return probe.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprint("d", i)}
}

// naming is a config of the objects that rapid draws, of this UID or another.
func (p *place) naming() *probe.Config {
	c := &probe.Config{UID: types.UID(rapid.SampledFrom([]string{"a", "b"}).Draw(p.t, "uid")), Namespace: "ns", Name: "protect", Thresholds: probe.Thresholds{Success: 1, Failure: 1}}
	for i := range 3 {
		if rapid.Bool().Draw(p.t, "named") {
			c.Dependents = append(c.Dependents, probe.Dependent{Ref: object(i)})
		}
	}
	return c
}

func (p *place) tell(e probe.Event) { p.is, _ = p.is.Next(e) }

func (p *place) scaling() probe.Scaling {
	may := rapid.SampledFrom([]lifecycle.State{lifecycle.Active, lifecycle.Deleted, lifecycle.Deleted, lifecycle.Refused}).Draw(p.t, "may")
	return p.is.Scaling(may, false, p.clock, p.clock)
}

// read is an object as it is, or not seen just now.
func (p *place) read(ref probe.Ref) probe.Object {
	if rapid.IntRange(0, 5).Draw(p.t, "unseen") == 0 {
		return probe.Object{Unread: "away", Unseen: true}
	}
	if r := p.recorded[ref]; r != nil {
		return probe.Object{UID: types.UID(ref.Name), Record: r}
	}
	return probe.Object{UID: types.UID(ref.Name), Replicas: 3, Current: 3}
}

func (p *place) looked() {
	in := p.scaling()
	var objects []probe.Object
	for ref := range in.Refs() {
		objects = append(objects, p.read(ref))
	}
	p.tell(probe.DependentsRead{Scaling: in, Objects: objects, Partial: rapid.IntRange(0, 3).Draw(p.t, "half") == 0})
}

// pass takes and gives back what a plan says; each write may fail, done or not.
func (p *place) pass() {
	p.looked()
	in := p.scaling()
	if in.Objects == nil {
		return
	}
	plan := probe.PlanScaling(in)
	p.tell(probe.ScaleDownStarting{Acts: plan.Acts})
	for _, act := range plan.Acts {
		outcome := rapid.SampledFrom([]string{"done", "done", "done, and it failed", "not done"}).Draw(p.t, "write")
		if outcome != "not done" {
			if p.recorded[act.Ref] = nil; act.Step == probe.StepScaleDown || act.Step == probe.StepScaleDownAgain {
				p.recorded[act.Ref] = act.Record
			}
		}
		if outcome != "done" {
			p.tell(probe.WriteUncertain{})
		}
	}
	switch rapid.IntRange(0, 5).Draw(p.t, "meanwhile") {
	case 0:
		p.tell(probe.ConfigAssigned{Config: p.naming(), Deselected: p.is.Deselected})
	case 1:
		p.found()
	}
	p.tell(probe.PlanApplied{Scaling: in, Plan: plan, Permit: probe.Permit{Allowed: true}})
}

// found is an object with a record that an earlier process left, and that isn't named any more.
func (p *place) found() {
	ref := object(rapid.IntRange(0, 2).Draw(p.t, "object"))
	if !p.is.Config.Names(ref) {
		p.recorded[ref] = &probe.Record{Replicas: 3, Owner: p.is.Config.UID, Policy: "ns/protect", Since: metav1.NewTime(p.clock)}
		p.tell(probe.RecordFound{Ref: ref})
	}
}

func (p *place) ran() {
	external := probe.Outcome{Class: rapid.SampledFrom([]probe.Class{probe.OK, probe.Timeout}).Draw(p.t, "external")}
	p.tell(probe.RunEnded{Run: probe.Run{Started: p.clock, Ended: p.clock, Internal: probe.Outcome{Class: probe.OK}, External: &external}})
}

// Whatever happens in whatever order, an object whose replicas were taken is named, or known as one that was; and a target that
// says that it has given all back has.
func TestATargetForgetsNoRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &place{t: t, recorded: map[probe.Ref]*probe.Record{}, clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		p.is = probe.Target{Namespace: "ns", Config: p.naming()}
		t.Repeat(map[string]func(*rapid.T){
			"followed": func(t *rapid.T) {
				p.tell(probe.ConfigAssigned{Config: p.naming(), Deselected: rapid.Bool().Draw(t, "departed")})
			},
			"looked": func(*rapid.T) { p.looked() },
			"passed": func(*rapid.T) { p.pass() },
			"ran":    func(*rapid.T) { p.ran() },
			"time":   func(*rapid.T) { p.clock = p.clock.Add(time.Minute) },
			"found":  func(*rapid.T) { p.found() },
			"": func(t *rapid.T) {
				for _, ref := range slices.Collect(maps.Keys(p.recorded)) {
					if p.recorded[ref] == nil {
						continue
					}
					if !p.is.Config.Names(ref) && !slices.Contains(p.is.Removed, ref) {
						t.Fatalf("%s has a record, and is forgotten", ref)
					}
					if p.is.Restored {
						t.Fatalf("%s has a record, and all is said to be given back", ref)
					}
				}
			},
		})
	})
}

// What a target's runs counted says nothing of what is probed with other Secrets.
func TestARunWithOtherSecretsCountsNothing(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	is := probe.Target{Namespace: "ns", Config: &probe.Config{UID: "a", Namespace: "ns", Name: "protect", Thresholds: probe.Thresholds{Success: 1, Failure: 3}}}
	run := func(at time.Time) probe.RunEnded {
		return probe.RunEnded{Run: probe.Run{Started: at, Ended: at, Internal: probe.Outcome{Class: probe.OK}, External: &probe.Outcome{Class: probe.Timeout}}}
	}
	supplied := func(version byte, at time.Time) probe.CredentialsRead {
		return probe.CredentialsRead{Credentials: probe.Credentials{Config: is.Config, Internal: probe.Version{version}, ReadAt: at}, Since: at}
	}
	is, _ = is.Next(supplied(1, noon))
	is, do := is.Next(run(noon.Add(time.Second)))
	if !do.RunCounted || is.State.External.Errors != 1 {
		t.Fatalf("counted %+v, %+v", is.State.External, do)
	}
	if is, do = is.Next(supplied(1, noon.Add(2*time.Second))); do.UpdateStatus || is.State.External.Errors != 1 {
		t.Errorf("the same Secrets: %+v, %+v", is.State.External, do)
	}
	if is, do = is.Next(supplied(2, noon.Add(3*time.Second))); !do.UpdateStatus || is.State.External.Errors != 0 {
		t.Errorf("other Secrets: %+v, %+v", is.State.External, do)
	}
	if is, do = is.Next(run(noon.Add(time.Second))); do.RunCounted || is.State.External.Errors != 0 {
		t.Errorf("a run that began with the former ones: %+v, %+v", is.State.External, do)
	}
	unusable := supplied(0, noon.Add(4*time.Second))
	unusable.Unusable.Class = probe.SecretMissing
	is, _ = is.Next(unusable)
	unusable.Since = noon.Add(time.Hour)
	if is, do = is.Next(unusable); do.UpdateStatus || !do.Unprobed || !is.Credentials.UnusableSince.Equal(noon.Add(4*time.Second)) {
		t.Errorf("unusable since %s, %+v", is.Credentials.UnusableSince, do)
	}
}

// A write that failed says nothing of what is recorded: whose probes go on for what they have to give back must not lose them.
func TestADoubtKeepsWhatIsKnownToBeTaken(t *testing.T) {
	c := &probe.Config{UID: "a", Namespace: "ns", Name: "protect", Dependents: []probe.Dependent{{Ref: object(0)}}}
	is := probe.Target{Namespace: "ns", Config: c}
	taken := probe.Object{UID: "d0", Record: &probe.Record{Replicas: 3, Owner: "a", Policy: "ns/protect"}}
	in := is.Scaling(lifecycle.Active, false, time.Time{}, time.Time{})
	is, _ = is.Next(probe.DependentsRead{Scaling: in, Objects: []probe.Object{taken}})
	if is, _ = is.Next(probe.WriteUncertain{}); !is.ScaledDown() || is.ObjectsKnown() {
		t.Errorf("taken %t, known %t", is.ScaledDown(), is.ObjectsKnown())
	}
	if in = is.Scaling(lifecycle.Active, false, time.Time{}, time.Time{}); in.Objects != nil {
		t.Error("a plan is made from what may have changed")
	}
	if is, _ = is.Next(probe.DependentsRead{Scaling: in, Objects: []probe.Object{taken}}); !is.ObjectsKnown() {
		t.Error("it was read again")
	}
}
