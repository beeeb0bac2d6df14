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
	fill := func(r *room, from string, n int, bytes int64, come bool) (places []*place) {
		for range n {
			p := r.take(from, bytes, noon, nobody)
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
			return want(len(fill(r, "a", 1000, 512<<10, true)), 4)
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
			slow := r.take("a", ordinary, noon, func() { cut++ })
			next := r.take("a", ordinary, noon, func() { cut += 100 })
			fill(r, "a", requestsOfOne-12, ordinary, false)
			if r.take("a", ordinary, noon, nobody) == nil {
				return fmt.Errorf("no place, though bodies don't come")
			}
			return want(fmt.Sprint(r.arrived(slow), r.arrived(next), r.arrived(come[0]), cut), "false true true 1")
		},
		"nobody loses a place for one that finds none all the same": func(r *room) error {
			slow := r.take("a", ordinary, noon, nobody)
			fill(r, "a", 3, ordinaryBody, true)
			return want(fmt.Sprint(r.take("a", ordinaryBody, noon, nobody) != nil, r.arrived(slow)), "false true")
		},
		"of all addresses the one with most loses one": func(r *room) error {
			honest := r.take("honest", ordinary, noon, nobody)
			for i := range 4 {
				fill(r, fmt.Sprint(i), requestsOfOne, ordinary, false)
			}
			return want(fmt.Sprint(r.take("new", ordinary, noon, nobody) != nil, r.arrived(honest)), "true true")
		},
		"a large one that doesn't come loses its place": func(r *room) error {
			slow := r.take("a", ordinaryBody+1, noon, nobody)
			soon, late := r.take("b", ordinaryBody+1, noon.Add(largeTakes/2), nobody), r.take("b", ordinaryBody+1, noon.Add(largeTakes), nobody)
			return want(fmt.Sprint(soon != nil, late != nil, r.arrived(slow)), "false true false")
		},
		"of large ones there is one at a time, beside the others": func(r *room) error {
			fill(r, "a", 1000, ordinary, true)
			large := r.take("a", ordinaryBody+1, noon, nobody)
			r.arrived(large)
			if r.take("b", ordinaryBody+1, noon, nobody) != nil {
				return fmt.Errorf("not one large one")
			}
			r.leave(large)
			return want(r.take("b", ordinaryBody+1, noon, nobody) != nil, true)
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
	open := map[string][]*counted{}
	admitted := func(from string, tries int) (n int) {
		for range tries {
			c := &counted{from: from}
			if _, ok := b.admit(c); ok {
				n++
				open[from] = append(open[from], c)
			}
		}
		return n
	}
	patient := func(from string) {
		b.from[from] = &caller{open: map[*counted]bool{}, made: rate.NewLimiter(rate.Inf, newAtOnce)}
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
	if b.all > connections {
		t.Errorf("%d are open", b.all)
	}
	if n := admitted("new", 2); n != 1 { // all others have one
		t.Errorf("%d of a new address", n)
	}
	if b.all > connections {
		t.Errorf("%d are open", b.all)
	}
	for i := range 3 * connections {
		admitted(fmt.Sprint("one of many ", i), 1)
	}
	if n := len(b.from); n > 2*connections {
		t.Errorf("%d addresses are remembered", n)
	}
}
