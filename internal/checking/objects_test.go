package checking

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"
)

func TestNamesThatAreDataPushOutNoneThatObjectsShare(t *testing.T) {
	n := names{known: map[string]string{}}
	common := n.shared("metadata")
	for i := range 2 * maxNames {
		n.shared(fmt.Sprint("data", i))
	}
	again := n.shared(strings.Clone("metadata"))
	if unsafe.StringData(again) != unsafe.StringData(common) || len(n.known) != maxNames {
		t.Errorf("it has a text of its own again; %d are kept", len(n.known))
	}
}
