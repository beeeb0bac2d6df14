package cli

import "testing"

func TestAlternativesAreInWords(t *testing.T) {
	if got := inWords([]string{"A", "B", "C"}); got != "A, B or C" {
		t.Errorf("got %q", got)
	}
}
