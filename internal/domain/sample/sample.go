// Package sample counts objects and keeps the names of some as examples.
package sample

import (
	"fmt"
	"slices"
	"strings"
)

// Size is how many names or entries a forecast, a message or a status carries at most.
const Size = 20

// Add counts an object, and keeps its name, given in segments, if it is among the first. Names of the others aren't put together:
// ten thousand pods may be counted.
func Add(count *int, names *[]string, segments ...string) {
	*count++
	kept := *names
	if len(kept) == Size {
		if !before(segments, kept[Size-1]) {
			return
		}
		kept = kept[:Size-1]
	}
	name := strings.Join(segments, "")
	i, _ := slices.BinarySearch(kept, name)
	*names = slices.Insert(kept, i, name)
}

// before says whether the segments together sort before a name.
func before(segments []string, name string) bool {
	for _, segment := range segments {
		n := min(len(segment), len(name))
		if c := strings.Compare(segment[:n], name[:n]); c != 0 || n < len(segment) {
			return c < 0
		}
		name = name[n:]
	}
	return name != ""
}

// Once adds a text that isn't there yet, up to Size of them.
func Once(texts *[]string, text string) {
	if len(*texts) < Size && !slices.Contains(*texts, text) {
		*texts = append(*texts, text)
	}
}

// Count is a number of things: 1 node, 2 nodes.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Clause is a number with what is said of so many: 1 is tainted, 2 are tainted.
func Clause[N int | int32](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// Example counts things of which something is true, and gives one of them: 1 pod held back: a, 2 pods held back, such as a.
func Example(n int, noun, is, example string) string {
	if n == 1 {
		return Count(n, noun) + " " + is + ": " + example
	}
	return Count(n, noun) + " " + is + ", such as " + example
}

// List writes down up to Size texts, and how many more there are.
func List(texts []string, separator string) string {
	if more := len(texts) - Size; more > 0 {
		texts = append(slices.Clone(texts[:Size]), fmt.Sprintf("… and %d more", more))
	}
	return strings.Join(texts, separator)
}

// Cut keeps a text within so many bytes; one that was longer ends with an ellipsis.
func Cut(text string, most int) string {
	const cut = " …"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(cut)], "") + cut
}
