package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/guard"
)

// policies are what operators lay down beside the catalogue.
type policies struct {
	guardrails []*v1alpha1.Guardrail
	exceptions []*v1alpha1.GuardrailException
}

// guard is an engine with these in force.
func (p policies) guard(opts guard.Options) (*guard.Guard, error) {
	g, err := guard.New(opts)
	if err != nil {
		return nil, err
	}
	g.SetGuardrails(p.guardrails)
	g.SetExceptions(p.exceptions)
	return g, nil
}

// with are the policies once an object is stored, which may be one of them.
func (p policies) with(stored map[string]any) (policies, error) {
	switch stored["kind"] {
	case "Guardrail":
		gr, err := typed[v1alpha1.Guardrail](stored)
		if err != nil {
			return p, err
		}
		p.guardrails = replacing([]*v1alpha1.Guardrail{gr}, p.guardrails...)
	case "GuardrailException":
		x, err := typed[v1alpha1.GuardrailException](stored)
		if err != nil {
			return p, err
		}
		p.exceptions = replacing([]*v1alpha1.GuardrailException{x}, p.exceptions...)
	}
	return p, nil
}

// replacing adds the stored objects of whose names none was given.
func replacing[T interface{ GetName() string }](given []T, stored ...T) []T {
	for _, s := range stored {
		if !slices.ContainsFunc(given, func(g T) bool { return g.GetName() == s.GetName() }) {
			given = append(given, s)
		}
	}
	return given
}

// typed is an object as its Go type.
func typed[T any](stored map[string]any) (*T, error) {
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored, object); err != nil {
		return nil, fmt.Errorf("read %T: %w", object, err)
	}
	return object, nil
}

// isGuardrail says whether a document judges others: a Guardrail or an exception.
func isGuardrail(d manifest.Document) bool {
	return check.Ours(d) && (d.Object["kind"] == "Guardrail" || d.Object["kind"] == "GuardrailException")
}

// enforce judges the Guardrails and exceptions among documents, and gives the environment in which those that are admitted are
// in force, with a report for each in their order. Everything else is judged in it: all of it is to be applied,
// and what came before a Guardrail would be refused, or stop acting, once that is there.
func (a *App) enforce(ctx context.Context, w *policyEnv, stored storedFunc, files []manifest.File) (*policyEnv, []check.Report, error) {
	var documents []manifest.Document
	for d := range manifest.Each(files, "Guardrail") {
		if isGuardrail(d) {
			documents = append(documents, d)
		}
	}
	if len(documents) == 0 {
		return w, nil, nil
	}
	reports, p := make([]check.Report, len(documents)), w.policies
	for _, kind := range []string{"Guardrail", "GuardrailException"} { // exceptions name rules of Guardrails
		for i, d := range documents {
			if d.Object["kind"] != kind {
				continue
			}
			reports[i] = w.checker.Document(ctx, d, stored(d.Object))
			if !reports[i].Allowed {
				continue
			}
			var err error
			if p, err = p.with(reports[i].Stored); err != nil {
				return nil, nil, err
			}
			w.checker.SetPolicies(p.guardrails, p.exceptions) //nolint:contextcheck // compiling waits for nothing
		}
	}
	w, err := a.newEnv(ctx, w.snapshot, p)
	return w, reports, err
}

// readPolicies reads Guardrails and exceptions from files.
func (a *App) readPolicies(ctx context.Context, rules, exceptions []string) (p policies, err error) {
	if p.guardrails, err = readKind[v1alpha1.Guardrail](ctx, a, "--rules", "Guardrail", rules); err != nil {
		return p, err
	}
	p.exceptions, err = readKind[v1alpha1.GuardrailException](ctx, a, "--exceptions", "GuardrailException", exceptions)
	for _, x := range p.exceptions {
		if x.CreationTimestamp.IsZero() { // from a file, it would be created now; how long it may hold counts from there
			x.CreationTimestamp.Time = a.Clock.Now()
		}
	}
	return p, err
}

// readKind reads the objects of a kind from files that a flag names. They must hold their schema, and be all that is there
// of ours: a rule that nobody can read would be a rule that nobody asks.
func readKind[T any](ctx context.Context, a *App, flag, kind string, paths []string) ([]*T, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	files, err := manifest.Files(paths, false, a.In)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	checker, err := a.newChecker()
	if err != nil {
		return nil, err
	}
	var objects []*T
	for _, d := range documentsOf(files) {
		if !check.Ours(d) {
			continue
		}
		r := checker.Document(ctx, d, nil)
		switch {
		case r.Stored == nil:
			return nil, fmt.Errorf("%s: %s:%d: %s", flag, d.File, r.Violations[0].Line, r.Violations[0].Message)
		case r.Kind != kind:
			return nil, fmt.Errorf("%s: %s:%d: want a %s, got a %s", flag, d.File, d.Line, kind, r.Kind)
		}
		object, err := typed[T](r.Stored)
		if err != nil {
			return nil, fmt.Errorf("%s: %s:%d: %w", flag, d.File, d.Line, err)
		}
		objects = append(objects, object)
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s: there is no %s in %s", flag, kind, strings.Join(paths, ", "))
	}
	return objects, nil
}
