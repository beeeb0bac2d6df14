package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/soundness"
)

type checkOptions struct {
	output    string
	templates genericclioptions.KubeTemplatePrintFlags
	wait      time.Duration
}

// checkEvery lies between two looks with --wait.
const checkEvery = time.Second

func (a *App) check() *cobra.Command {
	o := &checkOptions{templates: *genericclioptions.NewKubeTemplatePrintFlags()}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "See whether the installation is sound",
		Long: `See whether the installation is sound: CRDs, admission policies, webhook, its certificates, the rights of the manager and of the
roles for people, the manager and its caches, and whether there is a second installation. One bad object of each kind must be
refused in the words of its rule, and one good one admitted; both are dry runs, and nothing is stored.

It names each part that isn't sound, and what to do about it. Installed objects are compared with those of the plugin's own
version. With --wait it looks again until all is sound or time is up, for CI after an installation.

Exit code: 0 the installation is sound; 1 it isn't, or something could not be looked at; 2 the command line is wrong, or the
cluster can't be asked.`,
		Example: `  kubectl autohealer check
  kubectl autohealer check --wait=2m
  kubectl autohealer check -o jsonpath='{.parts[?(@.state!="Sound")].name}'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.runCheck(cmd.Context(), o) },
	}
	formats := append([]string{"json", "yaml"}, o.templates.AllowedFormats()...)
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "output format: "+strings.Join(formats, ", "))
	cmd.Flags().DurationVar(&o.wait, "wait", 0, "look again until all is sound, for so long at most, such as 2m")
	// It fails for a flag that isn't there, and these are.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("wait", cobra.NoFileCompletions)
	a.Config.AddFlags(cmd.Flags())
	return cmd
}

func (a *App) runCheck(ctx context.Context, o *checkOptions) error {
	if o.wait < 0 {
		return fmt.Errorf("--wait=%s: must not be negative", o.wait)
	}
	show, err := o.printer()
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	look := soundness.Checker{Client: c, Clock: a.cluster, Namespace: check.DefaultNamespace, Manager: managerName}
	report, err := a.awaitSound(ctx, look, o.wait)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := show(report, &text); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	if _, err := a.Out.Write(text.Bytes()); err != nil {
		return err
	}
	if !report.Sound {
		return exitStatus(exitFound)
	}
	return nil
}

// awaitSound looks until all is sound or time is up, and gives the last look. While there is time an API server that doesn't
// answer may come back.
func (a *App) awaitSound(ctx context.Context, look soundness.Checker, within time.Duration) (*soundness.Report, error) {
	progress := a.progress()
	defer progress("")
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for until := a.Clock.Now().Add(within); ; {
		report, err := look.Look(ctx)
		if err == nil && report.Sound || !a.Clock.Now().Before(until) {
			return report, err
		}
		if err == nil {
			progress("not sound yet: " + strings.Join(report.Unsound(), ", "))
		} else {
			progress("not sound yet: " + err.Error())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// printer writes a report in one of the formats.
func (o *checkOptions) printer() (func(*soundness.Report, *bytes.Buffer) error, error) {
	if o.output == "" {
		return func(r *soundness.Report, w *bytes.Buffer) error {
			r.Write(w)
			return nil
		}, nil
	}
	flags := genericclioptions.PrintFlags{
		JSONYamlPrintFlags: genericclioptions.NewJSONYamlPrintFlags(), TemplatePrinterFlags: &o.templates, OutputFormat: &o.output,
	}
	p, err := flags.ToPrinter()
	if err != nil {
		return nil, err
	}
	return func(r *soundness.Report, w *bytes.Buffer) error {
		object, err := r.Object()
		if err != nil {
			return err
		}
		return p.PrintObj(object, w)
	}, nil
}
