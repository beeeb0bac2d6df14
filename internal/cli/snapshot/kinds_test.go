package snapshot

import (
	"testing"

	"github.com/resourcestack/autohealer/internal/kinds"
)

// A kind that isn't read would be judged as if nothing of it were stored.
func TestTheObjectsOfAllOurKindsAreRead(t *testing.T) {
	for _, k := range kinds.All {
		if r := kindOf(k.GVK().GroupKind()); r == nil || !r.must && r.of == nil {
			t.Errorf("%s isn't read", k.Name())
		}
	}
	if all := withKinds(nil); len(all) != len(kinds.All) || all[0].GroupVersionKind != kinds.All[0].GVK() {
		t.Errorf("got %v", all)
	}
}
