package webhooks

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

func TestRoom(t *testing.T) {
	const ordinary = 4 << 10
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	nobody := func() {}
	fill := func(r *requestLimiter, from string, n int, bytes int64, come bool) (places []*requestSlot) {
		for range n {
			p := r.acquire(from, bytes, noon, nobody)
			if p == nil {
				break
			}
			if come {
				r.bodyRead(p)
			}
			places = append(places, p)
		}
		return places
	}
	for name, c := range map[string]func(r *requestLimiter) error{
		"an address has a quarter of the places": func(r *requestLimiter) error {
			return want(len(fill(r, "a", 1000, ordinary, true)), requestsOfAll/4)
		},
		"and a quarter of the bytes": func(r *requestLimiter) error {
			return want(len(fill(r, "a", 1000, 512<<10, true)), 4)
		},
		"others have places then": func(r *requestLimiter) error {
			fill(r, "a", 1000, ordinary, true)
			return want(len(fill(r, "b", 1, ordinary, true)), 1)
		},
		"all together have a bound": func(r *requestLimiter) error {
			all := 0
			for i := range 100 {
				all += len(fill(r, fmt.Sprint(i), 1000, ordinary, true))
			}
			return want(all, requestsOfAll)
		},
		"who leaves makes room": func(r *requestLimiter) error {
			r.release(fill(r, "a", 1000, ordinary, true)[3])
			return want(len(fill(r, "a", 1000, ordinary, true)), 1)
		},
		"the one that has been coming for longest loses its place": func(r *requestLimiter) error {
			come, cut := fill(r, "a", 10, ordinary, true), 0
			slow := r.acquire("a", ordinary, noon, func() { cut++ })
			next := r.acquire("a", ordinary, noon, func() { cut += 100 })
			fill(r, "a", requestsOfOne-12, ordinary, false)
			if r.acquire("a", ordinary, noon, nobody) == nil {
				return fmt.Errorf("no place, though bodies don't come")
			}
			return want(fmt.Sprint(r.bodyRead(slow), r.bodyRead(next), r.bodyRead(come[0]), cut), "false true true 1")
		},
		"nobody loses a place for one that finds none all the same": func(r *requestLimiter) error {
			slow := r.acquire("a", ordinary, noon, nobody)
			fill(r, "a", 3, ordinaryBody, true)
			return want(fmt.Sprint(r.acquire("a", ordinaryBody, noon, nobody) != nil, r.bodyRead(slow)), "false true")
		},
		"of all addresses the one with most loses one": func(r *requestLimiter) error {
			honest := r.acquire("honest", ordinary, noon, nobody)
			for i := range 4 {
				fill(r, fmt.Sprint(i), requestsOfOne, ordinary, false)
			}
			return want(fmt.Sprint(r.acquire("new", ordinary, noon, nobody) != nil, r.bodyRead(honest)), "true true")
		},
		"a large one that doesn't come loses its place": func(r *requestLimiter) error {
			slow := r.acquire("a", ordinaryBody+1, noon, nobody)
			soon, late := r.acquire("b", ordinaryBody+1, noon.Add(largeBodyTimeout/2), nobody), r.acquire("b", ordinaryBody+1, noon.Add(largeBodyTimeout), nobody)
			return want(fmt.Sprint(soon != nil, late != nil, r.bodyRead(slow)), "false true false")
		},
		"of large ones there is one at a time, beside the others": func(r *requestLimiter) error {
			fill(r, "a", 1000, ordinary, true)
			large := r.acquire("a", ordinaryBody+1, noon, nobody)
			r.bodyRead(large)
			if r.acquire("b", ordinaryBody+1, noon, nobody) != nil {
				return fmt.Errorf("not one large one")
			}
			r.release(large)
			return want(r.acquire("b", ordinaryBody+1, noon, nobody) != nil, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c(&requestLimiter{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func want[T comparable](got, want T) error {
	if got != want {
		return fmt.Errorf("%v instead of %v", got, want)
	}
	return nil
}

func TestConnectionsOfAnAddressAreBounded(t *testing.T) {
	b := &limitedListener{peers: map[string]*peer{}}
	open := map[string][]*limitedConn{}
	admitted := func(from string, tries int) (n int) {
		for range tries {
			c := &limitedConn{address: from}
			if _, ok := b.admit(c); ok {
				n++
				open[from] = append(open[from], c)
			}
		}
		return n
	}
	patient := func(from string) {
		b.peers[from] = &peer{open: map[*limitedConn]bool{}, accepted: rate.NewLimiter(rate.Inf, newBurst)}
	}
	if n := admitted("a", 1000); n != connectionsOfOne {
		t.Errorf("%d of one address", n)
	}
	b.forget(open["a"][0])
	if n := admitted("a", 1000); n != 1 {
		t.Error("who leaves makes no room")
	}
	made := 0
	for ; made < 1000 && len(open["a"]) > 0; made++ {
		b.forget(open["a"][0])
		open["a"] = open["a"][1:]
		admitted("a", 1)
	}
	if made == 1000 {
		t.Error("an address may make a thousand at once")
	}
	for i := range connections {
		patient(fmt.Sprint(i))
		admitted(fmt.Sprint(i), connectionsOfOne)
	}
	if b.total > connections {
		t.Errorf("%d are open", b.total)
	}
	if n := admitted("new", 2); n != 1 { // all others have one
		t.Errorf("%d of a new address", n)
	}
	if b.total > connections {
		t.Errorf("%d are open", b.total)
	}
	for i := range 3 * connections {
		admitted(fmt.Sprint("one of many ", i), 1)
	}
	if n := len(b.peers); n > 2*connections {
		t.Errorf("%d addresses are remembered", n)
	}
}
