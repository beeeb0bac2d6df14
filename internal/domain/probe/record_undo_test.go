package probe_test

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

func TestUndoByHand(t *testing.T) {
	kcm := probe.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "kcm"}
	odd := record(func(r *probe.Record) { r.Owner, r.Policy = "uid-9", "odd" })
	for name, c := range map[string]struct {
		object     probe.Object
		hibernated bool
		want       string
	}{
		"what is down":                       {probe.Object{Generation: 6, Record: record(nil)}, false, "raise Deployment/kcm 3"},
		"what someone else scaled":           {probe.Object{Generation: 7, Replicas: 1, Record: record(nil)}, false, "release Deployment/kcm"},
		"what sleeps":                        {probe.Object{Generation: 6, Record: record(nil)}, true, "release Deployment/kcm"},
		"what asks to be left alone":         {probe.Object{Generation: 6, Ignore: true, Record: record(nil)}, false, "Deployment/kcm AskedToIgnore, done"},
		"a copy on a ReplicaSet":             {probe.Object{Generation: 6, Copied: true, Record: record(nil)}, false, "release Deployment/kcm"},
		"a record whose policy has no place": {probe.Object{Generation: 6, Record: odd}, false, "raise Deployment/kcm 3"},
		"nothing":                            {probe.Object{Generation: 6}, false, "done"},
		"a record that can't be read":        {probe.Object{Generation: 6, RecordError: "x"}, false, "Deployment/kcm RecordUnreadable, done"},
		"what can't be read":                 {probe.Object{Unread: "timeout", Unseen: true}, false, "Deployment/kcm NotRead"},
	} {
		t.Run(name, func(t *testing.T) {
			config, plan := probe.Undo("shoot", kcm, c.object, c.hibernated)
			if got := told(plan); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			if r := c.object.Record; r != nil && (!r.Of(config) || config.Generation != 7) {
				t.Errorf("for %+v", config)
			}
		})
	}
}
