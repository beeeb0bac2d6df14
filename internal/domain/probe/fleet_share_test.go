package probe_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/resourcestack/autohealer/internal/domain/limit"
	"github.com/resourcestack/autohealer/internal/domain/probe"
)

// joinTenant takes in a healthy target of a tenant's config.
func joinTenant(f *probe.Fleet, t probe.TargetKey) {
	f.Add(t, true)
	f.SetActive(t, true, start)
	f.ObserveDown(t, false)
	f.ObserveRun(t, healthy(start), start)
}

// tenants have so many configs in each of so many namespaces.
func tenants(f *probe.Fleet, namespaces, configs int) (all [][]probe.TargetKey) {
	for n := range namespaces {
		var of []probe.TargetKey
		for c := range configs {
			at := probe.TargetKey{Config: types.UID(string(rune('A'+n)) + "-" + string(rune('0'+c))), Namespace: "tenant-" + string(rune('a'+n))}
			joinTenant(f, at)
			of = append(of, at)
		}
		all = append(all, of)
	}
	return all
}

// takeAll scales down what may be, and says how many that is.
func takeAll(f *probe.Fleet, all []probe.TargetKey) (n int, refused string) {
	for _, at := range all {
		if p := f.AcquireScaleDown(at, start); p.Allowed {
			n++
		} else {
			refused = p.Message
		}
	}
	return n, refused
}

func TestATenantTakesNoMoreThanItsShareOfTheCap(t *testing.T) {
	f := fleetOf(0)
	all := tenants(f, 4, 5)
	n, refused := takeAll(f, all[0])
	if n != 1 || refused != "1 of 5 targets of namespace tenant-a are scaled down, and its share of maxScaledDownTargets 20% is 1" {
		t.Errorf("one tenant took %d of 4 places: %s", n, refused)
	}
	for _, of := range all[1:] {
		if n, refused := takeAll(f, of); n != 1 {
			t.Errorf("another got %d: %s", n, refused)
		}
	}
}

func TestTenantsTogetherLeaveOthersTheirShare(t *testing.T) {
	for name, most := range map[string]intstr.IntOrString{"a percentage": intstr.FromString("20%"), "a number": intstr.FromInt32(6)} {
		f := fleetOf(20)
		f.SetLimits(limit.Limits{MaxScaledDownTargets: limit.CapOf(most)})
		n, refused := 0, ""
		for _, of := range tenants(f, 10, 1) {
			taken, why := takeAll(f, of)
			n, refused = n+taken, why
		}
		if n != 2 || refused != "2 of 10 targets of tenants are scaled down, and maxScaledDownTargets "+most.String()+" allows them 2" {
			t.Errorf("%s: tenants took %d of 6 places, want a third: %s", name, n, refused)
		}
		for i := range 4 {
			if p := f.AcquireScaleDown(target("a", i), start); !p.Allowed {
				t.Errorf("%s: target %d of Autohealer's own namespace: %+v", name, i, p)
			}
		}
		if p := f.AcquireScaleDown(target("a", 4), start); p.Allowed {
			t.Errorf("%s: the cap doesn't hold", name)
		}
	}
}

func TestWhatIsntKnownOfATenantCountsForItAlone(t *testing.T) {
	f := fleetOf(0)
	all := tenants(f, 4, 5)
	f.Add(probe.TargetKey{Config: "new", Namespace: "tenant-a"}, true)
	if p := f.AcquireScaleDown(all[0][0], start); p.Allowed || p.Message != "0 of 5 targets of namespace tenant-a are scaled down, and its share of maxScaledDownTargets 20% is 1; of 1 it isn't known yet" {
		t.Errorf("the tenant: %+v", p)
	}
	if p := f.AcquireScaleDown(all[1][0], start); !p.Allowed {
		t.Errorf("another: %+v", p)
	}
}

// The only tenant is nobody's neighbour.
func TestTheOnlyTenantMayUseTheWholeCap(t *testing.T) {
	f := fleetOf(0)
	all := tenants(f, 1, 9)
	f.SetLimits(limit.Limits{MaxScaledDownTargets: limit.CapOf(intstr.FromInt32(4))})
	if n, refused := takeAll(f, all[0]); n != 4 {
		t.Errorf("it got %d: %s", n, refused)
	}
}

// Whatever comes and goes: all have no more than the cap, and tenants no more than is theirs.
func TestSharesHoldWhateverHappens(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		f := probe.NewFleet(limit.Builtin())
		own := rapid.IntRange(0, 30).Draw(r, "own")
		var all []probe.TargetKey
		for i := range own {
			join(f, target("a", i), start)
			all = append(all, target("a", i))
		}
		tenanted := map[probe.TargetKey]bool{}
		for n := range rapid.IntRange(0, 6).Draw(r, "namespaces") {
			for c := range rapid.IntRange(1, 6).Draw(r, "configs") {
				at := probe.TargetKey{Config: types.UID([]byte{byte('A' + n), byte('0' + c)}), Namespace: string(rune('a' + n))}
				joinTenant(f, at)
				all, tenanted[at] = append(all, at), true
			}
		}
		if len(all) == 0 {
			return
		}
		most := rapid.IntRange(1, len(all)).Draw(r, "most")
		f.SetLimits(limit.Limits{MaxScaledDownTargets: limit.CapOf(intstr.FromInt32(int32(most)))})
		down := map[probe.TargetKey]bool{}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			at := rapid.SampledFrom(all).Draw(r, "target")
			if rapid.Bool().Draw(r, "down") {
				down[at] = f.AcquireScaleDown(at, start).Allowed
			} else {
				f.ObserveDown(at, false)
				down[at] = false
			}
			ofTenants, total := 0, 0
			for at, is := range down {
				if is {
					total++
					if tenanted[at] {
						ofTenants++
					}
				}
			}
			if total > most {
				r.Fatalf("%d are down with a cap of %d", total, most)
			}
			if reserved := most * own / len(all); ofTenants > most-reserved {
				r.Fatalf("tenants have %d of %d places, of which %d are reserved", ofTenants, most, reserved)
			}
			if n, all := f.Counts(); all != total || n != len(tenanted)+own {
				r.Fatalf("it counts %d of %d, want %d", all, n, total)
			}
		}
	})
}

func TestWhoHadATurnLetsOthersGoUpFirst(t *testing.T) {
	f := fleetOf(0)
	f.SetLimits(limit.Limits{MaxScaledDownTargets: limit.CapOf(intstr.FromString("100%"))})
	all := tenants(f, 3, 10)
	crowd, one, another := all[0], all[1][0], all[2][0]
	more := probe.TargetKey{Config: "more", Namespace: "tenant-a"}
	joinTenant(f, more)
	for _, at := range append(slices.Clone(crowd), more, one, another) {
		if p := f.AcquireScaleDown(at, start); !p.Allowed {
			t.Fatalf("%+v", p)
		}
	}
	for _, at := range crowd {
		if p := f.AcquireScaleUp(at, start.Add(time.Second)); !p.Allowed {
			t.Fatalf("of ten, with nobody else waiting: %+v", p)
		}
	}
	if p := f.AcquireScaleUp(one, start.Add(2*time.Second)); p.Allowed || !p.RequeueAt.Equal(start.Add(61*time.Second)) {
		t.Errorf("an eleventh: %+v", p)
	}
	late := start.Add(62 * time.Second)
	if p := f.AcquireScaleUp(more, late); !p.Allowed {
		t.Errorf("its namespace had no turn within a minute: %+v", p)
	}
	for _, at := range crowd[:2] {
		f.ObserveDown(at, false)
		f.AcquireScaleDown(at, late)
	}
	p := f.AcquireScaleUp(crowd[0], late)
	if p.Allowed || p.Reason != "ScaleUpPaced" || !p.RequeueAt.Equal(late.Add(time.Second)) {
		t.Errorf("its namespace has had a turn, and another waits: %+v", p)
	}
	if p := f.AcquireScaleUp(one, late); !p.Allowed {
		t.Errorf("the one that waits: %+v", p)
	}
	if p := f.AcquireScaleUp(crowd[0], late.Add(time.Second)); !p.Allowed {
		t.Errorf("nobody else waits: %+v", p)
	}
}

func TestNobodyWaitsForWhoDoesntAskAgain(t *testing.T) {
	f := fleetOf(0)
	f.SetLimits(limit.Limits{MaxScaledDownTargets: limit.CapOf(intstr.FromString("100%"))})
	all := tenants(f, 2, 10)
	crowd, gone := all[0], all[1][0]
	for _, at := range append(slices.Clone(crowd), gone) {
		f.AcquireScaleDown(at, start)
	}
	for _, at := range crowd {
		f.AcquireScaleUp(at, start)
	}
	f.AcquireScaleUp(gone, start)
	late := start.Add(time.Minute)
	for i, want := range []bool{true, false} {
		f.ObserveDown(crowd[i], false)
		f.AcquireScaleDown(crowd[i], late)
		if p := f.AcquireScaleUp(crowd[i], late); p.Allowed != want {
			t.Errorf("target %d: %+v", i, p)
		}
	}
	if p := f.AcquireScaleUp(crowd[1], late.Add(2*time.Second)); !p.Allowed {
		t.Errorf("it waits for one that turned unhealthy again: %+v", p)
	}
}
