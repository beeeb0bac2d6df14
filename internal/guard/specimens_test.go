package guard

import (
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/resourcestack/autohealer/internal/kinds"
)

// made is an object of a specimen as a request has it.
func made(t testing.TB, s Specimen) map[string]any {
	t.Helper()
	object, err := s.Made(noon)
	if err != nil {
		t.Fatal(err)
	}
	return object.Object
}

func specimens(t testing.TB, kind string) (admitted, refused Specimen) {
	t.Helper()
	admitted, refused, err := Specimens(kind)
	if err != nil {
		t.Fatal(err)
	}
	return admitted, refused
}

func TestEveryKindHasASpecimenThatIsAdmittedAndOneThatItsRuleAloneRefuses(t *testing.T) {
	g := newTestGuard(t, nil)
	g.opts.OwnNamespace, g.opts.Authorizer = "example", authorizerfactory.NewAlwaysAllowAuthorizer() // in which they are
	names := kinds.Names(kinds.All)
	slices.Sort(names)
	if !slices.Equal(g.Kinds(), names) {
		t.Errorf("there are rules for %v, and kinds %v", g.Kinds(), names)
	}
	for _, kind := range names {
		marked := 0
		for _, rule := range g.Rules(kind) {
			for _, test := range rule.Tests {
				if test.Specimen {
					marked++
				}
			}
		}
		if marked != 2 {
			t.Errorf("%s: %d cases are marked as specimens, want 2", kind, marked)
		}
		admitted, refused := specimens(t, kind)
		if v := g.Review(t.Context(), creating(t, made(t, admitted))); !v.Allowed || len(v.Violations) > 0 {
			t.Errorf("%s: the specimen of %s isn't admitted: %v", kind, admitted.Rule, v.RuleIDs())
		}
		if v := g.Review(t.Context(), creating(t, made(t, refused))); v.Allowed || !slices.Equal(v.RuleIDs(), []string{refused.Rule}) {
			t.Errorf("%s: the specimen of %s is refused by %v", kind, refused.Rule, v.RuleIDs())
		}
	}
}

func TestTheTimesOfASpecimenAreAsFarAwayAsInItsCase(t *testing.T) {
	admitted, refused := specimens(t, "GuardrailException")
	for want, s := range map[string]Specimen{"2026-11-22T12:00:00Z": admitted, "2026-12-22T12:00:00Z": refused} {
		if got := made(t, s)["spec"].(map[string]any)["expiresAt"]; got != want {
			t.Errorf("the specimen of %s expires %v, want %s", s.Rule, got, want)
		}
	}
}
