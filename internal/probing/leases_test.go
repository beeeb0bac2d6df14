package probing

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/internal/domain/probe"
)

var terms = probe.LeaseSettings{FailureFraction: 0.6, Grace: 50 * time.Second, MinCandidates: 2, MaxProtection: time.Hour}

// cluster answers as an API server with nodes does, in pages.
type cluster struct {
	nodes  []metav1.PartialObjectMetadata
	leases []coordinationv1.Lease
	// instead answers lists, unless it is nil; ofNodes those of whole Nodes, of which at fault has conditions.
	instead, ofNodes http.HandlerFunc
	atFault          map[string]corev1.NodeCondition
	date             time.Time
	asked            int
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/version" {
		answerVersion(w, r)
		return
	}
	c.asked++
	if c.instead != nil {
		c.instead(w, r)
		return
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	var page runtime.Object
	switch accept := r.Header.Get("Accept"); r.URL.Path + " " + accept {
	case "/api/v1/nodes application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1":
		items, next := cut(c.nodes, from, limit)
		page = &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: metav1.ListMeta{Continue: next}, Items: items}
	case "/api/v1/nodes application/vnd.kubernetes.protobuf":
		if c.ofNodes != nil {
			c.ofNodes(w, r)
			return
		}
		items, next := cut(c.nodes, from, limit)
		list := &corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{Continue: next}}
		for _, meta := range items {
			list.Items = append(list.Items, corev1.Node{ObjectMeta: meta.ObjectMeta, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{c.atFault[meta.Name]}}})
		}
		page = list
	case "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases application/vnd.kubernetes.protobuf":
		items, next := cut(c.leases, from, limit)
		page = &coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"}, ListMeta: metav1.ListMeta{Continue: next}, Items: items}
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Date", c.date.Format(http.TimeFormat))
	_ = chunkDecoder.Encode(page, w)
}

func cut[T any](all []T, from, limit int) ([]T, string) {
	to := min(from+limit, len(all))
	if to < len(all) {
		return all[from:to], strconv.Itoa(to)
	}
	return all[from:to], ""
}

func (c *cluster) addNode(name string) {
	c.nodes = append(c.nodes, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

func (c *cluster) addLease(name string, renewed *metav1.MicroTime) {
	c.leases = append(c.leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: renewed}})
}

// probeLeases runs a target with NodeLeases once.
func (c *cluster) probeLeases(t *testing.T) (probe.Run, *stub) {
	t.Helper()
	s := startStub(t, c.ServeHTTP)
	p, h := startProber(t)
	target := Target{Internal: credentials("1", s.kubeconfig()), External: credentials("2", s.outside()), Timeout: time.Minute, NodeLeases: &terms}
	if err := p.Set(one, target, h.clock.Now()); err != nil {
		t.Fatal(err)
	}
	run := h.nextRun(t)
	if run.External == nil || run.External.Class != "OK" {
		t.Fatalf("%+v", run)
	}
	return run, s
}

func TestLeasesOfNodes(t *testing.T) {
	date := time.Date(2026, 11, 21, 11, 58, 0, 0, time.UTC)
	renewed := metav1.NewMicroTime(date.Add(-4500 * time.Millisecond))
	c := &cluster{date: date}
	c.addNode("steady")
	c.addNode("new")
	c.addNode("leaving")
	c.nodes[2].DeletionTimestamp = &metav1.Time{Time: date}
	c.addLease("steady", &renewed)
	c.addLease("new", nil)
	c.addLease("leaving", &renewed)
	c.addLease("gone", &renewed)
	run, s := c.probeLeases(t)
	want := []probe.NodeLease{{Node: "steady", Renewed: renewed.Time}, {Node: "new"}}
	if diff := cmp.Diff(want, run.Leases); diff != "" {
		t.Errorf("leases differ (-want +got):\n%s", diff)
	}
	if !run.ServerTime.Equal(date) {
		t.Errorf("the server's time is %s", run.ServerTime)
	}
	s.expectDialled(t, 2) // leases take the external probe's connection
}

// TestFaultyNodesAreReadOnlyWhenLeasesLookExpired: whole nodes are large, and a healthy cluster doesn't need them.
func TestFaultyNodesAreReadOnlyWhenLeasesLookExpired(t *testing.T) {
	fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	for name, tt := range map[string]struct {
		seconds [3]int
		ofNodes http.HandlerFunc
		faulty  [3]bool
		asked   int
	}{
		"most look expired":               {[3]int{99, 99, 1}, nil, [3]bool{true, false, true}, 3},
		"most are renewed":                {[3]int{99, 1, 1}, nil, [3]bool{}, 2},
		"most look expired, and it fails": {[3]int{99, 99, 1}, fails, [3]bool{}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{date: time.Now(), ofNodes: tt.ofNodes, atFault: map[string]corev1.NodeCondition{
				"n0": {Type: "KernelDeadlock", Status: "True"}, "n1": {Type: "Ready", Status: "Unknown"}, "n2": {Type: "DiskPressure", Status: "True"},
			}}
			want := []probe.NodeLease{}
			for i, age := range tt.seconds {
				renewed := metav1.NewMicroTime(c.date.Add(-time.Duration(age) * time.Second).Truncate(time.Microsecond))
				node := fmt.Sprint("n", i)
				c.addNode(node)
				c.addLease(node, &renewed)
				want = append(want, probe.NodeLease{Node: node, Renewed: renewed.Time, Faulty: tt.faulty[i]})
			}
			run, _ := c.probeLeases(t)
			if diff := cmp.Diff(want, run.Leases); diff != "" || c.asked != tt.asked {
				t.Errorf("asked %d times, want %d; leases differ (-want +got):\n%s", c.asked, tt.asked, diff)
			}
		})
	}
}

// TestNodesThatTakeTooLongAreLeftOut: in a large cluster they may, in the middle of its outage.
func TestNodesThatTakeTooLongAreLeftOut(t *testing.T) {
	c := &cluster{date: time.Now(), ofNodes: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}
	for _, node := range []string{"a", "b"} {
		c.addNode(node)
		c.addLease(node, &metav1.MicroTime{Time: c.date.Add(-time.Minute)})
	}
	s := startStub(t, c.ServeHTTP)
	p, h := startProber(t)
	p.listTimeout = time.Second
	target := Target{Internal: credentials("1", s.kubeconfig()), External: credentials("2", s.outside()), Timeout: time.Minute, NodeLeases: &terms}
	if err := p.Set(one, target, h.clock.Now()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second isn't one of those that were slow
		if run := h.nextRun(t); len(run.Leases) != 2 {
			t.Errorf("%d leases: %+v", len(run.Leases), run.ListError)
		}
	}
}

func TestManyLeasesComeInPages(t *testing.T) {
	now := metav1.NewMicroTime(time.Now())
	c := &cluster{date: time.Now()}
	for i := range 1050 {
		c.addNode(fmt.Sprint("node-", i))
		c.addLease(fmt.Sprint("node-", i), &now)
	}
	if run, _ := c.probeLeases(t); len(run.Leases) != 1050 || c.asked != 22 {
		t.Errorf("%d leases from %d pages", len(run.Leases), c.asked)
	}
}

func TestListsHonorRetryAfter(t *testing.T) {
	c := &cluster{date: time.Now(), instead: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "25")
		w.WriteHeader(http.StatusTooManyRequests)
	}}
	s := startStub(t, c.ServeHTTP)
	p, h := startProber(t)
	target := Target{Internal: credentials("1", s.kubeconfig()), External: credentials("2", s.outside()), Timeout: time.Minute, NodeLeases: &terms}
	if err := p.Set(one, target, h.clock.Now()); err != nil {
		t.Fatal(err)
	}
	for i, asked := range []int{1, 1, 1, 2} { // after 0, 10, 20 and 30 s
		run := h.nextRun(t)
		if run.External.Class != "OK" || run.ListError.Class != "TooManyRequests" || c.asked != asked {
			t.Errorf("run %d: external %s, list %s, asked %d times, want %d", i, run.External.Class, run.ListError.Class, c.asked, asked)
		}
	}
}

func TestAClusterWithoutNodesHasAnEmptyList(t *testing.T) {
	if run, _ := (&cluster{date: time.Now()}).probeLeases(t); run.Leases == nil || len(run.Leases) != 0 {
		t.Errorf("%#v", run.Leases)
	}
}

// endlessNodes answers lists with nodes of a name, and says that there are more.
func endlessNodes(n int, name func(i int) string) http.HandlerFunc {
	page := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, ListMeta: metav1.ListMeta{Continue: "more"}}
	for i := range n {
		page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name(i)}})
	}
	return func(w http.ResponseWriter, _ *http.Request) { _ = chunkDecoder.Encode(page, w) }
}

func TestLeasesThatCannotBeListedAreUnknown(t *testing.T) {
	var pageOf atomic.Int64
	tests := map[string]struct {
		instead http.HandlerFunc
		asked   int
		want    probe.Outcome
	}{
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, 1, probe.Outcome{Class: "Forbidden", Detail: "HTTP status 403"}},
		"JSON": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"kind":"NodeList"}`)) }, 1,
			probe.Outcome{Class: "UnexpectedAnswer", Detail: "the answer to a list of nodes or leases isn't an API server's"},
		},
		"too large, however few are asked for": {
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2<<20)) }, 7,
			probe.Outcome{Class: "UnexpectedAnswer", Detail: "one node or lease alone has more than 1 MiB"},
		},
		"no date": {
			func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Date"] = nil
				_ = chunkDecoder.Encode(&metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}}, w)
			}, 1,
			probe.Outcome{Class: "UnexpectedAnswer", Detail: "the answer to a list of nodes or leases has no Date header, by which leases are judged"},
		},
		"endless":                           {endlessNodes(0, nil), 400, tooLong},
		"more nodes than any cluster has":   {endlessNodes(21_000, func(i int) string { return fmt.Sprint(i) }), 1, tooLong},
		"a name longer than Kubernetes has": {endlessNodes(1, func(int) string { return strings.Repeat("a", 254) }), 1, tooLong},
		"more names than any cluster has": {func(w http.ResponseWriter, r *http.Request) {
			page := pageOf.Add(1)
			endlessNodes(3000, func(i int) string { return fmt.Sprintf("%0253d", int(page)*3000+i) })(w, r)
		}, 6, tooLong},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cluster{instead: tt.instead}
			run, _ := c.probeLeases(t)
			if run.Leases != nil || !run.ServerTime.IsZero() || run.ListError != tt.want {
				t.Errorf("%d leases at %s: %+v", len(run.Leases), run.ServerTime, run.ListError)
			}
			if c.asked != tt.asked {
				t.Errorf("asked for %d pages", c.asked)
			}
		})
	}
}

var tooLong = probe.Outcome{Class: "UnexpectedAnswer", Detail: "the list of nodes or leases is longer than any cluster's"}

// TestPagesBecomeSmallerWhereNodesAreLarge: each node here has 15 KiB of annotations.
func TestPagesBecomeSmallerWhereNodesAreLarge(t *testing.T) {
	now := metav1.NewMicroTime(time.Now())
	c := &cluster{date: time.Now()}
	for i := range 120 {
		c.addNode(fmt.Sprint("node-", i))
		c.nodes[i].Annotations = map[string]string{"example.com/much": strings.Repeat("x", 15<<10)}
		c.addLease(fmt.Sprint("node-", i), &now)
	}
	run, _ := c.probeLeases(t)
	if len(run.Leases) != 120 || run.ListError != (probe.Outcome{}) {
		t.Errorf("%d leases: %+v", len(run.Leases), run.ListError)
	}
	if c.asked != 6 { // of nodes 100, which is too much, and then 50, 50, 20; of leases 100 and 20
		t.Errorf("asked for %d pages", c.asked)
	}
}
