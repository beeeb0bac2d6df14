package cli

import (
	"bytes"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// outputFlags choose how a command that tells of a cluster writes its answer: in words of its own, or in kubectl's formats.
type outputFlags struct {
	format    string
	templates genericclioptions.KubeTemplatePrintFlags
}

func newOutputFlags() outputFlags {
	return outputFlags{templates: *genericclioptions.NewKubeTemplatePrintFlags()}
}

// add adds the flag; own are the formats that the command has beside kubectl's.
func (o *outputFlags) add(cmd *cobra.Command, own ...string) {
	formats := slices.Concat(own, []string{"json", "yaml"}, o.templates.AllowedFormats())
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "output format: "+strings.Join(formats, ", "))
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// asObject is an answer that kubectl's printers can write.
type asObject interface {
	Object() (runtime.Object, error)
}

// printer writes an answer.
type printer[A any] func(answer A, to *bytes.Buffer) error

// printerOf gives what writes answers in the format that was asked for; own are the command's own formats, "" its default.
func printerOf[A asObject](o *outputFlags, own map[string]printer[A]) (printer[A], error) {
	if print, ok := own[o.format]; ok {
		return print, nil
	}
	flags := genericclioptions.PrintFlags{
		JSONYamlPrintFlags: genericclioptions.NewJSONYamlPrintFlags(), TemplatePrinterFlags: &o.templates, OutputFormat: &o.format,
	}
	p, err := flags.ToPrinter()
	if err != nil {
		return nil, err
	}
	return func(answer A, to *bytes.Buffer) error {
		object, err := answer.Object()
		if err != nil {
			return err
		}
		return p.PrintObj(object, to)
	}, nil
}
