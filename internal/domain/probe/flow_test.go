package probe_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/resourcestack/autohealer/internal/domain/hold"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// record is ours, of three replicas, written when the object was of generation 5.
func record(change func(*probe.Record)) *probe.Record {
	r := &probe.Record{Replicas: 3, Owner: "uid-1", Policy: "shoot/main", Generation: 7, ObjectGeneration: 5, Since: metav1.NewTime(start)}
	if change != nil {
		change(r)
	}
	return r
}

func until(d time.Duration) *hold.Hold {
	return hold.Of(map[string]string{"autohealer.resourcestack.com/hold-until": start.Add(d).Format(time.RFC3339)})
}

// told is a plan in words.
func told(p probe.Plan) string {
	var words []string
	for _, a := range p.Acts {
		text := fmt.Sprintf("%s %s", a.Step, a.Ref)
		if a.Step == probe.StepScaleDown || a.Step == probe.StepScaleUp {
			text += fmt.Sprintf(" %d", a.Record.Replicas)
		}
		words = append(words, text)
	}
	for _, f := range p.Findings {
		words = append(words, fmt.Sprintf("%s %s", f.Ref, f.Reason))
	}
	if p.Done {
		words = append(words, "done")
	}
	return strings.Join(words, ", ")
}

func single(t fataler, optional string) *probe.Config {
	c := config(t, "")
	c.Dependents = c.Dependents[:1]
	c.Dependents[0].Optional = optional != ""
	return c
}

func TestWhatAnObjectNeeds(t *testing.T) {
	another := record(func(r *probe.Record) { r.Owner, r.Policy = "uid-2", "shoot/other" })
	for name, tt := range map[string]struct {
		object                    probe.Object
		down, up, undo, hibernate string
	}{
		"runs":                         {probe.Object{Generation: 5, Replicas: 3, Current: 3}, "take Deployment/kcm 3", "done", "done", "done"},
		"was at 0 already":             {probe.Object{Generation: 5}, "done", "done", "done", "done"},
		"is scaled down":               {probe.Object{Generation: 6, Record: record(nil)}, "done", "raise Deployment/kcm 3", "raise Deployment/kcm 3", "release Deployment/kcm"},
		"its pods still end":           {probe.Object{Generation: 6, Current: 2, Record: record(nil)}, "", "raise Deployment/kcm 3", "raise Deployment/kcm 3", "release Deployment/kcm"},
		"we died after the record":     {probe.Object{Generation: 5, Replicas: 3, Current: 3, Record: record(nil)}, "lower Deployment/kcm", "release Deployment/kcm", "release Deployment/kcm", "release Deployment/kcm"},
		"the record made a generation": {probe.Object{Generation: 6, Replicas: 3, Current: 3, Record: record(nil)}, "lower Deployment/kcm", "release Deployment/kcm", "release Deployment/kcm", "release Deployment/kcm"},
		"scaled after the record":      {probe.Object{Generation: 6, Replicas: 4, Current: 4, Record: record(nil)}, "take Deployment/kcm 4", "release Deployment/kcm", "release Deployment/kcm", "release Deployment/kcm"},
		"someone scaled it up":         {probe.Object{Generation: 7, Replicas: 1, Current: 1, Record: record(nil)}, "Deployment/kcm ScaledByOthers, done", "release Deployment/kcm", "release Deployment/kcm", "release Deployment/kcm"},
		"someone scaled it up as much": {probe.Object{Generation: 7, Replicas: 3, Current: 3, Record: record(nil)}, "Deployment/kcm ScaledByOthers, done", "release Deployment/kcm", "release Deployment/kcm", "release Deployment/kcm"},
		"a record of an earlier protection": {probe.Object{Generation: 9, Replicas: 2, Current: 2, Record: record(func(r *probe.Record) { r.Since = metav1.NewTime(start.Add(-time.Hour)) })},
			"take Deployment/kcm 2", "release Deployment/kcm", "release Deployment/kcm", "release Deployment/kcm"},
		"a config that was deleted and restored":   {probe.Object{Generation: 6, Record: record(func(r *probe.Record) { r.Owner = "uid-0" })}, "done", "raise Deployment/kcm 3", "raise Deployment/kcm 3", "release Deployment/kcm"},
		"another config's":                         {probe.Object{Generation: 6, Record: another}, "Deployment/kcm OwnedByAnother, done", "Deployment/kcm OwnedByAnother, done", "Deployment/kcm OwnedByAnother, done", "Deployment/kcm OwnedByAnother, done"},
		"a record that can't be read":              {probe.Object{Generation: 6, RecordError: "x"}, "Deployment/kcm RecordUnreadable, done", "Deployment/kcm RecordUnreadable, done", "Deployment/kcm RecordUnreadable, done", "Deployment/kcm RecordUnreadable, done"},
		"asks to be ignored":                       {probe.Object{Generation: 5, Replicas: 3, Current: 3, Ignore: true}, "Deployment/kcm AskedToIgnore, done", "done", "done", "done"},
		"asks to be ignored since":                 {probe.Object{Generation: 6, Ignore: true, Record: record(nil)}, "Deployment/kcm AskedToIgnore, done", "Deployment/kcm AskedToIgnore, done", "Deployment/kcm AskedToIgnore, done", "Deployment/kcm AskedToIgnore, done"},
		"is held":                                  {probe.Object{Generation: 5, Replicas: 3, Current: 3, Hold: until(time.Hour)}, "Deployment/kcm HoldUntil, done", "done", "done", "done"},
		"was held":                                 {probe.Object{Generation: 5, Replicas: 3, Current: 3, Hold: until(0)}, "take Deployment/kcm 3", "done", "done", "done"},
		"is held by garbage":                       {probe.Object{Generation: 5, Replicas: 3, Current: 3, Hold: &hold.Hold{Text: "soon"}}, "Deployment/kcm HoldUntil, done", "done", "done", "done"},
		"is held since, and down":                  {probe.Object{Generation: 6, Record: record(nil), Hold: until(time.Hour)}, "done", "raise Deployment/kcm 3", "raise Deployment/kcm 3", "release Deployment/kcm"},
		"we died after the record, and it is held": {probe.Object{Generation: 5, Replicas: 3, Current: 3, Record: record(nil), Hold: until(time.Hour)}, "Deployment/kcm HoldUntil, done", "release Deployment/kcm", "release Deployment/kcm", "release Deployment/kcm"},
		"is being deleted":                         {probe.Object{Generation: 5, Replicas: 3, Deleting: true}, "done", "done", "done", "done"},
		"is missing":                               {probe.Object{Missing: true}, "Deployment/kcm DependentMissing, done", "done", "done", "done"},
		"can't be scaled":                          {probe.Object{Generation: 5, Unscalable: true}, "Deployment/kcm NotScalable, done", "Deployment/kcm NotScalable, done", "Deployment/kcm NotScalable, done", "Deployment/kcm NotScalable, done"},
		"can't be scaled any more":                 {probe.Object{Generation: 6, Unscalable: true, Record: record(nil)}, "Deployment/kcm NotScalable, done", "Deployment/kcm NotScalable, done", "Deployment/kcm NotScalable, done", "Deployment/kcm NotScalable, done"},
		"can't be read, nor what is recorded":      {probe.Object{Unread: "timeout", Unseen: true}, "Deployment/kcm NotRead", "Deployment/kcm NotRead", "Deployment/kcm NotRead", "Deployment/kcm NotRead"},
		"can't be read, and is scaled down":        {probe.Object{Unread: "timeout", Record: record(nil)}, "Deployment/kcm NotRead", "Deployment/kcm NotRead", "Deployment/kcm NotRead", "Deployment/kcm NotRead"},
		"can't be read, and was never taken":       {probe.Object{Unread: "timeout"}, "Deployment/kcm NotRead", "done", "done", "done"},
		"can't be read, and is another config's":   {probe.Object{Unread: "timeout", Record: another}, "Deployment/kcm NotRead", "done", "done", "done"},
	} {
		t.Run(name, func(t *testing.T) {
			in := probe.Scaling{Config: single(t, ""), Objects: []probe.Object{tt.object}, DecidedAt: start, ProtectionSince: start, Now: start}
			plan := func(change func(*probe.Scaling)) string {
				in := in
				change(&in)
				return told(probe.PlanScaling(in))
			}
			for direction, got := range map[string][2]string{
				"down":       {plan(func(in *probe.Scaling) { in.Want = probe.Down }), tt.down},
				"up":         {plan(func(in *probe.Scaling) { in.Want = probe.Up }), tt.up},
				"undo":       {plan(func(in *probe.Scaling) { in.Withdrawn = true }), tt.undo},
				"hibernated": {plan(func(in *probe.Scaling) { in.Withdrawn, in.Hibernated = true, true }), tt.hibernate},
				"hold":       {plan(func(*probe.Scaling) {}), ""},
				"asleep":     {plan(func(in *probe.Scaling) { in.Want, in.Hibernated = probe.Down, true }), ""},
			} {
				if got[0] != got[1] {
					t.Errorf("%s: %q, want %q", direction, got[0], got[1])
				}
			}
		})
	}
}

func TestOptionalOnesMayBeMissing(t *testing.T) {
	in := probe.Scaling{Config: single(t, "optional"), Objects: []probe.Object{{Missing: true}}, Want: probe.Down, DecidedAt: start, Now: start}
	if got := told(probe.PlanScaling(in)); got != "done" {
		t.Errorf("%q, want nothing to be said", got)
	}
}

func TestARecordSaysWhatWasTaken(t *testing.T) {
	in := probe.Scaling{Config: single(t, ""), Objects: []probe.Object{{Generation: 5, Replicas: 3, Current: 3}}, Want: probe.Down, DecidedAt: start, ProtectionSince: start, Now: start}
	text := probe.PlanScaling(in).Acts[0].Record.String()
	if want := `{"replicas":3,"owner":"uid-1","policy":"shoot/main","generation":7,"objectGeneration":5,"since":"2026-03-01T12:00:00Z"}`; text != want {
		t.Errorf("%s, want %s", text, want)
	}
	r, err := probe.ParseRecord(text)
	if err != nil || r.String() != text {
		t.Errorf("read back: %v, %v", r, err)
	}
	for _, bad := range []string{"3", "{}", `{"replicas":0,"owner":"a","policy":"b/c"}`, `{"replicas":-1,"owner":"a","policy":"b/c"}`, `{"replicas":3,"policy":"b/c"}`, `{"replicas":3,"owner":"a"}`, "{"} {
		if _, err := probe.ParseRecord(bad); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
	if r, err := probe.ParseRecord(""); r != nil || err != nil {
		t.Errorf("no record: %v, %v", r, err)
	}
}

func TestWhenAProtectionBegan(t *testing.T) {
	c := single(t, "")
	now := start.Add(time.Hour + 300*time.Millisecond)
	for name, tt := range map[string]struct {
		object probe.Object
		known  probe.Protection
		want   time.Time
	}{
		"now":                                    {probe.Object{Replicas: 3}, probe.Protection{}, start.Add(time.Hour)},
		"as is known":                            {probe.Object{Record: record(nil)}, probe.Protection{Since: start.Add(time.Minute)}, start.Add(time.Minute)},
		"as an object tells":                     {probe.Object{Generation: 9, Record: record(nil)}, probe.Protection{}, start},
		"where we died":                          {probe.Object{Generation: 5, Replicas: 3, Record: record(nil)}, probe.Protection{}, start},
		"as one tells that is up":                {probe.Object{Generation: 9, Replicas: 3, Record: record(nil)}, probe.Protection{}, start},
		"not by one that is up, once it is over": {probe.Object{Generation: 9, Replicas: 3, Record: record(nil)}, probe.Protection{Over: true}, start.Add(time.Hour)},
		"not by another config's":                {probe.Object{Record: record(func(r *probe.Record) { r.Owner, r.Policy = "x", "y/z" })}, probe.Protection{}, start.Add(time.Hour)},
	} {
		if got := probe.ProtectionStart(c, []probe.Object{tt.object}, tt.known, now); !got.Equal(tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// TestLevelsFollowEachOther walks through a protection of two levels.
func TestLevelsFollowEachOther(t *testing.T) {
	in := probe.Scaling{
		Config: config(t, ""), Want: probe.Down, DecidedAt: start, ProtectionSince: start, Now: start,
		Objects: []probe.Object{{Generation: 1, Replicas: 2, Current: 2}, {Generation: 1, Replicas: 3, Current: 3}},
	}
	step := func(want string, wait time.Duration) {
		t.Helper()
		p := probe.PlanScaling(in)
		if got := told(p); got != want {
			t.Fatalf("%s: %q, want %q", in.Now.Sub(start), got, want)
		}
		if got := p.RequeueAt.Sub(in.Now); wait != 0 && got != wait || wait == 0 && !p.RequeueAt.IsZero() {
			t.Fatalf("%s: looks again after %s, want %s", in.Now.Sub(start), got, wait)
		}
		in.Flow = p.Flow
	}
	kcm, mcm := &in.Objects[0], &in.Objects[1]
	taken := func(replicas int32) *probe.Record {
		return record(func(r *probe.Record) { r.Replicas, r.ObjectGeneration = replicas, 1 })
	}
	// Down: mcm has level 0 there, after 5s, and kcm level 1.
	step("take Deployment/mcm 3", 30*time.Second)
	*mcm = probe.Object{Generation: 2, Current: 3, Record: taken(3)}
	step("", 30*time.Second)
	in.Now = start.Add(29 * time.Second)
	step("", time.Second)
	in.Now = start.Add(30 * time.Second)
	step("Deployment/mcm TimedOut", 0)
	mcm.Current = 0
	step("Deployment/mcm TimedOut", 0) // it is late, but the flow stopped
	in.DecidedAt = start.Add(35 * time.Second)
	in.Now = in.DecidedAt
	step("take Deployment/kcm 2", 30*time.Second)
	*kcm = probe.Object{Generation: 2, Record: taken(2)}
	step("done", 0)
	// Up: kcm first, mcm 5s after that.
	in.Want, in.Now = probe.Up, start.Add(2*time.Minute)
	in.DecidedAt = in.Now
	step("raise Deployment/kcm 2", 30*time.Second)
	*kcm = probe.Object{Generation: 3, Replicas: 2, Record: taken(2)}
	step("release Deployment/kcm", 30*time.Second)
	kcm.Record = nil
	step("", 30*time.Second)
	kcm.Current = 2
	step("", 5*time.Second)
	in.Now = in.Now.Add(5 * time.Second)
	step("raise Deployment/mcm 3", time.Minute)
	*mcm = probe.Object{Generation: 3, Replicas: 3, Current: 3}
	step("done", 0)
}

func TestOfOneLevelAllGoTogether(t *testing.T) {
	c := config(t, "")
	c.Dependents[0].ScaleDown.Level = 0
	in := probe.Scaling{Config: c, Want: probe.Down, DecidedAt: start, Now: start, Objects: []probe.Object{{Replicas: 2}, {Replicas: 3}}}
	if got := told(probe.PlanScaling(in)); got != "take Deployment/kcm 2, take Deployment/mcm 3" {
		t.Errorf("%q", got)
	}
}

func TestWhatIsUnknownHoldsTheNextLevels(t *testing.T) {
	in := probe.Scaling{Config: config(t, ""), Want: probe.Down, DecidedAt: start, Now: start, Objects: []probe.Object{{Replicas: 2}, {Unread: "timeout"}}}
	if got := told(probe.PlanScaling(in)); got != "Deployment/mcm NotRead" {
		t.Errorf("%q", got)
	}
	in.Objects[1] = probe.Object{Missing: true} // known to be missing holds nothing
	if got := told(probe.PlanScaling(in)); got != "take Deployment/kcm 2, Deployment/mcm DependentMissing" {
		t.Errorf("%q", got)
	}
}

// TestWhatIsUnreadHoldsNoOthersBack: what was taken is given back to those that can be read, in their order.
func TestWhatIsUnreadHoldsNoOthersBack(t *testing.T) {
	taken := record(func(r *probe.Record) { r.Replicas = 2 })
	in := probe.Scaling{Config: config(t, ""), Want: probe.Up, DecidedAt: start, Now: start,
		Objects: []probe.Object{{Unread: "forbidden", Unseen: true}, {Generation: 6, Record: taken}}}
	step := func(after time.Duration, want string, unread bool) {
		t.Helper()
		in.Now = start.Add(after)
		in.DecidedAt = in.Now.Truncate(10 * time.Second)
		p := probe.PlanScaling(in)
		if got := told(p); got != want || p.Blocked != unread {
			t.Fatalf("%s: %q, unread %t, want %q, %t", after, got, p.Blocked, want, unread)
		}
		in.Flow = p.Flow
	}
	kcm, mcm := &in.Objects[0], &in.Objects[1]
	step(0, "Deployment/kcm NotRead", false)
	step(29*time.Second, "Deployment/kcm NotRead", false)
	step(30*time.Second, "Deployment/kcm NotRead", false) // its level's time is over; the next begins with its delay
	step(35*time.Second, "raise Deployment/mcm 2, Deployment/kcm NotRead", false)
	*mcm = probe.Object{Generation: 7, Replicas: 2, Current: 2}
	step(36*time.Second, "Deployment/kcm NotRead", true)
	*kcm = probe.Object{Generation: 6, Record: taken}
	step(90*time.Second, "raise Deployment/kcm 2", false)
	*kcm = probe.Object{Generation: 7, Replicas: 2, Current: 2}
	step(91*time.Second, "done", false)
}

// TestWhatIsNotScaledUpInTimeHoldsNoOthersBack: one that can't be scaled, or whose controller makes nothing of it.
func TestWhatIsNotScaledUpInTimeHoldsNoOthersBack(t *testing.T) {
	taken := record(func(r *probe.Record) { r.Replicas = 2 })
	in := probe.Scaling{Config: config(t, ""), Want: probe.Up, DecidedAt: start, Now: start,
		Objects: []probe.Object{{Generation: 6, Record: taken}, {Generation: 6, Record: taken}}}
	step := func(after time.Duration, want string) {
		t.Helper()
		in.Now = start.Add(after)
		in.DecidedAt = in.Now.Truncate(10 * time.Second)
		p := probe.PlanScaling(in)
		if got := told(p); got != want {
			t.Fatalf("%s: %q, want %q", after, got, want)
		}
		in.Flow = p.Flow
	}
	kcm, mcm := &in.Objects[0], &in.Objects[1]
	step(0, "raise Deployment/kcm 2")
	step(29*time.Second, "raise Deployment/kcm 2") // its scale is refused
	step(30*time.Second, "Deployment/kcm TimedOut")
	step(35*time.Second, "raise Deployment/mcm 2, Deployment/kcm TimedOut")
	*mcm = probe.Object{Generation: 7, Replicas: 2, Current: 2}
	step(36*time.Second, "Deployment/kcm TimedOut")
	step(40*time.Second, "raise Deployment/kcm 2, Deployment/kcm TimedOut")
	step(41*time.Second, "Deployment/kcm TimedOut") // once a tick
	*kcm = probe.Object{Generation: 7, Replicas: 2} // it isn't refused any more, and no pod comes
	step(50*time.Second, "done")

	*kcm, *mcm, in.Flow = probe.Object{Generation: 6, Record: taken}, probe.Object{Generation: 6, Record: taken}, probe.Flow{}
	start := 100 * time.Second
	step(start, "raise Deployment/kcm 2")
	*kcm = probe.Object{Generation: 7, Replicas: 2}
	step(start+time.Second, "")
	step(start+30*time.Second, "Deployment/kcm TimedOut")
	step(start+35*time.Second, "raise Deployment/mcm 2")
	*mcm = probe.Object{Generation: 7, Replicas: 2, Current: 2}
	step(start+36*time.Second, "done")

	in.Flow = probe.Flow{Direction: probe.Up, Skipped: map[probe.Ref]time.Time{{APIVersion: "apps/v1", Kind: "Deployment", Name: "former"}: in.DecidedAt}}
	step(start+37*time.Second, "done") // the config no longer names it
}

func TestWhatIsWithdrawnSaysWhatKeepsItsRecord(t *testing.T) {
	for name, tt := range map[string]struct {
		object probe.Object
		left   bool
	}{
		"asks to be ignored":            {probe.Object{Ignore: true, Record: record(nil)}, true},
		"can't be scaled any more":      {probe.Object{Unscalable: true, Record: record(nil)}, true},
		"a record that can't be read":   {probe.Object{RecordError: "x"}, true},
		"can't be read":                 {probe.Object{Unread: "x", Record: record(nil)}, false},
		"asks, and nothing was taken":   {probe.Object{Ignore: true, Replicas: 3}, false},
		"can't be, and nothing was":     {probe.Object{Unscalable: true}, false},
		"is scaled down, and gets back": {probe.Object{Record: record(nil)}, false},
	} {
		p := probe.PlanScaling(probe.Scaling{Config: single(t, ""), Objects: []probe.Object{tt.object}, Withdrawn: true, Now: start})
		if (len(p.Unrestored) > 0) != tt.left {
			t.Errorf("%s: %v is left", name, p.Unrestored)
		}
		for _, a := range p.Acts {
			if a.Step == probe.StepRemoveRecord {
				t.Errorf("%s: its record is removed, and it has nothing back", name)
			}
		}
	}
}

// A clock of ours that is ahead must not end a hold early.
func TestAHoldLastsByTheServersClockToo(t *testing.T) {
	c := single(t, "")
	in := probe.Scaling{Config: c, Objects: []probe.Object{{Generation: 1, Replicas: 3, Current: 3, Hold: until(time.Hour)}}, Want: probe.Down, Now: start.Add(2 * time.Hour)}
	for name, tt := range map[string]struct {
		server time.Time
		want   string
	}{
		"it goes on":      {start.Add(30 * time.Minute), "Deployment/kcm HoldUntil, done"},
		"it is over":      {start.Add(2 * time.Hour), "take Deployment/kcm 3"},
		"nobody knows it": {time.Time{}, "take Deployment/kcm 3"},
	} {
		in.ServerTime = tt.server
		if got := told(probe.PlanScaling(in)); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// What we gave back ourselves, and died before its record was removed, is taken again in the next outage.
func TestWhoScaledADependentUpIsNamed(t *testing.T) {
	c := &probe.Config{UID: "a", Namespace: "ns", Name: "protect", Dependents: []probe.Dependent{{Ref: probe.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "kcm"}}}}
	for by, want := range map[string]probe.Verdict{
		"autohealer": {Step: probe.StepScaleDown},
		"gitops":     {Reason: probe.ScaledByOthers, Message: "field manager gitops scaled it to 3 after it was scaled down"},
		"":           {Reason: probe.ScaledByOthers, Message: "someone scaled it to 3 after it was scaled down"},
	} {
		o := probe.Object{UID: "kcm", Generation: 9, Replicas: 3, Current: 3, ScaledBy: by, Record: &probe.Record{Replicas: 3, Owner: "a", Policy: "ns/protect", ObjectGeneration: 1}}
		in := probe.Scaling{Config: c, Objects: []probe.Object{o}, Want: probe.Down}
		if got := in.Verdict(0); got.Step != want.Step || got.Reason != want.Reason || got.Message != want.Message {
			t.Errorf("by %q: %+v, want %+v", by, got, want)
		}
	}
}
