// Package trail reads the audit trail out of managers' logs.
package trail

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/resourcestack/autohealer/internal/kube"
)

// Act is one line of the trail; docs/reference/audit-trail.md has the fields.
type Act struct {
	Logger          string    `json:"logger"`
	Time            time.Time `json:"time"`
	Verb            string    `json:"verb"`
	Reason          string    `json:"reason"`
	PolicyKind      string    `json:"policyKind"`
	PolicyNamespace string    `json:"policyNamespace"`
	Policy          string    `json:"policy"`
	TargetKind      string    `json:"targetKind"`
	TargetNamespace string    `json:"targetNamespace"`
	Target          string    `json:"target"`
	TaintKey        string    `json:"taintKey"`
	ConditionType   string    `json:"conditionType"`
	Clusters        int       `json:"clusters"`
	Service         string    `json:"service"`
	Owner           string    `json:"owner"`
	Unconfirmed     string    `json:"unconfirmed"`
	// Before and After are a taint's effects, a condition's statuses, or numbers of replicas.
	Before any `json:"before"`
	After  any `json:"after"`

	// line as it was logged.
	line []byte
}

// MarshalJSON gives all that was logged of the act.
func (a Act) MarshalJSON() ([]byte, error) { return a.line, nil }

// longestLine bounds one line of a log.
const longestLine = 1 << 20

// Read finds the acts in logs, the oldest first. Lines of anything else are passed over, and so is what stands before a
// line's JSON, such as kubectl's --prefix.
func Read(logs io.Reader) ([]Act, error) {
	var acts []Act
	lines := bufio.NewScanner(logs)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		at := bytes.IndexByte(lines.Bytes(), '{')
		if at < 0 {
			continue
		}
		act := Act{line: slices.Clone(lines.Bytes()[at:])}
		if json.Unmarshal(act.line, &act) == nil && act.Logger == kube.HistoryLogger && act.Target != "" {
			acts = append(acts, act)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the log: %w", err)
	}
	slices.SortStableFunc(acts, func(a, b Act) int { return a.Time.Compare(b.Time) })
	return acts, nil
}

// Concerns says whether the act changed an object, or was done for it: of a kind such as Node, node or nodes.
func (a Act) Concerns(kind, name string) bool {
	is := func(of string) bool {
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: of})
		return strings.EqualFold(of, kind) || strings.EqualFold(plural.Resource, kind)
	}
	owner, ownerName, _ := strings.Cut(a.Owner, "/")
	return is(a.TargetKind) && a.Target == name || is(a.PolicyKind) && a.Policy == name ||
		is(owner) && ownerName == name || is("Service") && a.Service == name
}

// what the act changed.
func (a Act) what() string {
	what := a.change()
	if a.Unconfirmed == "" {
		return what
	}
	return what + "; unconfirmed: " + a.Unconfirmed
}

func (a Act) change() string {
	switch {
	case a.Service != "":
		return fmt.Sprintf("Service %s recovered; %s", a.Service, a.Owner)
	case a.Clusters > 0:
		return fmt.Sprintf("%d Envoy clusters", a.Clusters)
	case a.Before == nil:
		return ""
	case a.ConditionType != "":
		return a.conditionChange()
	case a.TaintKey == "":
		return fmt.Sprintf("%v replicas, before %v", a.After, a.Before)
	case a.Before == "":
		return fmt.Sprintf("%s:%s", a.TaintKey, a.After)
	case a.After == "":
		return fmt.Sprintf("%s:%s removed", a.TaintKey, a.Before)
	}
	return fmt.Sprintf("%s:%s, before %s", a.TaintKey, a.After, a.Before)
}

func (a Act) conditionChange() string {
	switch {
	case a.Verb == "RemoveCondition":
		return fmt.Sprintf("%s removed, before %s", a.ConditionType, a.Before)
	case a.Before == "":
		return fmt.Sprintf("%s is %s", a.ConditionType, a.After)
	}
	return fmt.Sprintf("%s is %s, before %s", a.ConditionType, a.After, a.Before)
}

func ref(kind, namespace, name string) string {
	if namespace != "" {
		namespace += " "
	}
	return namespace + strings.ToLower(kind) + "/" + name
}

// Table writes acts for people.
func Table(w io.Writer, acts []Act) error {
	table := printers.GetNewTabWriter(w)
	fmt.Fprintln(table, "TIME\tVERB\tTARGET\tPOLICY\tREASON\tWHAT")
	for _, a := range acts {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", a.Time.UTC().Format(time.RFC3339), a.Verb,
			ref(a.TargetKind, a.TargetNamespace, a.Target), ref(a.PolicyKind, a.PolicyNamespace, a.Policy), a.Reason, a.what())
	}
	return table.Flush()
}
