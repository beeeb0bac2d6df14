package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/guard"
)

type hashOptions struct {
	inputs
	rules  []string
	output *output[hashList]
}

func (a *App) hash() *cobra.Command {
	o := &hashOptions{}
	cmd := &cobra.Command{
		Use:   "hash -f FILE",
		Short: "Print the hash of a policy's spec, or the GuardrailException that it needs",
		Long: `Print the hash of a policy's spec, as the API server would store it: its SHA-256, with the CRD's defaults. A
GuardrailException names it, and so lifts nothing for another spec. Labels and annotations don't count.

Where rules refuse the policy that an exception may lift, it says which, and which annotation the policy needs: the API
server's own policies can't see exceptions. With -o exception it writes the GuardrailException, but for its reason.
Rules of your own are known from --rules; those that ask what the cluster is like aren't asked.

Exit code: 0 all were hashed; 1 something has no hash, since its schema refuses it; 2 the command line is wrong or the
command failed.`,
		Example: `  kubectl autohealer hash -f kernel-deadlock.yaml

  # an exception to fill in
  kubectl autohealer hash -f kernel-deadlock.yaml -o exception > exception.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runHash(cmd.Context(), o) },
	}
	o.addFlags(cmd)
	cmd.Flags().StringSliceVar(&o.rules, "rules", nil, "file or directory with Guardrails whose rules may refuse it too")
	cmd.Flags().StringVarP(a.Config.Namespace, "namespace", "n", "", "namespace of objects that name none; default: default")
	o.output = outputFlag(cmd, "HashList", map[string]printer[hashList]{"": writeHashes, "exception": a.writeExceptions})
	return cmd
}

// hashList is what hash tells.
type hashList struct {
	Items []hashed `json:"items"`
}

// hashed is one object's hash, with what an exception for it would lift.
type hashed struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	SpecHash  string `json:"specHash"`
	// Exceptable rules refuse the object, and may be lifted.
	Exceptable []string `json:"exceptable,omitempty"`
	// Annotations that the object needs, so that the API server's policies leave these rules to the exception.
	Annotations map[string]string `json:"annotations,omitempty"`
}

func (a *App) runHash(ctx context.Context, o *hashOptions) error {
	show, err := o.output.printer()
	if err != nil {
		return err
	}
	files, err := a.files(o.inputs)
	if err != nil {
		return err
	}
	w, err := a.judge(ctx, &validateOptions{rules: o.rules})
	if err != nil {
		return err
	}
	failed := false
	hashes := hashList{Items: []hashed{}}
	for _, d := range documentsOf(files) {
		if !check.Ours(d) {
			continue
		}
		r := w.checker.Document(ctx, d, nil)
		if r.Stored == nil {
			failed = true
			for _, v := range r.Violations {
				a.printNotes(r.File, v.Line, true, v.Message)
			}
			continue
		}
		key := w.checker.KeyOf(r.Stored) // an exception names the namespace, whether the manifest does or not
		h := hashed{File: r.File, Line: r.Line, Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}
		if h.SpecHash, err = guard.SpecHash(&unstructured.Unstructured{Object: r.Stored}); err != nil {
			return fmt.Errorf("hash %s:%d: %w", r.File, r.Line, err)
		}
		h.except(r, w.checker.Guard().Rules(r.Kind))
		hashes.Items = append(hashes.Items, h)
	}
	if err := show.write(hashes, a.Out); err != nil {
		return err
	}
	if failed {
		return exitStatus(exitFound)
	}
	return nil
}

// except notes which of the rules that refuse the object may be lifted, and what it must say for that. Exceptions are for
// policies only.
func (h *hashed) except(r check.Report, rules []guard.RuleInfo) {
	if r.Kind == "Guardrail" || r.Kind == "GuardrailException" {
		return
	}
	var annotated []string
	for _, v := range r.Violations {
		i := slices.IndexFunc(rules, func(rule guard.RuleInfo) bool { return rule.ID == v.Rule })
		if v.Severity != guard.Deny || i < 0 || !rules[i].Exceptable {
			continue
		}
		h.Exceptable = append(h.Exceptable, v.Rule)
		if rules[i].Portable && rules[i].Guardrail == "" { // the policies have these
			annotated = append(annotated, v.Rule)
		}
	}
	if len(annotated) > 0 {
		h.Annotations = map[string]string{v1alpha1.AnnotationExceptedRules: strings.Join(annotated, ",")}
	}
}

func writeHashes(w io.Writer, hashes hashList) error {
	for _, h := range hashes.Items {
		h.writeLine(w)
	}
	return nil
}

// writeExceptions writes those that are needed.
func (a *App) writeExceptions(w io.Writer, hashes hashList) error {
	for i, h := range hashes.Items {
		if len(h.Exceptable) == 0 {
			a.printNotes(h.File, h.Line, false, fmt.Sprintf("%s %s needs no exception: no rule that may be lifted refuses it", h.Kind, h.Name))
			continue
		}
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		h.writeException(w, a.Clock.Now().Add(suggestedTerm))
	}
	return nil
}

// writeLine quotes: a hash of digits alone would be a number in YAML.
func (h *hashed) writeLine(out io.Writer) {
	fmt.Fprintf(out, "specHash: %q # %s %s, %s:%d\n", h.SpecHash, h.Kind, h.Name, h.File, h.Line)
	if len(h.Exceptable) > 0 {
		fmt.Fprintf(out, "# refused by %s, which an exception may lift: -o exception writes one\n", strings.Join(h.Exceptable, ", "))
	}
	h.writeAnnotations(out)
}

func (h *hashed) writeAnnotations(out io.Writer) {
	for key, value := range h.Annotations {
		fmt.Fprintf(out, "# annotation that %s %s needs beside the exception:\n#   %s: %s\n", h.Kind, h.Name, key, value)
	}
}

// suggestedTerm is how long an exception holds that nobody changes before it is applied; it may be up to 7 days.
const suggestedTerm = 24 * time.Hour

// writeException leaves the reason empty, which the schema refuses: a person has to write it.
func (h *hashed) writeException(out io.Writer, expires time.Time) {
	h.writeAnnotations(out)
	name := scalar(h.Name)
	fmt.Fprintf(out, "apiVersion: %s\nkind: GuardrailException\nmetadata:\n  name: %s\nspec:\n  ruleIDs:\n", v1alpha1.GroupVersion, name)
	for _, id := range h.Exceptable {
		fmt.Fprintf(out, "  - %s\n", id)
	}
	fmt.Fprintf(out, "  targetRef:\n    kind: %s\n", h.Kind)
	if h.Namespace != "" {
		fmt.Fprintf(out, "    namespace: %s\n", scalar(h.Namespace))
	}
	fmt.Fprintf(out, "    name: %s\n  specHash: %q\n  reason: \"\" # why, and where it is discussed\n  expiresAt: %q # at most 7 days after its creation\n",
		name, h.SpecHash, expires.UTC().Format(time.RFC3339))
}

// scalar is a text in YAML: quoted where it would be something else, since 123 and true are names, too.
func scalar(text string) string {
	quoted, err := yaml.Marshal(text)
	if err != nil {
		return strconv.Quote(text)
	}
	return strings.TrimSpace(string(quoted))
}
