package admission

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	. "github.com/onsi/gomega"
)

// slot is a place in a JSON document that can take another value.
type slot struct {
	path   string
	put    func(any)
	remove func()
}

// slots lists every place below value, in a fixed order.
func slots(path string, value any) []slot {
	var found []slot
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			below := path + "/" + key
			found = append(found, slot{path: below, put: func(value any) { v[key] = value }, remove: func() { delete(v, key) }})
			found = append(found, slots(below, v[key])...)
		}
	case []any:
		for i := range v {
			below := fmt.Sprintf("%s/%d", path, i)
			found = append(found, slot{path: below, put: func(value any) { v[i] = value }, remove: func() { v[i] = nil }})
			found = append(found, slots(below, v[i])...)
		}
	}
	return found
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// mutated changes a document in one to four places, but none that keep says to leave alone.
func mutated(random *rand.Rand, document string, keep func(path string) bool) []byte {
	root := decoded(document)
	for range 1 + random.IntN(4) {
		free := slices.DeleteFunc(slots("", root), func(s slot) bool { return keep(s.path) })
		if len(free) == 0 {
			break
		}
		chosen := free[random.IntN(len(free))]
		if random.IntN(4) == 0 {
			chosen.remove()
		} else {
			chosen.put(anything(random, 3))
		}
	}
	return encoded(root)
}

// anything is a JSON value of any type, with a liking for those that programs trip over.
func anything(random *rand.Rand, depth int) any {
	awkward := []any{
		nil, true, false, 0, -1, 1 << 53, int64(1) << 62, 1e308, 0.1, "", " ", "\x00", "\u2028", "\xff", "null", "true", "ConditionSet", "2030-01-01T00:00:00Z", "99999999999999999999h",
		"*", "a/b/c", strings.Repeat("é", 20_000), strings.Repeat("/", 400), map[string]any{}, []any{}, map[string]any{"": nil}, json.Number("123456789012345678901234567890"),
	}
	if depth == 0 || random.IntN(3) > 0 {
		return awkward[random.IntN(len(awkward))]
	}
	if random.IntN(2) == 0 {
		list := make([]any, random.IntN(20))
		for i := range list {
			list[i] = anything(random, depth-1)
		}
		return list
	}
	keys := []string{"spec", "metadata", "kind", "status", "conditions", "name", "uid", "deletionTimestamp", "finalizers", "Ready", "", "\x00"}
	object := map[string]any{}
	for range random.IntN(6) {
		object[keys[random.IntN(len(keys))]] = anything(random, depth-1)
	}
	return object
}

// damaged changes, cuts or doubles some bytes.
func damaged(random *rand.Rand, text []byte) []byte {
	text = slices.Clone(text)
	at := random.IntN(len(text))
	switch random.IntN(3) {
	case 0:
		text[at] = byte(random.IntN(256))
	case 1:
		text = text[:at]
	default:
		text = slices.Insert(text, at, noise(random, 1+random.IntN(64))...)
	}
	return text
}

func noise(random *rand.Rand, length int) []byte {
	bytes := make([]byte, length)
	for i := range bytes {
		bytes[i] = byte(random.IntN(256))
	}
	return bytes
}

func decoded(document string) map[string]any {
	root := map[string]any{}
	Expect(json.Unmarshal([]byte(document), &root)).To(Succeed())
	return root
}

func encoded(value any) []byte {
	text, err := json.Marshal(value)
	Expect(err).NotTo(HaveOccurred())
	return text
}
