package cli

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/cli/envoy"
	"github.com/resourcestack/autohealer/internal/cli/manifest"
	"github.com/resourcestack/autohealer/internal/cli/report"
	"github.com/resourcestack/autohealer/internal/domain/outlier"
	"github.com/resourcestack/autohealer/internal/domain/outlier/detector"
	"github.com/resourcestack/autohealer/internal/domain/sample"
	"github.com/resourcestack/autohealer/internal/guard"
)

func readOutlierPolicy(op *v1alpha1.OutlierPolicy) (*outlier.Policy, error) {
	policy, err := outlier.NewPolicy(op)
	if err != nil {
		return nil, fmt.Errorf("read OutlierPolicy %s/%s: %w", op.Namespace, op.Name, err)
	}
	return policy, nil
}

// runTrace tells whom Envoy would have ejected for each OutlierPolicy, by their rules over the object alone.
func (a *App) runTrace(ctx context.Context, o *planOptions, documents []manifest.Document) error {
	trace, err := readTrace(o.trace)
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	checker, err := check.New(check.Options{Options: guard.Options{Clock: a.Clock}, Namespace: *a.Config.Namespace})
	if err != nil {
		return err
	}
	simulations, ejections := 0, 0
	for _, d := range documents {
		if !check.Ours(d) || len(d.Problems) == 0 && d.Object["kind"] != "OutlierPolicy" {
			continue
		}
		r := checker.Document(ctx, d, nil)
		if !r.Allowed || r.Stored == nil {
			return a.refuse(d, r)
		}
		ejected, err := a.simulate(r, trace)
		if err != nil {
			return err
		}
		simulations, ejections = simulations+1, ejections+ejected
	}
	switch {
	case simulations == 0:
		return fmt.Errorf("--filename: there is no OutlierPolicy in %s", strings.Join(o.filenames, ", "))
	case ejections > 0:
		return exitStatus(exitFound)
	}
	return nil
}

// refuse tells why a policy would be refused.
func (a *App) refuse(d manifest.Document, r check.Report) error {
	for _, v := range r.Violations {
		a.printNotes(d.File, d.Line, true, fmt.Sprintf("%s: %s", v.Rule, v.Message))
	}
	return exitStatus(exitRefused)
}

func readTrace(name string) (detector.Trace, error) {
	file, err := os.Open(name)
	if err != nil {
		return detector.Trace{}, err
	}
	defer file.Close() //nolint:errcheck // nothing was written
	trace, err := detector.ReadTrace(file)
	if err != nil {
		return detector.Trace{}, fmt.Errorf("%s: %w", name, err)
	}
	return trace, nil
}

// simulate tells whom Envoy would have ejected for a policy, and gives how often.
func (a *App) simulate(r check.Report, trace detector.Trace) (ejections int, err error) {
	op, err := typed[v1alpha1.OutlierPolicy](r.Stored)
	if err != nil {
		return 0, err
	}
	policy, err := readOutlierPolicy(op)
	if err != nil {
		return 0, err
	}
	var events strings.Builder
	if policy.Detects() {
		for _, e := range detector.Simulate(policy.Settings, trace, nil) {
			at := e.At.String()
			if !trace.Start.IsZero() {
				at = trace.Start.Add(e.At).UTC().Format("15:04:05.000")
			}
			if e.Action == detector.Ejected {
				ejections++
			}
			fmt.Fprintf(&events, "  %12s  %s %s\n", at, report.Printable(e.Host), hostOutcome(e))
		}
	}
	name := report.Printable(strings.TrimPrefix(op.Namespace+"/"+op.Name, "/"))
	fmt.Fprintf(a.Out, "OutlierPolicy %s: %s of %s\n%s", name, sample.Count(ejections, "ejection"), sample.Count(len(trace.Hosts), "host"), events.String())
	return ejections, nil
}

// hostOutcome says what happened to a host.
func hostOutcome(e detector.Event) string {
	why := map[detector.Cause]string{
		detector.ConsecutiveServerErrors: "consecutive 5xx", detector.ConsecutiveLocalOrigin: "consecutive failures of Envoy's own",
	}[e.Cause]
	switch e.Action {
	case detector.Ejected:
		return fmt.Sprintf("ejected for %s, time %d: %s", e.For, e.Ejections, why)
	case detector.Returned:
		return fmt.Sprintf("back after %s", e.For)
	case detector.Observed:
		return "counted, not ejected: " + why
	}
	return "spared, as many as may be are ejected: " + why
}

func (a *App) envoyBootstrap() *cobra.Command {
	var o envoy.Options
	ejections := true
	cmd := &cobra.Command{
		Use:   "envoy-bootstrap --server HOST:PORT",
		Short: "Print the configuration with which an Envoy gets its clusters from Autohealer",
		Long: `Print the configuration with which an Envoy gets its clusters from Autohealer: where the server is, how both know each
other, Envoy's admin page on 127.0.0.1, and a log of ejections. Add listeners and routes to it, or have Envoy get them from a
file or from another server; a route names a cluster NAMESPACE/SERVICE/PORT.

Envoy shows the certificate in --cert, and the names in it decide which namespaces it sees. It needs to be able to read the
files. With --resources-dir two more files are written there, through which Envoy follows the certificates when they are
replaced; without, it reads them once.

With --ejections-port a manager started with --ejections-from asks Envoy whom it has ejected, and tells it in the policies' status. Who
asks must show Autohealer's certificate, and sees of the admin page the clusters and statistics only.

Exit code: 0 it was printed; 2 the command line is wrong or the command failed.`,
		Example: `  kubectl autohealer envoy-bootstrap --server autohealer-xds.autohealer-system.svc:18000 --resources-dir /etc/envoy > /etc/envoy/envoy.yaml
  kubectl autohealer envoy-bootstrap --server 127.0.0.1:18000 --plaintext > envoy.yaml`,
		Args: cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Server, "server", "", "address of Autohealer's xDS server, host:port")
	flags.StringVar(&o.TLS.CertFile, "cert", "/certs/tls.crt", "file with Envoy's certificate")
	flags.StringVar(&o.TLS.KeyFile, "key", "/certs/tls.key", "file with its key")
	flags.StringVar(&o.TLS.CAFile, "ca", "/certs/ca.crt", "file with the CAs that sign the server's certificate")
	flags.StringVar(&o.TLS.ServerName, "server-name", "", "DNS name in the server's certificate; by default the host in --server")
	flags.StringVar(&o.TLS.ResourcesDir, "resources-dir", "", "directory for the files through which Envoy follows its certificates")
	flags.BoolVar(&o.Plaintext, "plaintext", false, "speak without TLS, with a server that serves without TLS")
	flags.StringVar(&o.NodeID, "node-id", "envoy", "what Envoy calls itself; its identity is in its certificate")
	flags.StringVar(&o.NodeCluster, "node-cluster", "autohealer", "what Envoy calls itself and its like")
	flags.Uint32Var(&o.AdminPort, "admin-port", 9901, "port of Envoy's admin page on 127.0.0.1; 0 for any")
	flags.BoolVar(&ejections, "ejection-log", ejections, "log each ejection, as a line of JSON")
	flags.StringVar(&o.EjectionsAddress, "ejections-address", "0.0.0.0", "address of that port; :: takes IPv6 and IPv4, where the machine has IPv6")
	flags.Uint32Var(&o.EjectionsPort, "ejections-port", 0, "port on which Autohealer, and nobody else, may ask whom Envoy has ejected; 0 for none")
	path := flags.String("ejection-log-path", "/dev/stdout", "file for --ejection-log")
	cmd.RunE = func(*cobra.Command, []string) error {
		if ejections {
			o.EjectionLog = *path
		}
		return a.runEnvoyBootstrap(o)
	}
	if err := cmd.MarkFlagRequired("server"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (a *App) runEnvoyBootstrap(o envoy.Options) error {
	bootstrap, err := envoy.Bootstrap(o)
	if err != nil {
		return fmt.Errorf("make the bootstrap: %w", err)
	}
	text, err := envoy.YAML(bootstrap)
	if err != nil {
		return fmt.Errorf("make the bootstrap: %w", err)
	}
	if o.TLS.ResourcesDir != "" && !o.Plaintext {
		files, err := envoy.Secrets(o.TLS)
		if err != nil {
			return fmt.Errorf("make the files of certificates: %w", err)
		}
		for name, content := range files {
			// They name files and hold no secret; Envoy may run as somebody else.
			if err := os.WriteFile(name, content, 0o644); err != nil {
				return fmt.Errorf("write the files of certificates: %w", err)
			}
		}
	}
	_, err = a.Out.Write(text)
	return err
}
