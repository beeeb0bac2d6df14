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
		Long: `Write what previews need to know of a cluster: nodes with their labels, taints and conditions, their leases, which DaemonSets
they can't do without; namespaces, Services and which pods are behind them; of pods their labels, owners, and which
containers crash-loop; Autohealer's policies; what stored ProbeConfigs name: the replicas of dependents and the servers
of kubeconfigs; and what stored HealthCheckRegistrations read: of up to 1,000 targets of a kind, and of what their checks look
at, the fields that the checks read. With the file, validate and plan say offline what they would say now, but for what service
accounts may do, and for what a ProbeConfig or a HealthCheckRegistration names that no stored one does.

The file names nodes, pods and their labels. It holds nothing secret: of Secrets only those with kubeconfigs that policies name are read,
and kept of them are the kubeconfig's server, or why it isn't safe. It holds nothing of pods' specs and no annotations of
others, unless a HealthCheckRegistration reads them.`,
		Example: `  kubectl autohealer facts export -o facts.yaml
  kubectl autohealer validate -R -f policies/ --facts facts.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runFactsExport(cmd.Context(), output) },
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; default: standard output")
	a.addOwn(cmd)
	a.Config.AddFlags(cmd.Flags())
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
