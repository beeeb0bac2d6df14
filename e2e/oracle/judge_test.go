package oracle

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	nodeResource = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	noon         = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

const (
	plainNode   = `{"kind":"Node","metadata":{"name":"n","uid":"u"}}`
	taintedNode = `{"kind":"Node","metadata":{"name":"n","uid":"u","annotations":{"autohealer.resourcestack.com/owned-taints":"{\"taints\":[{\"key\":\"example.com/broken\",\"effect\":\"PreferNoSchedule\",\"set\":\"none\",\"generation\":1}]}"}},
		"spec":{"taints":[{"key":"example.com/broken","effect":"PreferNoSchedule"}]}}`
	taintPatch = `[{"op":"add","path":"/spec","value":{"taints":[{"key":"example.com/broken","effect":"PreferNoSchedule"}]}}]`
)

func at(version uint64) revisionKey {
	return revisionKey{objectKey{nodeResource, "u"}, version}
}

func replay(revisions []revision, writes []write) []Violation {
	p := past{revisions: revisions, writes: writes, starts: map[schema.GroupVersionResource]uint64{nodeResource: 5}}
	return judge(p, Options{}.withDefaults(), nil, nil, noon.Add(time.Hour))
}

func invariantsOf(violations []Violation) []Invariant {
	var invariants []Invariant
	for _, v := range violations {
		invariants = append(invariants, v.Invariant)
	}
	return invariants
}

func TestWhatWasNotSeen(t *testing.T) {
	before := revision{revisionKey: at(4), name: "nodes/n", object: []byte(plainNode), at: noon}
	after := revision{revisionKey: at(9), name: "nodes/n", object: []byte(taintedNode), at: noon}
	ours := write{revisionKey: at(9), name: "nodes/n", verb: "patch", ours: true, at: noon, request: []byte(taintPatch)}
	theirs := write{revisionKey: at(9), name: "nodes/n", verb: "patch", at: noon}
	unreadable := ours
	unreadable.request = []byte(`{"spec":{}}`)
	early := after
	early.version = 5
	for _, test := range []struct {
		name      string
		revisions []revision
		writes    []write
		broken    []Invariant
	}{
		{"a record that changed without an audit line is the manager's doing", []revision{before, after}, nil, []Invariant{Validated}},
		{"a record that another user changed isn't", []revision{before, after}, []write{theirs}, nil},
		{"what was so at the start isn't judged", []revision{before, early}, nil, nil},
		{"a revision that no watch told of is made from its JSON Patch", []revision{before}, []write{ours}, []Invariant{OwnOnly}},
		{"one that can't be made from its request is admitted", []revision{before}, []write{unreadable}, []Invariant{Blind}},
		{"one that another user made doesn't matter", []revision{before}, []write{theirs}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			found := replay(test.revisions, test.writes)
			if !slices.Equal(invariantsOf(found), test.broken) {
				t.Errorf("expected %q, found %v", test.broken, found)
			}
		})
	}
}

func TestEachReasonIsGoodForOneAct(t *testing.T) {
	reason := func(version uint64, second int) stamp {
		return stamp{version, noon.Add(time.Duration(second) * time.Second)}
	}
	for _, test := range []struct {
		name    string
		reasons []stamp
		acts    []stamp
		allowed []bool
	}{
		{"one reason, two acts", []stamp{reason(1, 0)}, []stamp{reason(2, 1), reason(3, 2)}, []bool{true, false}},
		{"a reason may be old", []stamp{reason(1, 0)}, []stamp{reason(2, 3600)}, []bool{true}},
		{"a reason comes first", []stamp{reason(2, 0)}, []stamp{reason(1, 0)}, []bool{false}},
		{"two reasons shortly before two acts, the manager being behind", []stamp{reason(1, 0), reason(2, 1)}, []stamp{reason(3, 2), reason(4, 3)}, []bool{true, true}},
		{"old reasons are void once one is acted on", []stamp{reason(1, 0), reason(2, 1)}, []stamp{reason(3, 60), reason(4, 61)}, []bool{true, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := ledger{lag: 5 * time.Second, used: map[string]uint64{}}
			for i, act := range test.acts {
				if allowed := l.use("act", test.reasons, act); allowed != test.allowed[i] {
					t.Errorf("act %d: %t", i, allowed)
				}
			}
		})
	}
}

func TestTheAuditLogIsReadFromItsEndOn(t *testing.T) {
	line := func(code, uri, user, version string) string {
		return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","stage":"ResponseComplete","verb":"patch","requestURI":"` + uri + `",` +
			`"user":{"username":"` + user + `"},"objectRef":{"resource":"nodes","name":"n","apiVersion":"v1"},"responseStatus":{"code":` + code + `},` +
			`"requestObject":[],"responseObject":{"kind":"PartialObjectMetadata","metadata":{"name":"n","uid":"u","resourceVersion":"` + version + `"}}}` + "\n"
	}
	const manager = "system:serviceaccount:autohealer-system:autohealer-manager"
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(line("200", "/", manager, "1")), 0o600); err != nil {
		t.Fatal(err)
	}
	h := newHistory(Options{}.withDefaults())
	reader, err := newTail(path, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reader.file.Close() })
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	whole := line("200", "/", manager, "6")
	for _, text := range []string{
		line("200", "/", "admin", "2"),
		line("422", "/", manager, "3"),
		line("200", "/?dryRun=All", manager, "4"),
		`{"kind":"Event","apiVersion":"audit.k8s.io/v1","sta` + line("200", "/", manager, "5"), // a killed server's last words
		whole[:100], whole[100:],
	} {
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		for reader.readLine() {
		}
	}
	var versions []uint64
	var ours []bool
	for _, w := range h.writes {
		versions, ours = append(versions, w.version), append(ours, w.ours)
		if w.uid != types.UID("u") || w.name != "nodes/n" {
			t.Errorf("write %+v", w)
		}
	}
	if !slices.Equal(versions, []uint64{2, 5, 6}) || !slices.Equal(ours, []bool{false, true, true}) {
		t.Errorf("versions %v, ours %v", versions, ours)
	}
}

func TestNewsIsGivenOnce(t *testing.T) {
	o := &Oracle{given: map[string]bool{}}
	first, second := Violation{At: noon, Text: "first"}, Violation{At: noon, Text: "second"}
	o.fresh([]Violation{first})
	if got := o.fresh([]Violation{first, second}); !slices.Equal(got, []string{second.String()}) {
		t.Errorf("only the second is news, and not %q", got)
	}
}
