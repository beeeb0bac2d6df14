package guard

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"

	"github.com/google/cel-go/cel"
	decl "k8s.io/apiserver/pkg/cel"
)

// RuleSet is a compiled catalogue. It is immutable; a change makes a new one.
type RuleSet struct {
	kinds map[string]*kindRules
}

// kindRules is what judges one kind.
type kindRules struct {
	kind string
	// hash names the rules.
	hash      string
	rules     []*compiledRule
	variables []*compiledVariable
	// index finds a variable by its root name, variables.<name>.
	index map[string]int
}

type compiledRule struct {
	Rule
	condition program
	message   *program
	// unchanged tells an update that doesn't touch the rule's fields; nil when every update is judged anew.
	unchanged           *program
	unchangedExpression string
	// reads is what the condition reads, through variables; messageReads the same of the message.
	reads, messageReads reads
}

type compiledVariable struct {
	Variable
	program
	// all is what the variable reads through other variables.
	all reads
}

// needsFacts: the rule judges what the object would do to the cluster as it is now.
func (r *compiledRule) needsFacts() bool { return r.reads.anyOf(rootPlan, rootFacts) }

// portable: a ValidatingAdmissionPolicy can carry the rule, its message included.
func (r *compiledRule) portable() bool {
	return !r.needsFacts() && !r.messageReads.anyOf(rootPlan, rootFacts)
}

// holdsAtRunTime: the rule judges the object itself, so it holds whenever one acts on it.
func (r *compiledRule) holdsAtRunTime() bool {
	return r.portable() && !r.reads.anyOf(rootRequest, rootOldObject)
}

// compileRuleSet compiles every catalogue of a folder against the CRDs of another.
func compileRuleSet(catalogues, crds fs.FS) (*RuleSet, error) {
	definitions, err := readCRDs(crds)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(catalogues, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list catalogues: %w", err)
	}
	set := &RuleSet{kinds: map[string]*kindRules{}}
	for _, name := range names {
		c, err := parseCatalogue(catalogues, name)
		if err != nil {
			return nil, err
		}
		c.Variables = slices.Concat(builtinKinds()[c.Kind].tables, c.Variables)
		crd, known := definitions[c.Kind]
		if !known {
			return nil, fmt.Errorf("catalogue %s: no CRD has kind %q", name, c.Kind)
		}
		object, err := objectType(crd)
		if err != nil {
			return nil, err
		}
		if set.kinds[c.Kind], err = compileKind(c, object); err != nil {
			return nil, fmt.Errorf("catalogue %s: %w", name, err)
		}
		text, err := json.Marshal(judgement(c))
		if err != nil {
			return nil, fmt.Errorf("hash catalogue %s: %w", name, err)
		}
		set.kinds[c.Kind].hash = shortHash(text)
	}
	return set, nil
}

func shortHash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])[:16]
}

// judgement is the part of a catalogue that decides verdicts: its tests and reasons may change without a new hash.
func judgement(c Catalogue) Catalogue {
	c.Rules = slices.Clone(c.Rules)
	for i := range c.Rules {
		c.Rules[i].Tests, c.Rules[i].Rationale = nil, ""
	}
	return c
}

func compileKind(c Catalogue, object *decl.DeclType) (*kindRules, error) {
	env, err := newEnvironments(object, builtinKinds()[c.Kind].plan)
	if err != nil {
		return nil, err
	}
	k := &kindRules{kind: c.Kind, index: map[string]int{}}
	through := map[string]reads{}
	for _, v := range c.Variables {
		if env, err = k.addVariable(env, v, through); err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
	}
	ids := map[string]bool{}
	for _, r := range c.Rules {
		if ids[r.ID] {
			return nil, fmt.Errorf("rule %s is there twice", r.ID)
		}
		if !slices.Contains(r.Kinds, c.Kind) {
			return nil, fmt.Errorf("rule %s: kinds %v lack the catalogue's %s", r.ID, r.Kinds, c.Kind)
		}
		ids[r.ID] = true
		compiled, err := compileRule(env, r, c.Recheck, through)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		k.rules = append(k.rules, compiled)
	}
	return k, k.checkTotalCost()
}

// addVariable compiles a variable in the environment of those before it, and gives the environment that has it too.
func (k *kindRules) addVariable(env *environments, v Variable, through map[string]reads) (*environments, error) {
	t, err := declaredType(v)
	if err != nil {
		return nil, err
	}
	p, err := env.compile(v.Expression, t.CelType())
	if err != nil {
		return nil, err
	}
	all := p.reads.through(through)
	if all.anyOf(rootPlan, rootFacts, rootRequest) {
		return nil, fmt.Errorf("reads %v; a shared variable reads only object and oldObject", all.list())
	}
	root := variablePath + v.Name
	k.index[root] = len(k.variables)
	k.variables = append(k.variables, &compiledVariable{Variable: v, program: p, all: all})
	through[root] = all
	return env.with(map[string]*decl.DeclType{root: t})
}

func compileRule(env *environments, r Rule, recheck string, through map[string]reads) (*compiledRule, error) {
	condition, err := env.compileRule(r.Expression)
	if err != nil {
		return nil, fmt.Errorf("expression: %w", err)
	}
	compiled := &compiledRule{Rule: r, condition: condition, reads: condition.reads.through(through)}
	if r.MessageExpression != "" {
		message, err := env.compile(r.MessageExpression, cel.StringType)
		if err != nil {
			return nil, fmt.Errorf("messageExpression: %w", err)
		}
		compiled.message, compiled.messageReads = &message, message.reads.through(through)
	}
	compiled.unchangedExpression = unchangedExpression(compiled.reads, recheck)
	if compiled.unchangedExpression != "" {
		unchanged, err := env.compile(compiled.unchangedExpression, cel.BoolType)
		if err != nil {
			return nil, fmt.Errorf("recheck: %w", err)
		}
		compiled.unchanged = &unchanged
	}
	return compiled, nil
}

// checkTotalCost makes sure that the request's budget is never the rules' own fault.
func (k *kindRules) checkTotalCost() error {
	var total uint64
	for _, v := range k.variables {
		total += v.cost
	}
	for _, r := range k.rules {
		total += r.condition.cost
	}
	if total > maxRequestCost {
		return fmt.Errorf("all rules of %s together may cost %d, at most %d allowed", k.kind, total, maxRequestCost)
	}
	return nil
}
