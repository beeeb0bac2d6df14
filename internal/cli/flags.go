package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/cli/manifest"
)

// choice is a flag with few values; a wrong one is an error that names the flag and the right ones.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }

// Set takes one of the allowed values.
func (c *choice) Set(value string) error {
	if !slices.Contains(c.allowed, value) {
		return fmt.Errorf("must be one of %s", strings.Join(c.allowed, ", "))
	}
	c.value = value
	return nil
}

// choiceFlag adds a flag whose default is the first value.
func choiceFlag(cmd *cobra.Command, name, shorthand, usage string, allowed ...string) *choice {
	c := &choice{value: allowed[0], allowed: allowed}
	cmd.Flags().VarP(c, name, shorthand, usage)
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// timeout is a flag's duration, which is more than 0.
type timeout time.Duration

func (t *timeout) String() string { return time.Duration(*t).String() }
func (t *timeout) Type() string   { return "duration" }

// Set takes a duration such as 2m.
func (t *timeout) Set(value string) error {
	d, err := time.ParseDuration(value)
	if err == nil && d <= 0 {
		err = errors.New("must be more than 0")
	}
	*t = timeout(d)
	return err
}

// timeoutFlag adds --timeout to a verb that waits.
func timeoutFlag(cmd *cobra.Command, byDefault time.Duration, usage string) *time.Duration {
	cmd.Flags().Var((*timeout)(&byDefault), "timeout", usage)
	_ = cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions) // it fails for a flag that isn't there
	return &byDefault
}

// inputs are the flags that say which manifests to read.
type inputs struct {
	filenames []string
	recursive bool
}

func (in *inputs) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&in.filenames, "filename", "f", nil, "file or directory with manifests, or - for standard input")
	cmd.Flags().BoolVarP(&in.recursive, "recursive", "R", false, "search the directories in -f recursively")
	// Both fail for a flag that isn't there, and this one is.
	_ = cmd.MarkFlagRequired("filename")
	_ = cmd.MarkFlagFilename("filename", "json", "yaml", "yml")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("%q: files are named with -f; see '%s --help'", args[0], cmd.CommandPath())
	}
}

func (a *App) files(in inputs) ([]manifest.File, error) {
	files, err := manifest.Files(in.filenames, in.recursive, a.In)
	if err != nil {
		return nil, fmt.Errorf("--filename: %w", err)
	}
	return files, nil
}

func documentsOf(files []manifest.File) []manifest.Document {
	return slices.Collect(manifest.Each(files, ""))
}

// isTerminal says whether someone looks at a stream.
func isTerminal(stream any) bool {
	file, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// wantsColors says whether a stream may be colored (https://no-color.org).
func wantsColors(stream any) bool {
	return isTerminal(stream) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// apiVersion of what verbs write as JSON and YAML.
const apiVersion = "cli.autohealer.resourcestack.com/v1alpha1"

// printer writes an answer.
type printer[A any] func(to io.Writer, answer A) error

// output chooses how a verb writes its answer: in words, in a format of its own, or as a document of a kind in kubectl's formats.
type output[A any] struct {
	kind      string
	own       map[string]printer[A]
	format    string
	templates *genericclioptions.KubeTemplatePrintFlags
}

// outputFlag adds --output. Own are the verb's own formats, "" its default; in kubectl's formats the answer is an object of the kind.
func outputFlag[A any](cmd *cobra.Command, kind string, own map[string]printer[A]) *output[A] {
	o := &output[A]{kind: kind, own: own, templates: genericclioptions.NewKubeTemplatePrintFlags()}
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "output format: "+strings.Join(o.formats(), ", "))
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats(), cobra.ShellCompDirectiveNoFileComp))
	return o
}

func (o *output[A]) formats() []string {
	all := slices.Concat([]string{"json", "yaml"}, slices.Sorted(maps.Keys(o.own)), o.templates.AllowedFormats())
	return slices.DeleteFunc(all, func(format string) bool { return format == "" })
}

// printer gives what writes answers in the format that was asked for.
func (o *output[A]) printer() (printer[A], error) {
	if print, ok := o.own[o.format]; ok {
		return print, nil
	}
	flags := genericclioptions.PrintFlags{
		JSONYamlPrintFlags: genericclioptions.NewJSONYamlPrintFlags(), TemplatePrinterFlags: o.templates, OutputFormat: &o.format,
	}
	p, err := flags.ToPrinter()
	switch {
	case genericclioptions.IsNoCompatiblePrinterError(err):
		return nil, fmt.Errorf("--output=%s: must be one of %s", o.format, strings.Join(o.formats(), ", "))
	case err != nil:
		return nil, fmt.Errorf("--output: %w", err)
	}
	return func(to io.Writer, answer A) error {
		text, err := json.Marshal(answer)
		if err != nil {
			return err
		}
		var document unstructured.Unstructured
		if err := utiljson.Unmarshal(text, &document.Object); err != nil {
			return err
		}
		document.SetAPIVersion(apiVersion)
		document.SetKind(o.kind)
		return p.PrintObj(&document, to)
	}, nil
}

// write writes an answer, or nothing of one that can't be written.
func (p printer[A]) write(answer A, to io.Writer) error {
	var text bytes.Buffer
	if err := p(&text, answer); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	_, err := to.Write(text.Bytes())
	return err
}

const (
	// completionTimeout bounds a completion: whoever presses tab waits for it.
	completionTimeout = 2 * time.Second
	// maxCompletions bounds what a completion lists.
	maxCompletions = 500
)

// complete offers what a shell asks for, if that is known in time. What asks a cluster for its kinds takes no context.
func complete(ctx context.Context, root *cobra.Command) (exitCode int) {
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	select {
	case err := <-done:
		if err == nil {
			return exitOK
		}
	case <-time.After(completionTimeout):
	}
	return exitError
}

// addConfig adds kubectl's flags for clusters.
func (a *App) addConfig(cmd *cobra.Command) {
	a.Config.AddFlags(cmd.Flags())
	_ = cmd.RegisterFlagCompletionFunc("namespace", a.completeNamespaces) // it fails for a flag that isn't there
}

// completeNamespaces completes the names of namespaces.
func (a *App) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.names(cmd.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, false), cobra.ShellCompDirectiveNoFileComp
}

// completeObjects completes kinds, and after a slash the names that the cluster has, of any kind.
func (a *App) completeObjects(kinds ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) (found []string, directive cobra.ShellCompDirective) {
		kind, _, slashed := strings.Cut(typed, "/")
		if !slashed {
			for _, k := range kinds {
				found = append(found, k+"/")
			}
			return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		mapping, err := a.mappingOf(typed, kind)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for _, name := range a.names(cmd.Context(), mapping.GroupVersionKind, mapping.Scope.Name() == meta.RESTScopeNameNamespace) {
			found = append(found, kind+"/"+name)
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// names of a kind's objects, in the namespace of the flags where the kind has any; none when they can't be read.
func (a *App) names(ctx context.Context, kind schema.GroupVersionKind, namespaced bool) []string {
	c, err := a.client()
	if err != nil {
		return nil
	}
	options := []client.ListOption{client.Limit(maxCompletions)}
	if namespaced {
		namespace, _, err := a.Config.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return nil
		}
		options = append(options, client.InNamespace(namespace))
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if c.List(ctx, &list, options...) != nil {
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}
