package condition

import (
	"iter"
	"math/bits"
)

// nodeBits is a set of nodes by their slots. Meeting two of them costs a machine word for 64 nodes, so that a question
// about all nodes costs about the same for ten as for five thousand.
type nodeBits []uint64

func (b nodeBits) has(slot int) bool { return slot/64 < len(b) && b[slot/64]&(1<<(slot%64)) != 0 }

func (b *nodeBits) put(slot int, in bool) (changed bool) {
	if b.has(slot) == in {
		return false
	}
	for len(*b) <= slot/64 {
		*b = append(*b, 0)
	}
	(*b)[slot/64] ^= 1 << (slot % 64)
	return true
}

// keep leaves only what is in other, too.
func (b nodeBits) keep(other nodeBits) {
	for i := range b {
		if i < len(other) {
			b[i] &= other[i]
		} else {
			b[i] = 0
		}
	}
}

// drop takes out what is in other.
func (b nodeBits) drop(other nodeBits) {
	for i := range min(len(b), len(other)) {
		b[i] &^= other[i]
	}
}

// join takes in what is in other.
func (b *nodeBits) join(other nodeBits) {
	for len(*b) < len(other) {
		*b = append(*b, 0)
	}
	for i, word := range other {
		(*b)[i] |= word
	}
}

func (b nodeBits) count() int {
	n := 0
	for _, word := range b {
		n += bits.OnesCount64(word)
	}
	return n
}

func (b nodeBits) empty() bool {
	for _, word := range b {
		if word != 0 {
			return false
		}
	}
	return true
}

// meets says whether some node is in both.
func (b nodeBits) meets(other nodeBits) bool {
	for i := range min(len(b), len(other)) {
		if b[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// all are the slots, the lowest first.
func (b nodeBits) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, word := range b {
			for ; word != 0; word &= word - 1 {
				if !yield(i*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

// bitsBy are sets of nodes by what they have in common. An empty one isn't kept.
type bitsBy[K comparable] map[K]*nodeBits

func (by bitsBy[K]) put(key K, slot int, in bool) {
	b := by[key]
	if b == nil {
		if !in {
			return
		}
		b = &nodeBits{}
		by[key] = b
	}
	if b.put(slot, in) && !in && b.empty() {
		delete(by, key)
	}
}

// of gives the nodes of a key, to read only.
func (by bitsBy[K]) of(key K) nodeBits {
	if b := by[key]; b != nil {
		return *b
	}
	return nil
}
