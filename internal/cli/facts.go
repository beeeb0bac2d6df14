package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func (a *App) facts() *cobra.Command {
	facts := &cobra.Command{
		Use:   "facts",
		Short: "Keep what previews need to know of a cluster",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	facts.AddCommand(a.factsExport())
	return facts
}

func (a *App) factsExport() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "export [-o FILE]",
		Short: "Write what previews need to know of a cluster",
		Long: `Write what previews need to know of a cluster: a List of Kubernetes objects, as kubectl get -o yaml prints it, with what is read of
them: nodes with their labels, taints and conditions, their leases, which DaemonSets they can't do without; namespaces, Services and
which pods are behind them; of pods their labels, owners, and how their containers run and ran; Autohealer's policies; routes;
what stored ProbeConfigs name: the scales of dependents and the servers of kubeconfigs; and what stored HealthCheckRegistrations
read: their targets, and what their checks look at, of up to 1,000 targets of each. With the file, validate and plan say offline
what they would say now, but for what service accounts may do, and for what a ProbeConfig or a HealthCheckRegistration names that
no stored one does. An annotation of the List has a line for each thing that was asked for, as kubectl get takes it: what isn't
among the objects of such a line doesn't exist, and of anything else nothing is known.

The file names nodes, pods and their labels. It holds nothing secret: of Secrets only those with kubeconfigs that policies name are read,
and kept of them are the key, and the kubeconfig's server or why it is refused. It holds no environment of containers, no
messages and no annotations of others, unless a HealthCheckRegistration reads them.`,
		Example: `  kubectl autohealer facts export -o facts.yaml
  kubectl autohealer validate -R -f policies/ --facts facts.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runFactsExport(cmd.Context(), output) },
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; default: standard output")
	a.addCluster(cmd)
	return cmd
}

func (a *App) runFactsExport(ctx context.Context, output string) error {
	s, err := a.readLive(ctx)
	if err != nil {
		return err
	}
	s.OwnNamespace = a.own(s)
	w, err := a.newWorld(ctx, s, policies{})
	if err != nil {
		return err
	}
	if err := w.facts.Record(ctx, func(text string) { fmt.Fprintln(a.ErrOut, "warning:", text) }); err != nil {
		return fmt.Errorf("read what policies name: %w", err)
	}
	if output == "" || output == "-" {
		return s.Write(a.Out)
	}
	var text bytes.Buffer
	if err := s.Write(&text); err != nil {
		return err
	}
	if err := os.WriteFile(output, text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	return nil
}
