package arch

import (
	"go/ast"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// ships are the directories, with all below them, of what ships.
var ships = []string{"apis", "cmd", "controllers", "internal", "pkg", "webhooks"}

// dialect are words that names once had, and what is said instead.
var dialect = map[string]string{
	"absences": "deletions to confirm", "anew": "again, or what it is done for", "asker": "poller", "askers": "callers", "believed": "valid, trusted", "book": "store, record", "brought": "on demand",
	"circumstances": "environment", "elsewhere": "where", "feed": "watch", "feeds": "watches", "flips": "breaker", "ghosts": "deleted objects", "goners": "removals", "lapses": "invalidations",
	"look": "check, query, survey", "looks": "checks", "onlooker": "forecaster", "outspoken": "what it logs", "owed": "unacknowledged, pending", "owes": "has pending", "paint": "color, build",
	"patience": "timeout", "picture": "snapshot", "rail": "Guardrail", "rails": "Guardrails", "remembered": "reported, recorded", "room": "capacity, headroom, limit", "seat": "host assignment",
	"seats": "host assignments", "sight": "status", "sights": "statuses", "soonest": "earliest", "stand": "state, phase", "standing": "state, phase", "stands": "state, phase", "tell": "report",
	"tells": "reports", "told": "reported, known, sent", "tries": "attempts", "trouble": "failed write", "troubles": "failed writes", "twin": "duplicate", "twins": "duplicates",
	"untold": "unreported", "world": "environment, objects", "yard": "state",
}

func TestNamesAreOfTheField(t *testing.T) {
	for _, name := range dialectNames(t, root) {
		t.Errorf("%s: see the list in words_test.go for what is said instead", name)
	}
}

func TestNamesOfTheDialectAreFound(t *testing.T) {
	got := dialectNames(t, filepath.Join("testdata", "tree"))
	if want := []string{"webhooks/webhooks.go: room", "webhooks/webhooks.go: tellWorld", "webhooks/webhooks.go: told"}; !slices.Equal(got, want) {
		t.Errorf("found %q instead of %q", got, want)
	}
}

// dialectNames are the names that what ships declares and that have a word of the dialect.
func dialectNames(t *testing.T, root string) []string {
	t.Helper()
	var found []string
	eachFile(t, root, ships, func(name string, file *ast.File, _ *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			for _, id := range declared(n) {
				if slices.ContainsFunc(wordsOf(id.Name), func(word string) bool { return dialect[word] != "" }) {
					found = append(found, name+": "+id.Name)
				}
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
