package probe_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// cell is a namespace with dependents that a manager scales, one write after the other, and that dies before any of them.
type cell struct {
	t       *rapid.T
	config  *probe.Config
	objects []probe.Object
	// taken are the replicas that an object had when we wrote its record, as long as that is there; before are those that it
	// had first.
	taken, before map[int]int32
	// lowered are objects that have a record and lost their replicas. doubtful are those of them that have replicas again of which
	// a new manager can't tell whether the one before or someone else gave them back.
	lowered, doubtful map[int]bool
	// foreign are objects that someone else scaled.
	foreign map[int]bool
	// noted: an annotation makes a new generation, as a Deployment's does.
	noted bool

	// what a manager remembers
	flow       probe.Flow
	protection probe.Protection
	now        time.Time
}

func newCell(t *rapid.T) *cell {
	w := &cell{t: t, config: config(t, ""), taken: map[int]int32{}, before: map[int]int32{}, lowered: map[int]bool{}, doubtful: map[int]bool{}, foreign: map[int]bool{}, now: start}
	w.config.Dependents = nil
	w.noted = rapid.Bool().Draw(t, "annotations make generations")
	for i := range rapid.IntRange(1, 4).Draw(t, "dependents") {
		place := func(what string) probe.ScaleParameters {
			return probe.ScaleParameters{Level: rapid.IntRange(0, 2).Draw(t, what), Delay: time.Duration(rapid.IntRange(0, 2).Draw(t, what+" delay")) * 5 * time.Second, Timeout: 30 * time.Second}
		}
		w.config.Dependents = append(w.config.Dependents, probe.Dependent{Ref: probe.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprint(i)}, ScaleUp: place("up"), ScaleDown: place("down")})
		replicas := rapid.Int32Range(0, 3).Draw(t, "replicas")
		w.before[i] = replicas
		w.objects = append(w.objects, probe.Object{Generation: 1, Replicas: replicas, Current: replicas})
	}
	return w
}

// tick lets the manager plan once and write, dying before the write with this number; -1 for not at all.
func (w *cell) tick(want probe.Direction, withdrawn bool, dieBefore int) (done bool) {
	w.now = w.now.Add(10 * time.Second)
	var episode time.Time
	if want == probe.Down {
		episode = probe.ProtectionStart(w.config, w.objects, w.protection, w.now)
		w.protection = probe.Protection{Since: episode}
	}
	objects := append([]probe.Object(nil), w.objects...)
	p := probe.PlanScaling(probe.Scaling{Config: w.config, Objects: objects, Want: want, Withdrawn: withdrawn, Flow: w.flow, DecidedAt: w.now, ProtectionSince: episode, Now: w.now})
	w.flow = p.Flow
	if want != probe.Down && len(p.Acts) > 0 {
		w.protection = probe.Protection{Over: true}
	}
	writes := 0
	for _, a := range p.Acts {
		i := w.index(a.Ref)
		for _, write := range w.writes(i, a) {
			if writes == dieBefore {
				if rapid.Bool().Draw(w.t, "dies") { // else this write failed, and the rest isn't done
					w.die()
				}
				return false
			}
			write()
			writes++
		}
	}
	return p.Done
}

func (w *cell) die() {
	w.flow, w.protection = probe.Flow{}, probe.Protection{}
	for i, o := range w.objects {
		w.doubtful[i] = w.lowered[i] && o.Replicas != 0
	}
}

func (w *cell) index(ref probe.Ref) int {
	for i, d := range w.config.Dependents {
		if d.Ref == ref {
			return i
		}
	}
	w.t.Fatalf("there is no %s", ref)
	return 0
}

func (w *cell) writes(i int, a probe.Act) []func() {
	o := &w.objects[i]
	scale := func(to int32) {
		o.Replicas, o.Current = to, to
		o.Generation++
	}
	lower := func() { scale(0); w.lowered[i], w.doubtful[i] = true, false }
	note := func(r *probe.Record) {
		if o.Record = r; w.noted {
			o.Generation++
		}
	}
	release := func() {
		delete(w.taken, i)
		w.lowered[i], w.doubtful[i] = false, false
		note(nil)
	}
	switch a.Step {
	case probe.StepScaleDown:
		return []func(){func() { w.taken[i], w.lowered[i] = o.Replicas, false; note(a.Record) }, lower}
	case probe.StepScaleDownAgain:
		return []func(){lower}
	case probe.StepScaleUp:
		return []func(){func() {
			if took, ours := w.taken[i]; !ours || took != a.Record.Replicas || o.Replicas != 0 {
				w.t.Fatalf("%s is at %d and gets %d; we took %d (%t)", a.Ref, o.Replicas, a.Record.Replicas, took, ours)
			}
			scale(a.Record.Replicas)
		}, release}
	case probe.StepRemoveRecord:
		return []func(){release}
	default:
		w.t.Fatalf("nothing to write: %+v", a)
		return nil
	}
}

// settle lets a manager that doesn't die go on until it is done.
func (w *cell) settle(want probe.Direction, withdrawn bool) {
	for range 40 {
		if w.tick(want, withdrawn, -1) {
			return
		}
	}
	w.t.Fatalf("%s isn't done after 40 ticks: %+v", want, w.objects)
}

// TestScalingFromAnyCrash: a manager that dies before any write, and others that scale meanwhile.
func TestScalingFromAnyCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newCell(t)
		for range rapid.IntRange(0, 25).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				w.tick(probe.Down, false, rapid.IntRange(-1, 5).Draw(t, "dies before"))
			case 4, 5:
				w.tick(probe.Up, false, rapid.IntRange(-1, 5).Draw(t, "dies before"))
			case 6:
				w.tick(probe.Hold, true, rapid.IntRange(-1, 5).Draw(t, "dies before"))
			case 7:
				w.tick(probe.Hold, false, -1)
			case 8:
				w.die()
			case 9:
				i := rapid.IntRange(0, len(w.objects)-1).Draw(t, "which")
				o := &w.objects[i]
				o.Replicas = rapid.Int32Range(0, 3).Draw(t, "foreign")
				o.Current = o.Replicas
				o.Generation++
				w.foreign[i] = true
			}
		}
		if len(w.foreign) == 0 && !slices.ContainsFunc(w.objects, func(o probe.Object) bool { return o.Record != nil && o.Replicas == 0 }) {
			w.settle(probe.Down, false) // a new protection, whatever was left by those before
			w.expectDown()
		}
		w.settle(probe.Up, rapid.Bool().Draw(t, "deleted"))
		for i, o := range w.objects {
			if o.Record != nil || !w.foreign[i] && o.Replicas != w.before[i] {
				t.Fatalf("object %d had %d replicas and is left with %+v", i, w.before[i], o)
			}
		}
		w.settle(probe.Down, false)
		w.expectDown()
	})
}

func (w *cell) expectDown() {
	for i, o := range w.objects {
		if o.Replicas != 0 && !w.doubtful[i] {
			w.t.Fatalf("object %d stays at %d", i, o.Replicas)
		}
	}
}

// TestAProtectionIsCompletedFromAnyCrash: each manager dies before its n-th write, and the last one lives.
func TestAProtectionIsCompletedFromAnyCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newCell(t)
		for range rapid.IntRange(0, 6).Draw(t, "managers") {
			for range rapid.IntRange(0, 3).Draw(t, "ticks") {
				w.tick(probe.Down, false, -1)
			}
			w.tick(probe.Down, false, rapid.IntRange(0, 3).Draw(t, "dies before"))
		}
		w.settle(probe.Down, false)
		for i, o := range w.objects {
			if o.Replicas != 0 || (o.Record != nil) != (w.before[i] > 0) || o.Record != nil && o.Record.Replicas != w.before[i] {
				t.Fatalf("object %d had %d replicas and is left with %+v, %v", i, w.before[i], o, o.Record)
			}
		}
	})
}
