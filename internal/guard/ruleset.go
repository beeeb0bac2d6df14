package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/google/cel-go/cel"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	decl "k8s.io/apiserver/pkg/cel"
)

// builtinKind is what judges one kind whatever Guardrails say. It never changes.
type builtinKind struct {
	name       string
	namespaced bool
	kindInfo
	knownFields, liveFields planFields
	recheck                 string
	rules                   []*compiledRule
	variables               []*compiledVariable
	// index finds a variable by its root name, variables.<name>.
	index map[string]int
	// text is what decides verdicts, for the hash.
	text []byte

	// env and through compile further rules: the environment with all variables, and what these read.
	env     *environments
	through map[string]reads
}

type compiledRule struct {
	Rule
	// guardrail has the rule; "" for a built-in one.
	guardrail string
	// broken says why the rule can't be evaluated; nothing below is there then.
	broken string

	condition program
	message   *program
	// unchanged tells an update that doesn't touch the rule's fields; nil when every update is judged anew.
	unchanged           *program
	unchangedExpression string
	// reads is what the condition reads, through variables; messageReads the same of the message.
	reads, messageReads reads
	// live: it reads the part of plan that needs to be known of the cluster.
	live bool
	// usesFacts: it reads facts.
	usesFacts bool
	// asksWho: it judges who asks, or what that user may do.
	asksWho bool
	// atRunTime: the rule judges the object itself, so it holds whenever one acts on it.
	atRunTime bool
}

type compiledVariable struct {
	Variable
	program
	// all is what the variable reads through other variables.
	all reads
}

// needsFacts: the rule judges what the object would do to the cluster as it is now.
func (r *compiledRule) needsFacts() bool { return r.live || r.usesFacts }

// portable: a ValidatingAdmissionPolicy can carry the rule, its message included.
func (r *compiledRule) portable() bool {
	return r.broken == "" && !r.reads.anyOf(rootPlan, rootFacts, rootLimits) && !r.messageReads.anyOf(rootPlan, rootFacts, rootLimits)
}

// inPolicy: the generated ValidatingAdmissionPolicy has the rule. Those that warn are left to the webhook.
func (r *compiledRule) inPolicy() bool {
	return r.guardrail == "" && r.portable() && r.Severity == Deny
}

// compileBuiltin compiles every catalogue of a folder against the CRDs of another.
func compileBuiltin(catalogues, crds fs.FS) (map[string]*builtinKind, error) {
	definitions, err := readCRDs(crds)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(catalogues, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list catalogues: %w", err)
	}
	files := map[string]Catalogue{}
	w := world{namespaced: map[string]bool{}}
	for _, name := range names {
		c, err := parseCatalogue(catalogues, name)
		if err != nil {
			return nil, err
		}
		crd, known := definitions[c.Kind]
		if !known {
			return nil, fmt.Errorf("catalogue %s: no CRD has kind %q", name, c.Kind)
		}
		files[name], w.namespaced[c.Kind] = c, crd.Spec.Scope == extv1.NamespaceScoped
	}
	kinds := map[string]*builtinKind{}
	for _, name := range names {
		c := files[name]
		object, err := objectType(definitions[c.Kind])
		if err != nil {
			return nil, err
		}
		if kinds[c.Kind], err = compileKind(c, object, w); err != nil {
			return nil, fmt.Errorf("catalogue %s: %w", name, err)
		}
	}
	return kinds, nil
}

func compileKind(c Catalogue, object *decl.DeclType, w world) (*builtinKind, error) {
	k := &builtinKind{name: c.Kind, namespaced: w.namespaced[c.Kind], kindInfo: infoOf(c.Kind), recheck: c.Recheck, index: map[string]int{}, through: map[string]reads{}}
	if err := k.readPlan(); err != nil {
		return nil, err
	}
	if k.tables != nil {
		for _, t := range k.tables(w) {
			c.Variables = slices.Insert(c.Variables, len(k.index), t.variable())
			k.index[variablePath+t.name] = len(k.index)
		}
	}
	var err error
	if k.env, err = newEnvironments(object, k.kindInfo); err != nil {
		return nil, err
	}
	for _, v := range c.Variables {
		if err := k.addVariable(v); err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
	}
	if k.text, err = json.Marshal(judgement(c)); err != nil {
		return nil, fmt.Errorf("hash catalogue: %w", err)
	}
	return k, k.addRules(c.Rules)
}

func (k *builtinKind) readPlan() (err error) {
	if k.knownFields, err = fieldsOf(k.known); err != nil {
		return err
	}
	k.liveFields, err = fieldsOf(k.live)
	return err
}

func (k *builtinKind) addRules(rules []Rule) error {
	ids := map[string]bool{}
	for _, r := range rules {
		if ids[r.ID] {
			return fmt.Errorf("rule %s is there twice", r.ID)
		}
		if !slices.Contains(r.Kinds, k.name) {
			return fmt.Errorf("rule %s: kinds %v lack the catalogue's %s", r.ID, r.Kinds, k.name)
		}
		ids[r.ID] = true
		compiled, err := k.compileRule(r)
		if err != nil {
			return fmt.Errorf("rule %s: %w", r.ID, err)
		}
		k.rules = append(k.rules, compiled)
	}
	var spent costs
	for _, v := range k.variables {
		spent.add(v.program)
	}
	for _, r := range k.rules {
		spent.add(r.condition)
	}
	if excess := spent.excess(); excess != "" {
		return fmt.Errorf("all rules of %s together %s", k.name, excess)
	}
	return nil
}

// judgement is the part of a catalogue that decides verdicts: its tests and reasons may change without a new hash.
func judgement(c Catalogue) Catalogue {
	c.Rules = slices.Clone(c.Rules)
	for i := range c.Rules {
		c.Rules[i].Tests, c.Rules[i].Rationale = nil, ""
	}
	return c
}

// addVariable compiles a variable in the environment of those before it.
func (k *builtinKind) addVariable(v Variable) error {
	t, err := declaredType(v)
	if err != nil {
		return err
	}
	p, err := k.env.compile(v.Expression, t.CelType())
	if err != nil {
		return err
	}
	all := p.reads.through(k.through)
	if all.anyOf(rootPlan, rootFacts, rootRequest, rootLimits, rootAuthorizer) {
		return fmt.Errorf("reads %v; a shared variable reads only object and oldObject", all.list())
	}
	root := variablePath + v.Name
	k.index[root] = len(k.variables)
	k.variables = append(k.variables, &compiledVariable{Variable: v, program: p, all: all})
	k.through[root] = all
	k.env, err = k.env.with(map[string]*decl.DeclType{root: t})
	return err
}

// fieldError is what is wrong with one field of a rule.
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }
func (e *fieldError) Unwrap() error { return e.err }

// compileRule compiles a rule for this kind; what is wrong is a fieldError.
func (k *builtinKind) compileRule(r Rule) (*compiledRule, error) {
	condition, err := k.env.compileRule(r.Expression)
	if err != nil {
		return nil, &fieldError{"expression", err}
	}
	compiled := &compiledRule{Rule: r, condition: condition, reads: condition.reads.through(k.through)}
	compiled.usesFacts = compiled.reads.anyOf(rootFacts)
	for path := range compiled.reads {
		compiled.live = compiled.live || k.isLive(path)
	}
	if r.MessageExpression != "" {
		message, err := k.env.compile(r.MessageExpression, cel.StringType)
		if err != nil {
			return nil, &fieldError{"messageExpression", err}
		}
		compiled.message, compiled.messageReads = &message, message.reads.through(k.through)
	}
	compiled.asksWho = condition.asksRequester || compiled.reads.ofRequester()
	compiled.atRunTime = !compiled.needsFacts() && !condition.asksRequester && !compiled.reads.anyOf(rootRequest, rootOldObject)
	if err := compiled.checkSoftening(); err != nil {
		return nil, err
	}
	return compiled, k.compileUnchanged(compiled)
}

// checkSoftening says whether the rule can warn only when it says so.
func (r *compiledRule) checkSoftening() error {
	switch {
	case r.WhileObserving != "" && r.portable():
		return &fieldError{"whileObserving", errors.New("a policy can't tell; write it into the expression")}
	case len(r.RatchetOn) > 0 && (!r.reads.anyOf(rootPlan, rootAuthorizer) || r.reads.anyOf(rootFacts, rootLimits)):
		return &fieldError{"ratchetOn", errors.New("is for rules over plan or authorizer; no fields decide facts and limits, which hold for each change")}
	case r.RatchetWhen != "" && !r.live:
		return &fieldError{"ratchetWhen", errors.New("is for rules that ask what the cluster is like")}
	}
	return nil
}

// compileUnchanged adds what tells updates that leave alone what the rule reads.
func (k *builtinKind) compileUnchanged(r *compiledRule) error {
	if r.condition.asksRequester { // who need not be who asked before
		return nil
	}
	r.unchangedExpression = unchangedExpression(r.reads, r.RatchetOn, k.recheck)
	if r.RatchetWhen != "" {
		r.unchangedExpression = "oldObject != null && !(" + k.recheck + ") && (" + r.RatchetWhen + ")"
	}
	if r.unchangedExpression == "" {
		return nil
	}
	// It compares what the rule reads, which may be long; its author isn't to blame for that.
	unchanged, _, err := k.env.check(r.unchangedExpression, cel.BoolType)
	if err != nil {
		return &fieldError{"recheck", err}
	}
	for path := range unchanged.reads.through(k.through) {
		if root := rootOf(path); root != rootObject && root != rootOldObject && (root != rootPlan || k.isLive(path)) {
			return &fieldError{"ratchetWhen", fmt.Errorf("reads %s, which may have been another one for the stored object", path)}
		}
	}
	r.unchanged = &unchanged
	return nil
}

// isLive says whether a path is, or may be, in the part of plan that needs to be known of the cluster.
func (k *builtinKind) isLive(path string) bool {
	if rootOf(path) != rootPlan {
		return false
	}
	field := fieldOf(path)
	_, known := k.knownFields[field]
	return !known
}
