package display

import "testing"

func TestAlternativesAreInWords(t *testing.T) {
	for want, all := range map[string][]string{"": nil, "A": {"A"}, "A or B": {"A", "B"}, "A, B or C": {"A", "B", "C"}} {
		if got := List(all, "or"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
