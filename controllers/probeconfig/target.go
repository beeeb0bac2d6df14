package probeconfig

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/probe"
	"github.com/resourcestack/autohealer/internal/probing"
)

// target is one namespace of one config.
type target struct {
	key probing.Key

	mu sync.Mutex
	// config as it was read last. departed: it doesn't select the namespace any more.
	config   *probe.Config
	departed bool
	// former are dependents that the config doesn't name any more, and that may have a record.
	former []probe.Dependent

	state probe.State
	// validFrom is since when runs count.
	validFrom time.Time
	// unusable says why a Secret can't be used; its zero value when both can.
	unusable      probe.Outcome
	unusableSince time.Time
	secrets       supply

	// objects are the config's dependents as they were read last; objectsOf is that config.
	objects   []probe.Object
	objectsOf *probe.Config
	flow      probe.Flow
	// protection is what is known of the one that is going on.
	protection probe.Protection
	findings   []probe.Finding
	// left are objects that keep a record although everything is to be given back.
	left []probe.Finding
	held probe.Permit
	// restored: nothing that we took is left to give back.
	restored bool
}

// fleetKey names the target in the fleet. It needs t.mu.
func (t *target) fleetKey() probe.Target {
	return probe.Target{Config: t.config.UID, Namespace: t.key.Namespace}
}

// seed spreads the target's runs.
func (t *target) seed() string { return t.key.Namespace + "/" + t.key.Config.String() }

// down says whether something of the target may be scaled down. It needs t.mu.
func (t *target) down() bool { return t.objectsOf != t.config || len(t.former) > 0 || t.taken() }

// unfinished says whether something is remembered of a scaling that the latest run may have ended. It needs t.mu.
func (t *target) unfinished() bool {
	return t.held.Reason != "" || len(t.findings) > 0 || t.flow.Direction != probe.Hold || t.protection != probe.Protection{} && !t.down()
}

// taken says whether something of the target is known to be scaled down. It needs t.mu.
func (t *target) taken() bool { return slices.ContainsFunc(t.objects, recorded) }

func recorded(o probe.Object) bool { return o.Record != nil || o.Unseen }

// mayOwe says whether something of the target may have to be given back.
func (t *target) mayOwe() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.taken() || len(t.former) > 0
}

// reset drops what runs found so far, and those that are going on: they say nothing about what is probed from now on. It
// needs t.mu.
func (t *target) reset(now time.Time) { t.state, t.validFrom = probe.State{}, now }

// follow takes in a config that is new or changed. What it doesn't name any more may have to be given back.
func (t *target) follow(c *probe.Config, departed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.config.UID != c.UID {
		t.state, t.flow, t.protection = probe.State{}, probe.Flow{}, probe.Protection{}
	}
	if was := t.config; was != c {
		for i, d := range was.Dependents {
			unknown := t.objectsOf != was || recorded(t.objects[i])
			if unknown && !names(c, d.Ref) {
				t.remember(d)
			}
		}
	}
	t.former = slices.DeleteFunc(t.former, func(d probe.Dependent) bool { return names(c, d.Ref) })
	t.restored = t.restored && t.config == c
	t.config, t.departed = c, departed
}

// remember adds a dependent that may have a record. It needs t.mu.
func (t *target) remember(d probe.Dependent) {
	if !slices.ContainsFunc(t.former, func(f probe.Dependent) bool { return f.Ref == d.Ref }) {
		t.former = append(t.former, d)
		t.restored = false
	}
}

func names(c *probe.Config, ref probe.Ref) bool {
	return slices.ContainsFunc(c.Dependents, func(d probe.Dependent) bool { return d.Ref == ref })
}

// targets are all targets of all configs. It is safe for concurrent use.
type targets struct {
	mu  sync.Mutex
	all map[probing.Key]*target
}

func (ts *targets) get(key probing.Key) *target {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.all[key]
}

// ensure gives a target, made for this config if there is none.
func (ts *targets) ensure(key probing.Key, c *probe.Config) *target {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t := ts.all[key]
	if t == nil {
		t = &target{key: key, config: c}
		if ts.all == nil {
			ts.all = map[probing.Key]*target{}
		}
		ts.all[key] = t
	}
	return t
}

func (ts *targets) forget(key probing.Key) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.all, key)
}

// of are the targets of a config, by namespace.
func (ts *targets) of(config types.NamespacedName) []*target {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var all []*target
	for key, t := range ts.all {
		if key.Config == config {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *target) int { return strings.Compare(a.key.Namespace, b.key.Namespace) })
	return all
}

func (ts *targets) keys() []probing.Key {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Collect(maps.Keys(ts.all))
}

// A controller's queue knows namespace and name only: a target's request has the config as its name.

func nameOf(key probing.Key) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Config.String()}
}

func keyOf(name types.NamespacedName) probing.Key {
	namespace, config, _ := strings.Cut(name.Name, "/")
	return probing.Key{Config: types.NamespacedName{Namespace: namespace, Name: config}, Namespace: name.Namespace}
}
