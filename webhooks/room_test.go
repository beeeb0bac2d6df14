package webhooks

import (
	"fmt"
	"testing"

	"golang.org/x/time/rate"
)

func TestRoom(t *testing.T) {
	const ordinary = 4 << 10
	nobody := func() {}
	fill := func(r *room, from string, n int, bytes int64, come bool) (places []*place) {
		for range n {
			p := r.take(from, bytes, nobody)
			if p == nil {
				break
			}
			if come {
				r.arrived(p)
			}
			places = append(places, p)
		}
		return places
	}
	for name, c := range map[string]func(r *room) error{
		"an address has a quarter of the places": func(r *room) error {
			return want(len(fill(r, "a", 1000, ordinary, true)), requestsOfAll/4)
		},
		"and a quarter of the bytes": func(r *room) error {
			return want(len(fill(r, "a", 1000, 512<<10, true)), 8)
		},
		"others have places then": func(r *room) error {
			fill(r, "a", 1000, ordinary, true)
			return want(len(fill(r, "b", 1, ordinary, true)), 1)
		},
		"all together have a bound": func(r *room) error {
			all := 0
			for i := range 100 {
				all += len(fill(r, fmt.Sprint(i), 1000, ordinary, true))
			}
			return want(all, requestsOfAll)
		},
		"who leaves makes room": func(r *room) error {
			r.leave(fill(r, "a", 1000, ordinary, true)[3])
			return want(len(fill(r, "a", 1000, ordinary, true)), 1)
		},
		"the one that has been coming for longest loses its place": func(r *room) error {
			come, cut := fill(r, "a", 10, ordinary, true), 0
			slow := r.take("a", ordinary, func() { cut++ })
			next := r.take("a", ordinary, func() { cut += 100 })
			fill(r, "a", requestsOfOne-12, ordinary, false)
			if r.take("a", ordinary, nobody) == nil {
				return fmt.Errorf("no place, though bodies don't come")
			}
			return want(fmt.Sprint(r.arrived(slow), r.arrived(next), r.arrived(come[0]), cut), "false true true 1")
		},
		"of all addresses, when all places are taken": func(r *room) error {
			slow := r.take("slow", ordinary, nobody)
			for i := range 10 {
				fill(r, fmt.Sprint(i), requestsOfOne, ordinary, true)
			}
			return want(r.take("new", ordinary, nobody) != nil || r.arrived(slow), false) // the flood took it
		},
		"of large ones there is one at a time, beside the others": func(r *room) error {
			fill(r, "a", 1000, ordinary, true)
			large := r.take("a", ordinaryBody+1, nobody)
			if large == nil || r.take("b", ordinaryBody+1, nobody) != nil {
				return fmt.Errorf("not one large one")
			}
			r.leave(large)
			return want(r.take("b", ordinaryBody+1, nobody) != nil, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c(&room{}); err != nil {
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
	b := &bounded{from: map[string]*caller{}}
	admitted := func(from string, tries int) (n int) {
		for range tries {
			if b.admit(from) {
				n++
			}
		}
		return n
	}
	if n := admitted("a", 1000); n < newAtOnce || n > newAtOnce+newPerSecond {
		t.Errorf("%d at once", n)
	}
	if n := admitted("b", 1); n != 1 {
		t.Error("another address finds no room")
	}
	b.from["c"] = &caller{made: rate.NewLimiter(rate.Inf, newAtOnce)}
	if n := admitted("c", 1000); n != connectionsOfOne {
		t.Errorf("%d of one address", n)
	}
	b.leave("c")
	if n := admitted("c", 1000); n != 1 {
		t.Error("who leaves makes no room")
	}
	for i := range 3 * connections {
		if from := fmt.Sprint(i); b.admit(from) {
			b.leave(from)
		}
	}
	if n := len(b.from); n > connections {
		t.Errorf("%d addresses are remembered", n)
	}
	if b.all != b.from["a"].open+b.from["b"].open+b.from["c"].open {
		t.Errorf("%d are open", b.all)
	}
}
