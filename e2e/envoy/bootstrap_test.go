package envoy

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/resourcestack/autohealer/internal/cli"
)

func TestEnvoyTakesWhatEnvoyBootstrapPrints(t *testing.T) {
	binary, ca := Binary(t), NewAuthority(t)
	dir := t.TempDir()
	ca.Write(dir, everywhere, ca.PEM())
	certificates := []string{"--cert=" + filepath.Join(dir, "tls.crt"), "--key=" + filepath.Join(dir, "tls.key"), "--ca=" + filepath.Join(dir, "ca.crt")}
	for name, args := range map[string][]string{
		"files":     append([]string{"--server=autohealer-xds.autohealer-system.svc:18000"}, certificates...),
		"resources": append([]string{"--server=10.0.0.1:18000", "--server-name=xds.test", "--resources-dir=" + dir}, certificates...),
		"ejections": append([]string{"--server=[fd00::1]:18000", "--server-name=xds.test", "--resources-dir=" + dir, "--ejections-port=9902", "--ejections-address=::"}, certificates...),
		"plaintext": {"--server=127.0.0.1:18000", "--plaintext", "--ejection-log=false"},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, out, problems := genericiooptions.NewTestIOStreams()
			if code := cli.Run(t.Context(), &cli.App{IOStreams: streams}, append([]string{"envoy-bootstrap"}, args...)); code != 0 {
				t.Fatalf("it ends with %d: %s", code, problems)
			}
			file := filepath.Join(t.TempDir(), "envoy.yaml")
			if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
			if said, err := exec.Command(binary, "--mode", "validate", "-c", file).CombinedOutput(); err != nil {
				t.Errorf("%v:\n%s\n%s", err, said, out)
			}
		})
	}
}
