package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"

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

// outputFlags choose how a command that tells of a cluster writes its answer: in words of its own, or in kubectl's formats.
type outputFlags struct {
	format    string
	templates genericclioptions.KubeTemplatePrintFlags
}

// newOutputFlags adds the flag; own are the formats that the command has beside kubectl's.
func newOutputFlags(cmd *cobra.Command, own ...string) *outputFlags {
	o := &outputFlags{templates: *genericclioptions.NewKubeTemplatePrintFlags()}
	formats := slices.Concat(own, []string{"json", "yaml"}, o.templates.AllowedFormats())
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "output format: "+strings.Join(formats, ", "))
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	return o
}

// printer writes an answer.
type printer[A any] func(answer A, to *bytes.Buffer) error

// write writes an answer, or nothing of one that can't be written.
func (p printer[A]) write(answer A, to io.Writer) error {
	var text bytes.Buffer
	if err := p(answer, &text); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	_, err := to.Write(text.Bytes())
	return err
}

// printerOf gives what writes answers in the format that was asked for; own are the command's own formats, "" its default.
func printerOf[A any](o *outputFlags, own map[string]printer[A]) (printer[A], error) {
	if print, ok := own[o.format]; ok {
		return print, nil
	}
	flags := genericclioptions.PrintFlags{
		JSONYamlPrintFlags: genericclioptions.NewJSONYamlPrintFlags(), TemplatePrinterFlags: &o.templates, OutputFormat: &o.format,
	}
	p, err := flags.ToPrinter()
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	return func(answer A, to *bytes.Buffer) error {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(answer)
		if err != nil {
			return err
		}
		return p.PrintObj(&unstructured.Unstructured{Object: content}, to)
	}, nil
}
