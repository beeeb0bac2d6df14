package actuate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/resourcestack/autohealer/internal/domain/limit"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// counting is a planner that remembers.
type counting struct{ limit.Memory }

func (c *counting) planner() Planner {
	return Planner{Known: c.Acts, Recall: func(acts []limit.Act) (news bool) {
		for _, a := range acts {
			news = c.Remember(a, noon.Add(time.Hour)) || news
		}
		return news
	}}
}

func act(uid string, after time.Duration) limit.Act {
	return limit.Act{UID: types.UID(uid), Name: "node-" + uid, Zone: "z", Began: noon.Add(after)}
}

func recordOn(c client.Client) *Record {
	return &Record{Reader: c, Writer: c, Namespace: "autohealer-system", Name: "autohealer-evictions"}
}

// entries are those of the record, by UID.
func entries(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	var m corev1.ConfigMap
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "autohealer-system", Name: "autohealer-evictions"}, &m); err != nil {
		t.Fatal(err)
	}
	return m.Data
}

func TestAnActIsRecordedForTheNextManager(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	if err := recordOn(c).Begin(t.Context(), act("a", 0), time.Hour, (&counting{}).planner()); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, c)["a"]; got != `{"name":"node-a","zone":"z","began":"2026-03-01T12:00:00Z"}` {
		t.Errorf("recorded: %s", got)
	}
	var next counting
	record := recordOn(c)
	if err := record.Begin(t.Context(), act("b", time.Second), time.Hour, next.planner()); !errors.Is(err, ErrRecalled) {
		t.Errorf("the next manager acts without knowing of it: %v", err)
	}
	if len(entries(t, c)) != 1 || len(next.Acts()) != 1 {
		t.Errorf("recorded %v, recalled %v", entries(t, c), next.Acts())
	}
	if err := record.Begin(t.Context(), act("b", time.Second), time.Hour, next.planner()); err != nil || len(entries(t, c)) != 2 {
		t.Errorf("%v, recorded %v", err, entries(t, c))
	}
}

func TestAnActThatFailedIsNoNews(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	record, known := recordOn(c), &counting{}
	for attempt := range 3 {
		if err := record.Begin(t.Context(), act("a", time.Duration(attempt)*1500*time.Millisecond), time.Hour, known.planner()); err != nil {
			t.Fatalf("attempt %d: %v", attempt, err)
		}
	}
	if got := entries(t, c)["a"]; !strings.Contains(got, "12:00:03Z") {
		t.Errorf("recorded: %s", got)
	}
	record.Done("a") // it came about, and the node was deleted before anybody saw it
	if err := record.Begin(t.Context(), act("b", 5*time.Second), time.Hour, known.planner()); !errors.Is(err, ErrRecalled) {
		t.Errorf("it acts without counting it: %v", err)
	}
}

func TestWhatIsOverIsDropped(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	record, known := recordOn(c), &counting{}
	for _, a := range []limit.Act{act("a", 0), act("b", 6*time.Minute)} {
		known.Remember(a, a.Began)
		if err := record.Begin(t.Context(), a, 5*time.Minute, known.planner()); err != nil {
			t.Fatal(err)
		}
	}
	if got := entries(t, c); len(got) != 1 || got["b"] == "" {
		t.Errorf("recorded %v", got)
	}
}

func TestALostRecordIsMadeAnew(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	record, known := recordOn(c), &counting{}
	known.Remember(act("a", 0), noon)
	if err := record.Begin(t.Context(), act("b", time.Second), time.Hour, known.planner()); err != nil {
		t.Fatal(err)
	}
	if got := entries(t, c); len(got) != 2 {
		t.Errorf("recorded %v", got)
	}
}

func TestARecordThatCannotBeReadLetsNothingBegin(t *testing.T) {
	broken := &corev1.ConfigMap{Data: map[string]string{"a": "soon"}}
	broken.Namespace, broken.Name = "autohealer-system", "autohealer-evictions"
	refusing := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("no answer")
	}}
	for name, c := range map[string]struct {
		client client.Client
		says   string
	}{
		"garbage":            {fake.NewClientBuilder().WithObjects(broken).Build(), "read entry a of ConfigMap autohealer-system/autohealer-evictions"},
		"the server is away": {fake.NewClientBuilder().WithInterceptorFuncs(refusing).Build(), "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			err := recordOn(c.client).Begin(t.Context(), act("b", 0), time.Hour, (&counting{}).planner())
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one that says %q", err, c.says)
			}
		})
	}
}

func TestTwoManagersThatActAtOnceKnowOfEachOther(t *testing.T) {
	c := fake.NewClientBuilder().Build()
	first, second, other := recordOn(c), recordOn(c), &counting{}
	between := interceptor.NewClient(c, interceptor.Funcs{Create: func(ctx context.Context, w client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if err := second.Begin(ctx, act("b", 0), time.Hour, other.planner()); err != nil {
			t.Error(err)
		}
		return w.Create(ctx, o, opts...)
	}})
	first.Writer = between
	known := &counting{}
	if err := first.Begin(t.Context(), act("a", 0), time.Hour, known.planner()); !errors.Is(err, ErrRecalled) {
		t.Errorf("it doesn't see who was first: %v", err)
	}
	if all := known.Acts(); len(all) != 1 || all[0].UID != "b" || !all[0].Began.Equal(noon) {
		t.Errorf("recalled %v", all)
	}
}
