package cli

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

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

// show writes an answer, or nothing of one that can't be written.
func (p printer[A]) show(answer A, to io.Writer) error {
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
