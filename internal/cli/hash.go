package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/guard"
)

func (a *App) hash() *cobra.Command {
	var in inputs
	cmd := &cobra.Command{
		Use:   "hash -f FILE",
		Short: "Print the hash of a policy's spec, which a GuardrailException names",
		Long: `Print the hash of a policy's spec, as the API server would store it: its SHA-256, with the CRD's defaults. A
GuardrailException names it, and so lifts nothing for another spec. Labels and annotations don't count.`,
		Example: `  kubectl autohealer hash -f kernel-deadlock.yaml`,
		Args:    cobra.NoArgs,
	}
	in.addFlags(cmd)
	output := choiceFlag(cmd, "output", "o", "output format: a line for a GuardrailException, or json", "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runHash(cmd.Context(), in, output.value) }
	return cmd
}

// hashed is one object's hash.
type hashed struct {
	File      string `json:"file"`
	Line      int    `json:"line"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	SpecHash  string `json:"specHash"`
}

func (a *App) runHash(ctx context.Context, in inputs, output string) error {
	files, err := a.files(in)
	if err != nil {
		return err
	}
	checker, err := check.New(check.Options{Clock: a.Clock})
	if err != nil {
		return err
	}
	failed := false
	hashes := []hashed{}
	for _, d := range documentsOf(files) {
		if !check.Ours(d) {
			continue
		}
		r := checker.Document(ctx, d, nil)
		if r.Stored == nil {
			failed = true
			for _, v := range r.Violations {
				a.tell(r.File, v.Line, true, v.Message)
			}
			continue
		}
		h := hashed{File: r.File, Line: r.Line, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
		if h.SpecHash, err = specHash(r.Stored); err != nil {
			return fmt.Errorf("hash %s:%d: %w", r.File, r.Line, err)
		}
		hashes = append(hashes, h)
	}
	if err := a.writeHashes(hashes, output); err != nil {
		return err
	}
	if failed {
		return exitStatus(exitFound)
	}
	return nil
}

// specHash is the hash that the guard has of an object once it is stored and read as its Go type.
func specHash(stored map[string]any) (string, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return "", err
	}
	apiVersion, _ := stored["apiVersion"].(string)
	kind, _ := stored["kind"].(string)
	typed, err := scheme.New(schema.FromAPIVersionAndKind(apiVersion, kind))
	if err != nil {
		return "", err
	}
	object, isObject := typed.(client.Object)
	if !isObject {
		return "", fmt.Errorf("%T is no object", typed)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored, object); err != nil {
		return "", err
	}
	return guard.SpecHash(object)
}

// writeHashes quotes: a hash of digits alone would be a number in YAML.
func (a *App) writeHashes(hashes []hashed, output string) error {
	if output == "json" {
		encoder := json.NewEncoder(a.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(hashes)
	}
	for _, h := range hashes {
		if _, err := fmt.Fprintf(a.Out, "specHash: %q # %s %s, %s:%d\n", h.SpecHash, h.Kind, h.Name, h.File, h.Line); err != nil {
			return err
		}
	}
	return nil
}
