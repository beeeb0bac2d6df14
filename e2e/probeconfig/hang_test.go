package probeconfig

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hang is a request that is taken and never answered, as by an API server's webhook or a load balancer that has lost it.
type hang struct {
	is   func(*http.Request) bool
	skip int // needs the gate's mu, as all below; so many such requests are answered before
	// began is when the request came, ended when the manager gave it up.
	began, ended time.Time
}

// neverAnswer lets the request hang that comes after skip others of the same kind, and all later ones through.
func (g *gate) neverAnswer(skip int, is func(*http.Request) bool) *hang {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := &hang{is: is, skip: skip}
	g.hangs = append(g.hangs, h)
	return h
}

// swallows keeps a request that is to hang until the manager gives it up.
func (g *gate) swallows(r *http.Request) bool {
	h := g.hanging(r)
	if h == nil {
		return false
	}
	<-r.Context().Done()
	g.mu.Lock()
	defer g.mu.Unlock()
	h.ended = time.Now()
	return true
}

func (g *gate) hanging(r *http.Request) *hang {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.hangs {
		if !h.began.IsZero() || !h.is(r) {
			continue
		}
		if h.skip--; h.skip < 0 {
			h.began = time.Now()
			return h
		}
	}
	return nil
}

// came says whether the request came that hangs.
func (g *gate) came(h *hang) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !h.began.IsZero()
}

// lasted is for how long a request hung; 0 while it does.
func (g *gate) lasted(h *hang) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.ended.IsZero() {
		return 0
	}
	return h.ended.Sub(h.began)
}

// unanswered are the requests of which one hangs, each of another target, in the order of a scaling down.
var unanswered = []struct {
	what, method, path string
	skip               int
}{
	{"the object", http.MethodGet, "/deployments/kcm", 0},
	{"its scale", http.MethodGet, "/deployments/kcm/scale", 0},
	{"its scale, for whether it may be scaled down just now", http.MethodGet, "/deployments/kcm/scale", 1},
	{"the namespace", http.MethodGet, "", 0},
	{"a Secret", http.MethodGet, "/secrets/external", 0},
	{"what the account may do", http.MethodPost, "subjectaccessreviews", 0},
	{"the config", http.MethodGet, "/probeconfigs/prober", 0},
	{"the record", http.MethodPatch, "/deployments/kcm", 0},
	{"the replicas", http.MethodPut, "/deployments/kcm/scale", 0},
	{"the status", http.MethodPatch, "/probeconfigs/prober/status", 0},
	{"an Event", http.MethodPost, "/events", 0},
}

// about recognises a target's requests.
func (s shoot) about(method, path string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		switch {
		case r.Method != method:
			return false
		case path == "/probeconfigs/prober" && strings.HasSuffix(r.URL.Path, "/v1alpha1/probeconfigs") && r.URL.Query().Get("watch") == "":
			return true // many are listed instead
		case path != "subjectaccessreviews":
			return strings.HasSuffix(r.URL.Path, "/namespaces/"+s.namespace+path)
		case !strings.HasSuffix(r.URL.Path, path):
			return false
		}
		asked, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(asked))
		return err == nil && bytes.Contains(asked, fmt.Appendf(nil, "%q", s.namespace))
	}
}

// bearSilence: an answer that never comes holds nothing up for long.
func (a *alone) bearSilence() {
	// Each is more than a request may take, for a busy machine: one that a target waits for, and one that no target waits for.
	const soon, later = time.Minute, 2 * time.Minute

	It("though the review of a config ran out of time, which a client then asks for again", func(ctx SpecContext) {
		one := newShoot(ctx)
		one.deploy(ctx, "kcm", 2)
		hangs := a.gate.neverAnswer(0, one.about(http.MethodPost, "subjectaccessreviews"))
		Expect(h.Client.Create(ctx, one.prober("prober", dependent("kcm", 0, 0)))).To(Succeed())
		Expect(a.gate.came(hangs)).To(BeTrue())
	}, SpecTimeout(specTime))

	It("to 0, whatever request is never answered", func(ctx SpecContext) {
		all, hangs := newShoots(ctx, len(unanswered)), make([]*hang, len(unanswered))
		atOnce(all, func(one shoot) {
			one.deploy(ctx, "kcm", 2)
			pc := one.prober("prober", dependent("kcm", 0, 0))
			pc.Spec.ProbeInterval, pc.Spec.ProbeTimeout = "4s", "3900ms"
			one.start(ctx, pc)
		})
		for i, u := range unanswered {
			hangs[i] = a.gate.neverAnswer(u.skip, all[i].about(u.method, u.path))
		}
		for _, one := range all {
			cut(one.external)
		}
		for i, u := range unanswered {
			Eventually(a.gate.came).WithContext(ctx).WithArguments(hangs[i]).Should(BeTrue(), u.what)
		}
		down := map[string]int32{"kcm": 0}
		for i, u := range unanswered {
			Eventually(all[i].replicas).WithContext(ctx).WithTimeout(soon).Should(Equal(down), u.what)
			Eventually(all[i].condition).WithContext(ctx).WithTimeout(later).WithArguments("ProtectionActive").Should(Equal(metav1.ConditionTrue), u.what)
			Expect(all[i].records(ctx)).To(Equal(map[string]int32{"kcm": 2}), u.what)
			Expect(all[i].scalings(ctx)).To(HaveLen(1), "it is scaled once: %s", u.what)
			most := soon
			if u.path == "/events" || strings.HasSuffix(u.path, "/status") {
				most = later
			}
			Eventually(a.gate.lasted).WithContext(ctx).WithTimeout(later).WithArguments(hangs[i]).Should(And(BeNumerically(">", 0), BeNumerically("<", most)), "%s is given up", u.what)
		}
		for _, one := range all {
			Expect(h.Client.Delete(ctx, one.prober("prober"))).To(Succeed())
		}
		for _, one := range all {
			one.expectReleased(ctx, map[string]int32{"kcm": 2})
		}
	}, SpecTimeout(specTime))
}
