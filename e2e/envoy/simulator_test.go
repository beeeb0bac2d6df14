package envoy

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/detector"
	"github.com/resourcestack/autohealer/internal/xds"
)

// recording is what a client of an Envoy saw, as `plan --trace` reads it.
type recording struct {
	t     *testing.T
	envoy *Envoy
	hosts []*Backend
	// began is when a sweep was: Envoy's sweeps are a second apart from then on.
	began time.Time
	lines []string
}

// ask sends one request and notes who answered it with what. A host that was found failing is ejected when it returns.
func (r *recording) ask() {
	r.t.Helper()
	status, host := r.envoy.Get("web")
	if host == "" {
		return // nobody was left to ask
	}
	r.lines = append(r.lines, fmt.Sprintf("%s,%s,%d", time.Since(r.began), host, status))
	if status >= 500 {
		if _, err := r.envoy.adminText("/ready"); err != nil { // the thread that answers is the one that ejects, in turn
			r.t.Fatal(err)
		}
	}
}

// allBack waits until nobody is ejected, and gives when that was.
func (r *recording) allBack() time.Time {
	r.t.Helper()
	NewWithT(r.t).Eventually(func() []string { return r.envoy.Ejected(web) }, "20s", "5ms").Should(BeEmpty())
	return time.Now()
}

// record finds out when Envoy sweeps, and gives nil where an ejection ended so close to a sweep that a few milliseconds decided by
// which one: then nobody can tell. Envoy sweeps from when it got the cluster, and so does the first ejection come: later is a way out.
func record(t *testing.T, policy *outlier.Policy, hosts int, later time.Duration) *recording {
	t.Helper()
	c := serve(t, xds.Options{})
	key, _ := outlier.ParseKey(web)
	cluster, err := outlier.NewCluster(&outlier.Assignment{Key: key, Policy: policy})
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{t: t, hosts: backends(t, hosts)}
	c.hosts(web, r.hosts...)
	c.snapshot.Clusters[web], c.snapshot.Owners[web] = cluster, types.NamespacedName{Namespace: "shop", Name: "web"}
	c.publish()
	r.envoy = c.envoy(Listener{Name: "web", Cluster: web})
	c.acked(web, 1)
	NewWithT(t).Eventually(func() []Host { return r.envoy.Hosts(web) }, "10s").Should(HaveLen(hosts))

	<-time.After(later)
	r.began = time.Now()
	r.hosts[0].Answer(500)
	NewWithT(t).Eventually(func() []string { r.ask(); return r.envoy.Ejected(web) }, "10s", "1ms").Should(HaveLen(1))
	ejected := time.Now()
	r.hosts[0].Answer(200)
	swept := r.allBack()
	if over := swept.Sub(ejected) - time.Second; over < 100*time.Millisecond || over > 900*time.Millisecond {
		return nil
	}
	sweeps := swept.Sub(r.began)/time.Second + 1
	shift := sweeps*time.Second - swept.Sub(r.began) // the cluster is that much older, but for whole sweeps
	for i, line := range r.lines {
		at, rest, _ := strings.Cut(line, ",")
		since, err := time.ParseDuration(at)
		if err != nil {
			t.Fatal(err)
		}
		r.lines[i] = fmt.Sprintf("%s,%s", since+shift, rest)
	}
	r.began = r.began.Add(-shift)
	return r
}

// round has hosts fail by chance in the middle between two sweeps.
func (r *recording) round(random *rand.Rand, swept time.Time) {
	r.t.Helper()
	for time.Since(swept) < 300*time.Millisecond {
		r.ask()
	}
	worst := random.IntN(len(r.hosts))
	for n := 0; n < 80 && time.Since(swept) < 700*time.Millisecond; n++ {
		for i, host := range r.hosts {
			host.Answer(200)
			if i == worst || random.IntN(10) < 6 {
				host.Answer(500 + random.IntN(5))
			}
		}
		r.ask()
	}
	for _, host := range r.hosts {
		host.Answer(200)
	}
}

// story is what became of each host.
type story map[string][]string

func (s story) tell(host, what string, times int) {
	s[host] = append(s[host], fmt.Sprintf("%s %d", what, times))
}

// TestTheSimulatorSaysWhatEnvoyDoes: what a client recorded of a real Envoy, put into the simulator, gives the same ejections, by the same
// detectors, for as long.
func TestTheSimulatorSaysWhatEnvoyDoes(t *testing.T) {
	Binary(t)
	seed := rand.Uint64()
	for name, detection := range map[string]string{
		"two of five at most":  "{consecutiveServerErrors: 3, interval: 1s, baseEjectionTime: 1s, maxEjectionTime: 2s, maxEjectionPercent: 40}",
		"one, whatever share":  "{consecutiveServerErrors: 2, interval: 1s, baseEjectionTime: 1s, maxEjectionTime: 2s, maxEjectionPercent: 0, alwaysEjectOneHost: true}",
		"all, errors apart":    "{consecutiveServerErrors: 4, interval: 1s, baseEjectionTime: 1s, maxEjectionTime: 3s, maxEjectionPercent: 100, splitExternalLocalOriginErrors: true}",
		"a longest like first": "{consecutiveServerErrors: 3, interval: 1s, baseEjectionTime: 1s, maxEjectionTime: 1s, maxEjectionPercent: 60}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := &v1alpha1.OutlierPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1alpha1.OutlierPolicySpec{OutlierDetection: &v1alpha1.OutlierDetection{}}}
			if err := yaml.UnmarshalStrict([]byte(detection), op.Spec.OutlierDetection); err != nil {
				t.Fatal(err)
			}
			policy, err := outlier.NewPolicy(op)
			if err != nil {
				t.Fatal(err)
			}
			var r *recording
			for later := time.Duration(0); r == nil && later < 10*time.Second; later += 300 * time.Millisecond {
				r = record(t, policy, 5, later)
			}
			if r == nil {
				t.Fatal("every ejection ended close to a sweep")
			}
			random := rand.New(rand.NewPCG(seed, 0))
			swept := r.allBack()
			for range 3 {
				r.round(random, swept)
				swept = r.allBack()
			}
			compare(t, r, policy, seed)
		})
	}
}

// sweepsUpTo are 0 to n seconds.
func sweepsUpTo(n int) (all []time.Duration) {
	for i := range n + 1 {
		all = append(all, time.Duration(i)*time.Second)
	}
	return all
}

func compare(t *testing.T, r *recording, policy *outlier.Policy, seed uint64) {
	t.Helper()
	g := NewWithT(t)
	trace, err := detector.ReadTrace(strings.NewReader(strings.Join(r.lines, "\n")))
	g.Expect(err).NotTo(HaveOccurred())
	foretold, lengths := story{}, map[string][]time.Duration{}
	for _, e := range detector.Simulate(policy.Settings, trace, nil) {
		switch e.Action {
		case detector.Ejected:
			foretold.tell(e.Host, string(e.Cause), e.Ejections)
		case detector.Returned:
			foretold.tell(e.Host, "back", e.Ejections)
			lengths[e.Host] = append(lengths[e.Host], e.For)
		}
	}
	g.Expect(foretold).NotTo(BeEmpty())
	var seen story
	var took map[string][]time.Duration
	read := func() story {
		seen, took = story{}, map[string][]time.Duration{}
		left := map[string]time.Time{}
		for _, e := range r.envoy.Events(web) {
			switch {
			case e.Action == "EJECT" && e.Enforced:
				seen.tell(e.UpstreamURL, e.Type, e.NumEjections)
				left[e.UpstreamURL] = e.Timestamp
			case e.Action == "UNEJECT":
				seen.tell(e.UpstreamURL, "back", e.NumEjections)
				took[e.UpstreamURL] = append(took[e.UpstreamURL], e.Timestamp.Sub(left[e.UpstreamURL]))
			}
		}
		return seen
	}
	g.Eventually(read, "25s").Should(Equal(foretold), "seed %d, trace:\n%s", seed, strings.Join(r.lines, "\n")) // Envoy writes its log every ten seconds
	ejections := 0
	for host, all := range took {
		g.Expect(all).To(HaveLen(len(lengths[host])))
		for i := range all {
			// Who is back for an interval is forgiven one ejection, and a sweep is an interval after the last: by a few microseconds
			// it isn't yet, to Envoy, and the next ejection is longer by the first one's length.
			unforgiven := (all[i] - lengths[host][i]).Round(time.Second)
			g.Expect(all[i]).To(BeNumerically("~", lengths[host][i]+unforgiven, 250*time.Millisecond), "%s, ejection %d, seed %d", host, i+1, seed)
			g.Expect(unforgiven).To(BeElementOf(sweepsUpTo(i)), "%s, ejection %d, seed %d", host, i+1, seed)
			ejections++
		}
	}
	g.Expect(ejections).To(BeNumerically(">", 2), "%v", seen)
	t.Attr("measured", fmt.Sprintf("%d requests, %d ejections as foretold", len(trace.Samples), ejections))
}
