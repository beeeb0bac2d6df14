package healthcheck

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// world is a client of the seed that knows one thing, and counts who asks.
type world struct {
	client.Client
	says   string
	detail string
	asked  int
}

// sourced is a check that says what its client does.
type sourced struct{ of *world }

// InjectSeedClient takes it.
func (s *sourced) InjectSeedClient(c client.Client) { s.of = c.(*world) }

// Check asks it.
func (s *sourced) Check(context.Context, types.NamespacedName) (*SingleCheckResult, error) {
	if s.of.asked++; s.of.says == "an error" {
		return nil, errors.New("no answer")
	}
	return &SingleCheckResult{Status: ConditionStatus(s.of.says), Detail: s.of.detail}, nil
}

func TestOnlyWhatIsThereNowTurnsAConditionFalse(t *testing.T) {
	for name, tt := range map[string]struct {
		before, cached, live string
		want                 string
		asked                int
	}{
		"all is well":                       {"True", "True", "False", "True: (1/1)", 0},
		"what the cache has is old":         {"True", "False", "True", "True: (1/1)", 1},
		"it is so":                          {"True", "False", "False", "False: (0/1)", 1},
		"it can't be read now":              {"True", "False", "an error", "Unknown: (0/1)", 1},
		"it was False already":              {"False", "False", "True", "False: (0/1)", 0},
		"it never progressed for so long":   {"True", "Progressing", "True", "True: (1/1)", 1},
		"the first look sees what isn't so": {"", "False", "True", "True: (1/1)", 1},
		"the cache can't be believed":       {"True", "an error", "False", "Unknown: (0/1)", 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, stored := reconcilerOf(For(gadget).Check("X", "a", func() HealthCheck { return &sourced{} }), interceptor.Funcs{})
			look := func(cached, live string) int {
				now := &world{says: live}
				r.runner.seed, r.runner.live = &world{says: cached}, now
				if _, err := r.Reconcile(t.Context(), ofG); err != nil {
					t.Fatal(err)
				}
				return now.asked
			}
			if tt.before != "" {
				look(tt.before, tt.before)
			}
			if asked := look(tt.cached, tt.live); asked != tt.asked {
				t.Errorf("the API server is asked %d times", asked)
			}
			if got := conditionOf(t, stored, "X"); !strings.HasPrefix(got, tt.want) {
				t.Errorf("it is %s", got)
			}
		})
	}
}

func TestWhatTheBreakerHoldsBackIsNotReadLive(t *testing.T) {
	r, stored := reconcilerOf(For(gadget).Check("X", "a", func() HealthCheck { return &sourced{} }), interceptor.Funcs{})
	r.runner.seed = &world{says: "True"}
	if _, err := r.Reconcile(t.Context(), ofG); err != nil {
		t.Fatal(err)
	}
	now := &world{says: "False"}
	r.runner.seed, r.runner.live = &world{says: "False"}, now
	for _, target := range []string{"b/1", "b/2", "b/3"} {
		r.writer.breaker.state.AllowFalse(target, "X", false, 3, r.clock.Now())
	}
	if _, err := r.Reconcile(t.Context(), ofG); err != nil {
		t.Fatal(err)
	}
	if got := conditionOf(t, stored, "X"); !strings.HasPrefix(got, "Unknown: held at Unknown") || now.asked != 0 {
		t.Errorf("it is %s, and the API server was asked %d times", got, now.asked)
	}
}
