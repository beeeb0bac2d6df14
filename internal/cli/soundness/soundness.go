// Package soundness tells whether an installation is sound: whether each of its parts is there and as this version of the plugin
// knows it, and whether the gates refuse what they must and admit what they should.
package soundness

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/guard"
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

// Component of an installation.
type Component struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	// Looked says what was found, when it is sound.
	Looked string `json:"looked,omitempty"`
	// First names the part to mend first: the findings here may follow from its.
	First    string    `json:"first,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
}

// Report is one look at an installation.
type Report struct {
	// Sound: every part is.
	Sound bool `json:"sound"`
	// Components come after those that they may fail because of.
	Components []Component `json:"parts"`
}

// Checker looks at one installation.
type Checker struct {
	Client client.Client
	// Server tells the API server's version.
	Server discovery.ServerVersionInterface
	Clock  clock.PassiveClock
	// Namespace is Autohealer's own. Manager names its Deployment, its account and its Lease.
	Namespace, Manager string
}

// Check looks at every part once. What its user may not look at is Unknown; an API server that doesn't answer is an error.
func (c *Checker) Check(ctx context.Context) (*Report, error) {
	r := &Report{Sound: true}
	for _, component := range []struct {
		name, looked string
		// needs are the parts without which this one fails.
		needs []string
		find  func(context.Context) ([]Finding, error)
	}{
		{"kubernetes", fmt.Sprintf("the API server is of %s or later", guard.OldestKubernetes), nil, c.kubernetes},
		{"installations", "there is no second one", nil, c.installations},
		{"kinds", "the CRDs are those of this version", nil, c.kinds},
		{"policies", "the admission policies are there, with the rules of this version", []string{"kubernetes"}, c.policies},
		{"webhook", "its configuration is that of this version", nil, c.webhook},
		{"certificates", "the CA bundle is there and valid", []string{"webhook"}, c.certificates},
		{"roles", "the roles for people have all their rights", nil, c.roles},
		{"rights", "the manager's account has all rights of its roles", []string{"installations"}, c.rights},
		{"manager", "one leads, and all replicas are of one version and ready", []string{"installations", "kinds", "rights"}, c.manager},
		{"caches", "the manager has seen every change of a policy, but for those of the last 15 seconds", []string{"kinds", "rights", "manager"}, c.caches},
		{"verdicts", "one bad object of each kind is refused by its rule, and a good one by no rule of Autohealer's", []string{"kinds", "policies", "webhook", "certificates", "manager"}, c.verdicts},
		{"records", "each taint of Autohealer's on a node is of a ConditionSet that is there, and every record can be read", []string{"kinds"}, c.records},
	} {
		findings, err := component.find(ctx)
		p := Component{Name: component.name, State: Sound, Findings: findings}
		if len(findings) > 0 {
			p.State = Unsound
		}
		switch {
		case apierrors.IsForbidden(err):
			p.Findings = append(p.Findings, Finding{fmt.Sprintf("it can't be looked at: %v", err), "Run this with more rights; cluster-admin has them all."})
			if p.State == Sound {
				p.State = Unknown
			}
		case err != nil:
			return nil, fmt.Errorf("look at %s: %w", component.name, err)
		}
		switch p.State {
		case Sound:
			p.Looked = component.looked
		case Unsound:
			p.First = r.cause(component.needs)
		}
		r.Sound = r.Sound && p.State == Sound
		r.Components = append(r.Components, p)
	}
	return r, nil
}

// cause is the first of these parts that is unsound, or what that follows from; "" when none is.
func (r *Report) cause(of []string) string {
	for _, p := range r.Components {
		if p.State == Unsound && slices.Contains(of, p.Name) {
			return cmp.Or(p.First, p.Name)
		}
	}
	return ""
}

// Write tells people: one line a part, then what to do about those that don't follow from others.
func (r *Report) Write(w io.Writer) {
	more := false
	for _, p := range r.Components {
		switch {
		case p.State == Sound:
			fmt.Fprintf(w, "%-14s ok: %s\n", p.Name, p.Looked)
			continue
		case p.First != "":
			fmt.Fprintf(w, "%-14s %s, which may follow from %s\n", p.Name, strings.ToUpper(string(p.State)), p.First)
			more = true
			continue
		}
		others := ""
		if n := len(p.Findings) - 1; n > 0 {
			others, more = fmt.Sprintf(" (and %d more)", n), true
		}
		fmt.Fprintf(w, "%-14s %s: %s%s\n", p.Name, strings.ToUpper(string(p.State)), p.Findings[0].Message, others)
	}
	if r.Sound {
		fmt.Fprintln(w, "The installation is sound.")
		return
	}
	fmt.Fprintln(w, "The installation isn't sound, or can't be seen to be. What to do:")
	printed := sets.New[string]()
	for _, p := range r.Components {
		if p.State != Sound && p.First == "" && !printed.Has(p.Findings[0].Do) {
			printed.Insert(p.Findings[0].Do)
			fmt.Fprintf(w, "%-14s %s\n", p.Name, p.Findings[0].Do)
		}
	}
	if more {
		fmt.Fprintln(w, "All that was found: kubectl autohealer check -o yaml")
	}
}

// Unsound names the parts that aren't sound.
func (r *Report) Unsound() []string {
	var names []string
	for _, p := range r.Components {
		if p.State != Sound {
			names = append(names, p.Name)
		}
	}
	return names
}

func (c *Checker) kubernetes(context.Context) ([]Finding, error) {
	info, err := c.Server.ServerVersion()
	if err != nil {
		return nil, err
	}
	server, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return nil, fmt.Errorf("read the API server's version: %w", err)
	}
	if server.LessThan(guard.OldestKubernetes) {
		return []Finding{{
			fmt.Sprintf("Kubernetes %s is older than %s, and its API server doesn't take the admission policies", info.GitVersion, guard.OldestKubernetes),
			fmt.Sprintf("Upgrade the cluster to %s or later.", guard.OldestKubernetes),
		}}, nil
	}
	return nil, nil
}

const (
	reapply = "Install this version, the way it was installed: helm upgrade, or kubectl apply -f install.yaml, or kubectl apply -k config/default; or use the plugin of the version that is installed."
	logs    = "See what the manager says: kubectl -n %s logs deployment/%s --all-pods --tail=20"
)

func (c *Checker) logs() string { return fmt.Sprintf(logs, c.Namespace, c.Manager) }

// sorted gives findings in an order that doesn't change from look to look.
func sorted(findings []Finding) []Finding {
	slices.SortFunc(findings, func(a, b Finding) int { return strings.Compare(a.Message, b.Message) })
	return slices.Compact(findings)
}
