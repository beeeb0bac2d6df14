package ejection_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/ejection"
)

var (
	now  = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)
	all  = ejection.Scope{All: true}
	web  = host("shop", "10.0.0.1:8080")
	mail = host("post", "10.0.0.2:25")
)

func host(namespace, address string) ejection.Host {
	return ejection.Host{Cluster: outlier.Key{Service: types.NamespacedName{Namespace: namespace, Name: "web"}, Port: 80}, Address: address}
}

func ago(d time.Duration) time.Time { return now.Add(-d) }

// asked is an Envoy that was asked a minute ago for the first time.
func asked(name string) *ejection.Envoy {
	return &ejection.Envoy{Name: name, FirstPolled: ago(time.Minute)}
}

func TestAHostIsEjectedSinceTheFirstEnvoyWasSeenToHaveItEjected(t *testing.T) {
	a := asked("edge/a").WithAnswer(all, []ejection.Host{web}, ago(12*time.Second))
	a = a.WithAnswer(all, []ejection.Host{web}, ago(2*time.Second))
	b := asked("edge/b").WithAnswer(all, []ejection.Host{web}, ago(time.Second))
	got, ok := ejection.NewView([]ejection.Envoy{b, a}, nil, now).EjectionOf(web)
	if want := (ejection.Ejection{Envoys: 2, Since: ago(12 * time.Second)}); !ok || got != want {
		t.Errorf("got %+v", got)
	}
}

func TestSinceBeginsAgainAfterAnEnvoyWasSilent(t *testing.T) {
	a := asked("edge/a").WithAnswer(all, []ejection.Host{web}, ago(20*time.Second))
	a = a.WithAnswer(all, []ejection.Host{web}, ago(time.Second))
	if got, _ := ejection.NewView([]ejection.Envoy{a}, nil, now).EjectionOf(web); got.Since != ago(time.Second) {
		t.Errorf("since %s", got.Since)
	}
}

func TestAReturnedHostIsNotEjected(t *testing.T) {
	a := asked("edge/a").WithAnswer(all, []ejection.Host{web}, ago(6*time.Second))
	a = a.WithAnswer(all, nil, ago(time.Second))
	if got, ok := ejection.NewView([]ejection.Envoy{a}, nil, now).EjectionOf(web); ok {
		t.Errorf("got %+v", got)
	}
}

func TestAnEnvoyCountsForItsNamespacesOnly(t *testing.T) {
	a := asked("edge/a").WithAnswer(ejection.Scope{Namespaces: map[string]bool{"shop": true}}, []ejection.Host{web, mail}, now)
	v := ejection.NewView([]ejection.Envoy{a}, nil, now)
	if _, ok := v.EjectionOf(web); !ok {
		t.Error("not about its own")
	}
	if got, ok := v.EjectionOf(mail); ok {
		t.Errorf("it says of post: %+v", got)
	}
	if v.Answering("shop") != 1 || v.Answering("post") != 0 {
		t.Error("it answers for", v.Answering("shop"), v.Answering("post"))
	}
}

func TestASilentEnvoyReportsNothing(t *testing.T) {
	stale := asked("edge/a").WithAnswer(ejection.Scope{Namespaces: map[string]bool{"shop": true}}, []ejection.Host{web}, ago(16*time.Second))
	stale.Problem = "connection refused"
	unknown := *asked("edge/b")
	unknown.Problem = "no route to host"
	fresh := asked("edge/c").WithAnswer(all, nil, now)
	v := ejection.NewView([]ejection.Envoy{stale, unknown, fresh, {Name: "edge/d", FirstPolled: ago(time.Second)}}, nil, now)
	if got, ok := v.EjectionOf(web); ok {
		t.Errorf("an old answer is told: %+v", got)
	}
	if diff := cmp.Diff([]ejection.Silent{{"edge/a", "connection refused"}, {"edge/b", "no route to host"}}, v.Silent("shop")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]ejection.Silent{{"edge/b", "no route to host"}}, v.Silent("post")); diff != "" {
		t.Error("who never said who it is may be about anything:", diff)
	}
	if !v.Pending("shop") || v.Answering("shop") != 1 {
		t.Error("waits, answering:", v.Pending("shop"), v.Answering("shop"))
	}
	if answering, silent := v.Count(); answering != 1 || silent != 2 {
		t.Error("counts", answering, silent)
	}
}

func TestAProblemIsReportedOnceItRepeats(t *testing.T) {
	e := *asked("edge/a")
	for i, step := range []struct{ problem, told string }{
		{"no such host", "no such host"},
		{"connection refused", "no such host"},
		{"no such host", "no such host"},
		{"connection refused", "no such host"},
		{"connection refused", "connection refused"},
		{"connection refused", "connection refused"},
	} {
		if e = e.WithProblem(step.problem); e.Problem != step.told {
			t.Errorf("%d: it tells %q", i, e.Problem)
		}
	}
	if e = e.WithAnswer(all, nil, now); e.Problem != "" {
		t.Errorf("it answered, and has %q", e.Problem)
	}
	if e = e.WithProblem("no such host"); e.Problem != "no such host" {
		t.Errorf("it tells %q", e.Problem)
	}
}

func TestNotAsked(t *testing.T) {
	edge, tenant := ejection.Scope{Identity: "edge", All: true}, ejection.Scope{Identity: "shop", Namespaces: map[string]bool{"shop": true}}
	v := ejection.NewView([]ejection.Envoy{
		asked("edge/a").WithAnswer(edge, nil, now), asked("edge/b").WithAnswer(edge, nil, now), asked("edge/c").WithAnswer(edge, nil, ago(time.Minute)), asked("shop/a").WithAnswer(tenant, nil, now),
	}, nil, now)
	for _, c := range []struct {
		namespace string
		connected map[string]int
		want      int
	}{
		{"shop", nil, 0},
		{"shop", map[string]int{"edge": 2, "shop": 1}, 0},
		{"shop", map[string]int{"edge": 1}, 0},
		{"shop", map[string]int{"edge": 3}, 1},
		{"shop", map[string]int{"edge": 1, "shop": 2}, 1},
		{"post", map[string]int{"edge": 2, "other": 2}, 2},
	} {
		if got := v.NotPolled(c.namespace, c.connected); got != c.want {
			t.Errorf("%s, %v: %d", c.namespace, c.connected, got)
		}
	}
}
