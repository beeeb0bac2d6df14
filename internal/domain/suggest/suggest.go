// Package suggest finds the words that somebody may have meant who wrote one that nobody knows.
package suggest

import (
	"cmp"
	"slices"
	"strings"
)

const (
	// furthest is how many letters may be put in, left out or changed, of a third of the word's at most.
	furthest = 2
	// shown is how many words are suggested at most.
	shown = 3
)

// For gives the known words that are like one, the most alike first: they differ in few of its letters, or have it in them. Upper and
// lower case are alike.
func For(word string, known []string) []string {
	word = strings.ToLower(word)
	apart := map[string]int{}
	var alike []string
	for _, k := range known {
		lower := strings.ToLower(k)
		apart[k] = distance(word, lower)
		if apart[k] <= min(furthest, (len(word)+1)/3) || len(word) > furthest && strings.Contains(lower, word) {
			alike = append(alike, k)
		}
	}
	slices.SortFunc(alike, func(a, b string) int { return cmp.Or(cmp.Compare(apart[a], apart[b]), cmp.Compare(a, b)) })
	alike = slices.Compact(alike)
	return alike[:min(shown, len(alike))]
}

// DidYouMean ends a sentence about an unknown word; "" when no known one is like it.
func DidYouMean(word string, known []string) string {
	alike := For(word, known)
	if len(alike) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(alike, ", ") + "?"
}

// distance is Levenshtein's: how many letters of one are to be put in, left out or changed to get the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := before
			if a[i] != b[j] {
				changed++
			}
			before, row[j+1] = row[j+1], min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
