// Package soundness tells whether an installation is sound: whether each of its parts is there and as this version of the plugin
// knows it, and whether the gates refuse what they must and admit what they should.
package soundness

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kind and APIVersion of what -o json prints.
const (
	Kind       = "Check"
	APIVersion = "cli.autohealer.resourcestack.com/v1alpha1"
)

// State of a part.
type State string

const (
	// Sound: it is as it should be.
	Sound State = "Sound"
	// Unsound: something is wrong with it.
	Unsound State = "Unsound"
	// Unknown: it can't be looked at.
	Unknown State = "Unknown"
)

// Finding is what is wrong with a part.
type Finding struct {
	// Message says what is wrong.
	Message string `json:"message"`
	// Do says what to do about it.
	Do string `json:"do"`
}

// Part of an installation.
type Part struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Looked says what was looked at, when it is sound.
	Looked   string    `json:"looked"`
	Findings []Finding `json:"findings,omitempty"`
}

// Report is one look at an installation.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Sound: every part is.
	Sound bool   `json:"sound"`
	Parts []Part `json:"parts"`
}

// Checker looks at one installation.
type Checker struct {
	Client client.Client
	Clock  clock.PassiveClock
	// Namespace is Autohealer's own. Manager names its Deployment and its Lease.
	Namespace, Manager string
}

// Look looks at every part once. What its user may not look at is Unknown; an API server that doesn't answer is an error.
func (c *Checker) Look(ctx context.Context) (*Report, error) {
	r := &Report{Sound: true}
	r.APIVersion, r.Kind = APIVersion, Kind
	for _, part := range []struct {
		name, looked string
		look         func(context.Context) ([]Finding, error)
	}{
		{"kinds", "the CRDs are those of this version", c.kinds},
		{"policies", "the admission policies are there, with the rules of this version", c.policies},
		{"webhook", "its configuration is that of this version", c.webhook},
		{"certificates", "the CA bundle is there and valid", c.certificates},
		{"verdicts", "one bad object of each kind is refused by its rule, and one good one is admitted", c.verdicts},
		{"rights", "the manager may do all that it has to", c.rights},
		{"roles", "the roles for people have all their rights", c.roles},
		{"manager", "one leads, and its replicas are ready", c.manager},
		{"caches", "the manager has seen every policy as it is now", c.caches},
		{"installations", "there is one", c.installations},
	} {
		findings, err := part.look(ctx)
		p := Part{Name: part.name, State: Sound, Looked: part.looked, Findings: findings}
		switch {
		case apierrors.IsForbidden(err):
			p.State = Unknown
			p.Findings = append(p.Findings, Finding{fmt.Sprintf("it can't be looked at: %v", err), "Run this with more rights; cluster-admin has them all."})
		case err != nil:
			return nil, fmt.Errorf("look at %s: %w", part.name, err)
		case len(findings) > 0:
			p.State = Unsound
		}
		r.Sound = r.Sound && p.State == Sound
		r.Parts = append(r.Parts, p)
	}
	return r, nil
}

// Write tells people.
func (r *Report) Write(w io.Writer) {
	for _, p := range r.Parts {
		if p.State == Sound {
			fmt.Fprintf(w, "%-14s ok: %s\n", p.Name, p.Looked)
			continue
		}
		for _, f := range p.Findings {
			fmt.Fprintf(w, "%-14s %s: %s\n%15s%s\n", p.Name, strings.ToUpper(string(p.State)), f.Message, "", f.Do)
		}
	}
	if r.Sound {
		fmt.Fprintln(w, "The installation is sound.")
	} else {
		fmt.Fprintln(w, "The installation isn't sound, or can't be seen to be.")
	}
}

// Unsound names the parts that aren't sound.
func (r *Report) Unsound() []string {
	var names []string
	for _, p := range r.Parts {
		if p.State != Sound {
			names = append(names, p.Name)
		}
	}
	return names
}

// Object is the report for kubectl's printers.
func (r *Report) Object() (runtime.Object, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r)
	if err != nil {
		return nil, fmt.Errorf("convert the report: %w", err)
	}
	return &unstructured.Unstructured{Object: content}, nil
}

const (
	reapply = "Install this version: kubectl apply -k config/default; or use the plugin of the version that is installed."
	logs    = "See what the manager says: kubectl -n %s logs deployment/%s --all-pods --tail=20"
)

func (c *Checker) logs() string { return fmt.Sprintf(logs, c.Namespace, c.Manager) }

// sorted gives findings in an order that doesn't change from look to look.
func sorted(findings []Finding) []Finding {
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.Message, b.Message) })
	return slices.Compact(findings)
}
