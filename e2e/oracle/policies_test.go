package oracle

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// What a status said of a policy is judged by what it says later too: an act may come right before the status follows.
func TestAnActAgainstWhatTheStatusSays(t *testing.T) {
	resource := WeederConfigs{}.Policies()
	says := func(second, generation, observed int, accepted string) revision {
		return revision{
			revisionKey: revisionKey{objectKey{resource, "c"}, uint64(second)}, at: noon.Add(time.Duration(second) * time.Second),
			object: []byte(fmt.Sprintf(`{"metadata":{"name":"c","generation":%d},"status":{"conditions":[{"type":"Accepted","status":%q,"observedGeneration":%d}]}}`, generation, accepted, observed)),
		}
	}
	for _, test := range []struct {
		name      string
		revisions []revision
		act, now  int // seconds after noon
		against   time.Duration
	}{
		{"it accepts", []revision{says(0, 1, 1, "True")}, 60, 90, 0},
		{"it refused before the act", []revision{says(0, 1, 1, "False")}, 60, 90, time.Minute},
		{"it refused again and again", []revision{says(0, 1, 1, "False"), says(59, 1, 1, "False")}, 60, 90, time.Minute},
		{"it refused just before the act, which was on its way", []revision{says(0, 1, 1, "True"), says(57, 1, 1, "False")}, 60, 90, 0},
		{"it accepted just after the act", []revision{says(0, 1, 1, "False"), says(63, 1, 1, "True")}, 60, 90, 0},
		{"it accepted long after the act", []revision{says(0, 1, 1, "False"), says(66, 1, 1, "True")}, 60, 90, time.Minute},
		{"it accepted long before the act", []revision{says(0, 1, 1, "False"), says(30, 1, 1, "True")}, 60, 90, 0},
		{"it may yet accept", []revision{says(0, 1, 1, "False")}, 60, 62, 0},
		{"it refused an older generation", []revision{says(0, 2, 1, "False")}, 60, 90, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := &judging{options: Options{}.withDefaults(), now: noon.Add(time.Duration(test.now) * time.Second)}
			j.refusals = refusalsOf(test.revisions, func(r schema.GroupVersionResource) bool { return r == resource })
			if against := j.saidRefused(types.UID("c"), noon.Add(time.Duration(test.act)*time.Second)); against != test.against {
				t.Errorf("it had said so for %s", against)
			}
		})
	}
}
