package sample_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/resourcestack/autohealer/internal/domain/sample"
)

func TestTheFirstOfAllNamesAreKept(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		count, want := 0, []string(nil)
		var got []string
		for range random.IntN(60) {
			parts := []string{[]string{"a", "a-b", "", "ab"}[random.IntN(4)], "/", fmt.Sprint(random.IntN(200)), []string{"", " (x)"}[random.IntN(2)]}
			sample.Add(&count, &got, parts...)
			want = append(want, parts[0]+parts[1]+parts[2]+parts[3])
		}
		if count != len(want) {
			t.Fatalf("%d of %d are counted", count, len(want))
		}
		slices.Sort(want)
		if want = want[:min(len(want), 20)]; !slices.Equal(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	}
}

func TestCutKeepsWholeLetters(t *testing.T) {
	for text, want := range map[string]string{"": "", "twelve bytes": "twelve bytes", "thirteen byte": "thirteen …", "ääääääää": "ääää …"} {
		if got := sample.Cut(text, 12); got != want || len(got) > 12 {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
