package weed

import (
	"cmp"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/lifecycle"
)

// ObserveConfig takes in a config and what it may do now, and gives the pods to decide on. A Service that it names anew is
// seen for the first time.
func (y *Yard) ObserveConfig(c *Config, state lifecycle.State, at Moment) (due []types.NamespacedName) {
	y.mu.Lock()
	defer y.mu.Unlock()
	cs := y.configs[c.UID]
	otherPolicy := cs != nil && cs.AllReady != c.AllReady
	if cs != nil && cs.Generation == c.Generation && cs.state == state {
		cs.Config = c // its status may be newer
		y.inherit(cs, at)
		return nil
	}
	if cs == nil {
		cs = &configState{seen: map[types.NamespacedName]sight{}, held: map[heldKey]Hold{}, left: left{windows: map[types.NamespacedName]Window{}}, totals: newTotals()}
		y.configs[c.UID] = cs
	} else {
		y.unname(cs)
		y.unhold(cs)
	}
	cs.Config, cs.state, cs.matches = c, state, nil
	for name := range c.Services {
		if y.naming[name] == nil {
			y.naming[name] = map[types.UID]*configState{}
		}
		y.naming[name][c.UID] = cs
	}
	y.enter(cs)
	y.inherit(cs, at)
	y.narrow(cs)
	if otherPolicy {
		y.seeAnew(cs, at)
	}
	y.touch(cs)
	y.judgeAll(cs, at)
	return y.dueFor(cs, at)
}

// unhold forgets whom the config held back: all of them are decided on again.
func (y *Yard) unhold(cs *configState) {
	for k := range cs.held {
		y.queue.leave(k.pod)
	}
	clear(cs.held)
}

// enter files a config by its name and by the pods that it claims.
func (y *Yard) enter(cs *configState) {
	y.named[cs.Key()] = cs
	scope := scopeOf(cs.Config)
	if y.claims[scope] == nil {
		y.claims[scope] = claims{}
	}
	y.claims[scope].file(cs)
}

// unname takes a config out of all that it is filed by.
func (y *Yard) unname(cs *configState) {
	if y.named[cs.Key()] == cs {
		delete(y.named, cs.Key())
	}
	scope := scopeOf(cs.Config)
	if y.claims[scope].unfile(cs); len(y.claims[scope]) == 0 {
		delete(y.claims, scope)
	}
	for name := range cs.Services {
		if delete(y.naming[name], cs.UID); len(y.naming[name]) == 0 {
			delete(y.naming, name)
		}
	}
}

// seeAnew sees the Services by another readyPolicy. That one is Ready by it is no recovery.
func (y *Yard) seeAnew(cs *configState, at Moment) {
	for key := range cs.seen {
		if y.services[key].ready(cs.AllReady) {
			y.seeUp(cs, key)
		} else {
			y.seeDown(cs, key, at)
		}
	}
}

// narrow ends what a config no longer watches, and fits the windows that stay to its watchDuration. What a window spent counts
// if the config watches its Service again before it would have ended.
func (y *Yard) narrow(cs *configState) {
	watches := func(key types.NamespacedName) bool {
		_, named := cs.Services[key.Name]
		return named && y.holds(cs, key.Namespace)
	}
	for key := range cs.seen {
		if !watches(key) {
			y.unsee(cs, key)
		}
	}
	for namespace, here := range y.windows {
		for watch, w := range here {
			switch {
			case watch.config != cs.UID:
			case !watches(watch.service):
				cs.left.windows[watch.service] = w.Window
				y.close(namespace, watch)
			default:
				w.Ends = w.Opened.Add(cs.WatchDuration)
			}
		}
	}
}

// dueFor are the pods in a config's open windows.
func (y *Yard) dueFor(cs *configState, at Moment) (due []types.NamespacedName) {
	for namespace, here := range y.windows {
		for watch, w := range here {
			if watch.config != cs.UID {
				continue
			}
			for _, p := range y.crashing[namespace] {
				if w.wants(p, at.Now) {
					due = append(due, p.Key())
				}
			}
		}
	}
	return sortedKeys(due)
}

// ForgetConfig removes a config that is gone. What it deleted still counts for the pods' workloads.
func (y *Yard) ForgetConfig(uid types.UID) {
	y.mu.Lock()
	defer y.mu.Unlock()
	cs := y.configs[uid]
	if cs == nil {
		return
	}
	for namespace, here := range y.windows {
		for watch := range here {
			if watch.config == uid {
				y.close(namespace, watch)
			}
		}
	}
	for watch := range y.unproven {
		if watch.config == uid {
			delete(y.unproven, watch)
		}
	}
	y.unname(cs)
	delete(y.configs, uid)
	delete(y.dirty, uid)
}

func compareWindows(a, b *window) int {
	return cmp.Or(a.of.Created.Compare(b.of.Created), compareKeys(a.of.Key(), b.of.Key()), strings.Compare(a.Service, b.Service))
}
