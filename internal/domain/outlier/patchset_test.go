package outlier_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
)

// roundTrip gives a set as it is read back from the object that it was written to.
func roundTrip(t *testing.T, set outlier.PatchSet) outlier.PatchSet {
	t.Helper()
	record, err := set.Record()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(set.Spec("web"))
	if err != nil {
		t.Fatal(err)
	}
	var spec map[string]any
	if err := json.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	back, err := outlier.ReadPatchSet(spec, record)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// setOf patches a cluster for each of some policies, by its name.
func setOf(t *testing.T, policies ...*outlier.Policy) outlier.PatchSet {
	t.Helper()
	var clusters []outlier.Patched
	for _, p := range policies {
		clusters = append(clusters, outlier.Patched{Cluster: p.Name, Policies: []*outlier.Policy{p}})
	}
	set := outlier.NewPatchSet(clusters)
	return set
}

func TestAPatchSetIsReadAsItWasWritten(t *testing.T) {
	set := setOf(t, outlierPolicy(t, "shop", "a", 3), outlierPolicy(t, "shop", "b", 4), outlierPolicy(t, "shop", "disabled", 0))
	again := roundTrip(t, set)
	if diff := cmp.Diff(fmt.Sprint(set.Spec("web")), fmt.Sprint(again.Spec("web"))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(again) != 2 || len(set.Changed(again)) != 0 {
		t.Errorf("%v are read as new", set.Changed(again))
	}
}

func TestAPatchThatIsInNoRecordIsNoneOfOurs(t *testing.T) {
	set, err := outlier.ReadPatchSet(setOf(t, outlierPolicy(t, "shop", "a", 3)).Spec("web"), "{}")
	if err != nil || len(set) != 0 {
		t.Error(set, err)
	}
	if _, err := outlier.ReadPatchSet(nil, "{"); err == nil {
		t.Error("a record that can't be read is taken for one")
	}
}

// A pause defers what is new, and lets detection end; a freeze and doubt defer both.
func TestWhatIsPatchedInEachState(t *testing.T) {
	same, gone := outlierPolicy(t, "shop", "same", 3), outlierPolicy(t, "shop", "gone", 3)
	added, old, changed := outlierPolicy(t, "shop", "added", 3), outlierPolicy(t, "shop", "changed", 3), outlierPolicy(t, "shop", "changed", 4)
	changed.Generation = 2
	before, wanted := roundTrip(t, setOf(t, same, gone, old)), setOf(t, same, added, changed)
	all := map[string]bool{"same": true, "gone": true, "added": true, "changed": true}
	for name, test := range map[string]struct {
		state    lifecycle.State
		doubtful map[string]bool
		want     []string
	}{
		"nothing is held back": {lifecycle.Active, nil, []string{"added 1", "changed 2", "same 1"}},
		"a pause":              {lifecycle.Paused, nil, []string{"changed 1", "same 1"}},
		"a freeze":             {lifecycle.Frozen, nil, []string{"changed 1", "gone 1", "same 1"}},
		"doubt about all":      {lifecycle.Active, all, []string{"changed 1", "gone 1", "same 1"}},
		"doubt about one":      {lifecycle.Active, map[string]bool{"changed": true}, []string{"added 1", "changed 1", "same 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for cluster, patch := range wanted.Effective(test.state, func(cluster string) bool { return test.doubtful[cluster] }, before) {
				got = append(got, fmt.Sprintf("%s %d", cluster, patch.For[0].Generation))
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A thousand clusters with long names fit: a record into what annotations have room for, which is 256 KiB, and the whole into etcd's 1.5 MiB.
func TestAThousandClustersFitIntoOneObject(t *testing.T) {
	policy := outlierPolicy(t, "a-namespace-of-a-team", "a-policy-with-a-name", 3)
	policy.UID = "11111111-2222-3333-4444-555555555555"
	var clusters []outlier.Patched
	for i := range 1000 {
		clusters = append(clusters, outlier.Patched{
			Cluster: fmt.Sprintf("httproute/a-namespace-of-a-team/a-route-with-a-name-%d/rule/10", i), Policies: []*outlier.Policy{policy},
		})
	}
	set := outlier.NewPatchSet(clusters)
	record, err := set.Record()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(set.Spec("web"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("record %d KiB, spec %d KiB", len(record)/1024, len(spec)/1024)
	if len(record) > 256<<10 || len(record)+len(spec) > 3<<19 {
		t.Errorf("%d bytes of record, %d of spec", len(record), len(spec))
	}
}

func TestReadPatchStatus(t *testing.T) {
	const status = "metadata: {generation: 2}\nstatus: {ancestors: [{conditions: ["
	for name, test := range map[string]struct{ object, want string }{
		"nothing yet":               {"metadata: {generation: 2}", ""},
		"programmed":                {status + `{type: Accepted, status: "True", reason: Accepted, observedGeneration: 2}, {type: Programmed, status: "True", reason: Programmed, observedGeneration: 2}]}]}`, "True Programmed"},
		"of what it was before":     {status + `{type: Programmed, status: "True", reason: Programmed, observedGeneration: 1}]}]}`, ""},
		"a cluster is gone":         {status + `{type: Programmed, status: "False", reason: ResourceNotFound, observedGeneration: 2}]}]}`, "False ResourceNotFound"},
		"switched off":              {status + `{type: Accepted, status: "False", reason: Disabled, observedGeneration: 2}]}]}`, "False Disabled"},
		"switched off since it was": {status + `{type: Programmed, status: "True", reason: Programmed, observedGeneration: 2}, {type: Accepted, status: "False", reason: Disabled, observedGeneration: 2}]}]}`, "False Disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := outlier.ReadPatchStatus(object(t, test.object))
			got := ""
			if c != nil {
				got = string(c.Status) + " " + c.Reason
			}
			if err != nil || got != test.want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
