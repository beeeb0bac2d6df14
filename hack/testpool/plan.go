package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

const module = "github.com/resourcestack/autohealer/"

const (
	// withoutVet: make verify vets, and of a fresh clone it takes a minute and a half of a processor.
	withoutVet = "-vet=off"
	// byGo links what imports plugin, as kustomize does, without a C linker, which takes two seconds of a processor for each, and without
	// what debuggers read, which is half of a linker's time and nothing of a stack trace.
	byGo = "-ldflags=-linkmode=internal -s -w"
)

// all places: nothing else runs meanwhile.
const all = math.MaxInt64

// job is one `go test`.
type job struct {
	packages []string
	// places that it takes in the pool.
	places int64
	flags  []string
}

// The suites that take longest, the longest first: one that begins last would run alone in the end. What isn't here takes less than a minute.
// One that times what an API server waits for runs alone, before the others. A suite takes a place for each of the parts that it runs at a
// time, and two if it compiles, computes, or times a kubelet. Behind one of three come those that fill the fourth place until it ends.
// `make test` prints how long each took.
var longest = []struct {
	suite  string
	places int64
}{
	{"e2e/flood", all},
	{"e2e/clients/argocd", 1},
	{"e2e/probeconfig", 3},
	{"controllers/probeconfig", 1},
	{"e2e/operations/runbooks", 1},
	{"e2e/healthcheckregistration", 3},
	{"e2e/healthcheck", 1},
	{"e2e/clients/flux", 1},
	{"e2e/clients/envoygateway", 1},
	{"e2e/scaffold", 2},
	{"e2e/weederconfig", 2},
	{"e2e/operations/uninstall", 2},
	{"e2e/outlierpolicy", 2},
	{"e2e/conditionset/faults", 1},
	{"e2e/guardrails", 1},
	{"e2e/conditionset", 2},
	{"e2e/admission", 1},
	{"e2e/operations/freeze", 1},
	{"e2e/docs", 1},
	{"e2e/node/pod", 1},
	{"e2e/operations/rest", 1},
	{"internal/cli", 1},
	{"e2e/node/kubelet", 2},
	{"e2e/oracle", 1},
	{"internal/certs", 1},
	{"e2e/envoy", 1},
	{"e2e/operations", 1},
	{"e2e/operations/check", 1},
	{"e2e/clients", 1},
	{"e2e/certificates", 1},
	{"e2e/differential", 2},
	{"e2e/operations/undo", 1},
}

// plan orders the packages, longest first. Suites on a control plane are a job each; all others are one job, since each `go test`
// takes a second to find out what to build.
func plan(packages []string) []job {
	place := func(pkg string) int {
		for i, l := range longest {
			if pkg == module+l.suite {
				return i
			}
		}
		return len(longest)
	}
	ordered := slices.SortedStableFunc(slices.Values(packages), func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	var jobs, short []job
	rest := job{places: 2, flags: []string{withoutVet, byGo, "-timeout=15m", "-p=4"}} // some start an API server, and wait
	for _, pkg := range ordered {
		switch i := place(pkg); {
		case i < len(longest):
			jobs = append(jobs, suite(pkg, longest[i].places))
		case strings.HasPrefix(pkg, module+"e2e/"):
			short = append(short, suite(pkg, 1))
		default:
			rest.packages = append(rest.packages, pkg)
		}
	}
	if len(rest.packages) > 0 {
		jobs = append(jobs, rest)
	}
	return append(jobs, short...)
}

// suite is the job of one package. What runs end to end runs programs of ours, which the test cache doesn't notice.
func suite(pkg string, places int64) job {
	j := job{packages: []string{pkg}, places: places, flags: []string{withoutVet, byGo, "-timeout=30m"}}
	if strings.HasPrefix(pkg, module+"e2e/") {
		j.flags = append(j.flags, "-count=1")
	}
	return j
}
