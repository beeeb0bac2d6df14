package arch

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"k8s.io/apimachinery/pkg/util/sets"
)

// ships are the directories, with all below them, of what ships.
var ships = []string{"apis", "cmd", "controllers", "internal", "pkg", "webhooks"}

// dialect are words that names once had, and what is said instead.
var dialect = map[string]string{
	"absence": "deletion to confirm", "absences": "deletions to confirm", "anew": "again, or what it is done for", "asked": "requested", "asker": "poller", "askers": "callers", "aspect": "side of a probe",
	"behind": "of, low priority", "believable": "verified", "believed": "valid, trusted", "believes": "trusts", "book": "store, record", "books": "records", "brought": "on demand", "circumstances": "environment",
	"claimer": "the set itself", "decider": "active registration", "dismiss": "remove", "elsewhere": "where", "feed": "watch", "feeds": "watches", "flips": "breaker", "footprint": "usage", "former": "previous",
	"ghost": "deleted object", "ghosts": "deleted objects", "goners": "removals", "home": "key", "judgement": "verdict", "lacks": "missing, unsupported", "lapse": "invalidation", "lapses": "invalidations",
	"left": "remaining", "lent": "inherited", "lifts": "exempts", "look": "check, query, survey", "looks": "checks", "meanwhile": "prefetch", "objection": "revalidate", "onlooker": "forecaster", "outlook": "forecast",
	"outspoken": "what it logs", "owed": "unacknowledged, pending", "owes": "has pending", "page": "chunk, response", "pages": "chunks", "paint": "color, build", "patience": "timeout", "picture": "snapshot",
	"place": "location, slot, position", "placed": "positioned, assigned", "places": "locations, slots", "quiet": "throttle", "rail": "Guardrail", "rails": "Guardrails", "remembered": "reported, recorded",
	"room": "capacity, headroom, limit", "rooms": "packages", "ruling": "kind of rule", "says": "message, reports", "seat": "host assignment", "seats": "host assignments", "sight": "status", "sights": "statuses",
	"sole": "exclusive", "soonest": "earliest", "spend": "charge", "stand": "state, phase", "standing": "state, phase", "stands": "state, phase", "stuck": "stalled", "tell": "report", "tells": "reports",
	"told": "reported, known, sent", "town": "environment", "tries": "attempts", "trouble": "failed write", "troubles": "failed writes", "twin": "duplicate", "twins": "duplicates", "untold": "unreported",
	"viewer": "forecaster", "vital": "protected", "way": "key, path", "ways": "paths", "weigh": "count", "words": "text, terms, what they are", "world": "environment, objects", "yard": "state",
}

// unsaid are those of them that messages leave out, too; the others are English.
var unsaid = sets.New("anew", "believed", "elsewhere", "ghosts", "goners", "judgement", "lacks", "lapse", "lapses", "onlooker", "outspoken", "owed", "owes", "patience", "picture",
	"room", "seat", "sight", "soonest", "standing", "tell", "tells", "told", "town", "trouble", "troubles", "twin", "twins", "untold", "whoever", "world", "yard")

func TestNamesAreOfTheField(t *testing.T) {
	for _, name := range dialectNames(t, root) {
		t.Errorf("%s: see the list in words_test.go for what is said instead", name)
	}
}

func TestNamesOfTheDialectAreFound(t *testing.T) {
	got := dialectNames(t, brokenTree(t))
	if want := []string{"webhooks/webhooks.go: room", "webhooks/webhooks.go: tellWorld", "webhooks/webhooks.go: told"}; !slices.Equal(got, want) {
		t.Errorf("found %q instead of %q", got, want)
	}
}

// dialectNames are the names that what ships declares and that have a word of the dialect. The API's are public, and stay.
func dialectNames(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	eachFile(t, root, ships, func(name string, file *ast.File, _ *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			for _, id := range declared(n) {
				public := strings.HasPrefix(name, "apis/") && id.IsExported()
				if !public && slices.ContainsFunc(wordsOf(id.Name), func(word string) bool { return dialect[word] != "" }) {
					found = append(found, name+": "+id.Name)
				}
			}
			return true
		})
	})
	slices.Sort(found)
	return slices.Compact(found)
}

func TestMessagesAreOfTheField(t *testing.T) {
	for _, message := range dialectMessages(t, root) {
		t.Errorf("%s: a word of it is in unsaid, see words_test.go for what is said instead", message)
	}
}

func TestMessagesOfTheDialectAreFound(t *testing.T) {
	if got, want := dialectMessages(t, brokenTree(t)), []string{"webhooks/webhooks.go: it is told anew"}; !slices.Equal(got, want) {
		t.Errorf("found %q instead of %q", got, want)
	}
}

// dialectMessages are the texts of what ships that people may read, and that have a word that is left unsaid.
func dialectMessages(t *testing.T, root string) (found []string) {
	t.Helper()
	eachFile(t, root, ships, func(name string, file *ast.File, _ *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING || !strings.Contains(literal.Value, " ") {
				return true
			}
			words := strings.FieldsFunc(strings.ToLower(literal.Value), func(r rune) bool { return !unicode.IsLetter(r) })
			if text, _ := strconv.Unquote(literal.Value); unsaid.HasAny(words...) {
				found = append(found, name+": "+text)
			}
			return true
		})
	})
	slices.Sort(found)
	return slices.Compact(found)
}

// declared are the names that a node declares, but for those below it.
func declared(n ast.Node) (names []*ast.Ident) {
	switch d := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{d.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{d.Name}
	case *ast.ValueSpec:
		return d.Names
	case *ast.Field:
		return d.Names
	case *ast.AssignStmt:
		if d.Tok == token.DEFINE {
			return identifiers(d.Lhs...)
		}
	case *ast.RangeStmt:
		return identifiers(d.Key, d.Value)
	}
	return nil
}

func identifiers(expressions ...ast.Expr) (names []*ast.Ident) {
	for _, e := range expressions {
		if id, ok := e.(*ast.Ident); ok {
			names = append(names, id)
		}
	}
	return names
}

// wordsOf are the words of a name in camel case, in lower case.
func wordsOf(name string) []string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return strings.Fields(b.String())
}
