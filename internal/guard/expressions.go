package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/resourcestack/autohealer/internal/domain/celerrors"
)

// reads is the set of paths that an expression looks at, such as object.spec.taintKey, plan.limit, variables.status.
type reads map[string]bool

// readsOf walks a checked expression and takes the longest path of each chain. A loop variable that shadows a root counts
// as reading it: a path too many makes a rule less portable, never a verdict wrong.
func readsOf(checked *celast.AST, roots func(string) bool) reads {
	found := reads{}
	var walk func(e celast.NavigableExpr)
	walk = func(e celast.NavigableExpr) {
		if path := pathOf(e); path != "" && roots(rootOf(path)) {
			found[path] = true
			return
		}
		for _, child := range e.Children() {
			walk(child)
		}
	}
	walk(celast.NavigateAST(checked))
	return found
}

// pathOf is the path of a chain of selections and literal indexes from an identifier, "" for anything else.
func pathOf(e celast.Expr) string {
	switch e.Kind() {
	case celast.IdentKind:
		return e.AsIdent()
	case celast.SelectKind:
		return join(pathOf(e.AsSelect().Operand()), e.AsSelect().FieldName())
	case celast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex, operators.OptSelect:
			if key := call.Args()[1]; key.Kind() == celast.LiteralKind && key.AsLiteral().Type() == types.StringType {
				return join(pathOf(call.Args()[0]), string(key.AsLiteral().(types.String)))
			}
		}
	}
	return ""
}

func join(path, field string) string {
	if path == "" {
		return ""
	}
	return path + "." + field
}

// rootOf is the root that a path starts from: object, plan, variables.status.
func rootOf(path string) string {
	if rest, ok := strings.CutPrefix(path, variablePath); ok {
		name, _, _ := strings.Cut(rest, ".")
		return variablePath + name
	}
	root, _, _ := strings.Cut(path, ".")
	return root
}

// fieldOf is the field of its root that a path begins with, "" for the root itself.
func fieldOf(path string) string {
	_, rest, _ := strings.Cut(path, ".")
	field, _, _ := strings.Cut(rest, ".")
	return field
}

// anyOf says whether one of the paths starts from one of the roots.
func (r reads) anyOf(roots ...string) bool {
	for path := range r {
		if slices.Contains(roots, rootOf(path)) {
			return true
		}
	}
	return false
}

// ofRequester says whether one of the paths is, or may be, about who asks.
func (r reads) ofRequester() bool {
	for path := range r {
		if rootOf(path) == rootRequest && slices.Contains([]string{"", "userInfo"}, fieldOf(path)) {
			return true
		}
	}
	return false
}

// ofObject are the paths into the object, with further fields of it.
func (r reads) ofObject(more []string) reads {
	fields := reads{}
	for path := range r {
		if rootOf(path) == rootObject {
			fields[path] = true
		}
	}
	for _, path := range more {
		fields[join(rootObject, path)] = true
	}
	return fields
}

// list is the paths, sorted.
func (r reads) list() []string { return slices.Sorted(maps.Keys(r)) }

// through replaces each shared variable by what it reads itself.
func (r reads) through(variables map[string]reads) reads {
	all := reads{}
	for path := range r {
		inner, isVariable := variables[rootOf(path)]
		if !isVariable {
			all[path] = true
			continue
		}
		maps.Copy(all, inner)
	}
	return all
}

// excerptWidth is how much of a long line an error shows, half of it on either side of the place.
const excerptWidth = 80

// errorAt is an error at a place, whose column counts from 0: line, column and cause; the text; a caret under the place.
func errorAt(expression string, at common.Location, format string, args ...any) error {
	line, lines := max(1, at.Line()), strings.Split(expression, "\n")
	text := []rune(lines[min(line, len(lines))-1])
	caret := min(max(0, at.Column()), len(text))
	from := max(0, min(caret-excerptWidth/2, len(text)-excerptWidth))
	to := min(len(text), from+excerptWidth)
	excerpt := string(text[from:to])
	caret -= from
	if from > 0 {
		excerpt, caret = "…"+excerpt, caret+1
	}
	if to < len(text) {
		excerpt += "…"
	}
	return fmt.Errorf("%d:%d: %s\n | %s\n | %s^", line, at.Column()+1, fmt.Sprintf(format, args...), excerpt, strings.Repeat(".", caret))
}

// errorAtStart is an error of the whole expression.
func errorAtStart(expression, format string, args ...any) error {
	return errorAt(expression, common.NewLocation(1, 0), format, args...)
}

// issuesError is the first error that CEL found, for those who write rules and not CEL's grammar: the others often follow from it.
func (e *environments) issuesError(expression string, issues *cel.Issues) error {
	first := issues.Errors()[0]
	message := celerrors.OfCompilation(first.Message, "a rule may read "+strings.Join(e.names(), ", "))
	if field, undefined := strings.CutPrefix(message, "undefined field "); undefined {
		message += readableFields(expression, strings.Trim(field, "'"))
	}
	return errorAt(expression, first.Location, "%s", message)
}

// names are the roots of what may be read, without the shared variables.
func (e *environments) names() []string {
	names := []string{rootAuthorizer}
	for name := range e.roots {
		if !strings.HasPrefix(name, variablePath) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
