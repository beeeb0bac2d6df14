package suggest

import (
	"strings"
	"testing"
)

func TestFor(t *testing.T) {
	known := []string{"KernelDeadlock", "KernelOops", "ReadonlyFilesystem", "Ready", "for", "conditionset/reserved-taint-key", "conditionset/shared-taint-key"}
	for word, want := range map[string]string{
		"KernelDeadLock":                "KernelDeadlock",
		"KernlDeadlocks":                "KernelDeadlock",
		"KrnlDeadlcks":                  "",
		"Kernel":                        "KernelOops KernelDeadlock",
		"reserved-taint":                "conditionset/reserved-taint-key",
		"conditionset/sharde-taint-key": "conditionset/shared-taint-key",
		"fro":                           "",
		"fr":                            "for",
		"x":                             "",
		"":                              "",
	} {
		if got := strings.Join(For(word, known), " "); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
	if got, want := For("Aa", []string{"Ad", "Ac", "Ab", "Ab", "Ae"}), "Ab Ac Ad"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDidYouMean(t *testing.T) {
	known := []string{"validate", "version"}
	if got, want := DidYouMean("valdate", known), "; did you mean validate?"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := DidYouMean("frobnicate", known); got != "" {
		t.Errorf("got %q", got)
	}
}

func TestDistance(t *testing.T) {
	for pair, want := range map[[2]string]int{{"", ""}: 0, {"", "abc"}: 3, {"kitten", "sitting"}: 3, {"flaw", "lawn"}: 2, {"abc", "abc"}: 0} {
		if got := distance(pair[0], pair[1]); got != want {
			t.Errorf("%q: got %d, want %d", pair, got, want)
		}
		if got := distance(pair[1], pair[0]); got != want {
			t.Errorf("%q the other way: got %d, want %d", pair, got, want)
		}
	}
}
