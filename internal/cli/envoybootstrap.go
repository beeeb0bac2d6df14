package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/resourcestack/autohealer/internal/cli/envoy"
)

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

With --ejections-port a manager started with --ejections-from asks Envoy whom it has ejected, and reports it in the policies' status. Who
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
