package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const twoContexts = `
apiVersion: v1
kind: Config
current-context: prod
clusters: [{name: prod, cluster: {server: "https://127.0.0.1:1"}}, {name: test, cluster: {server: "https://127.0.0.1:2"}}]
contexts: [{name: prod, context: {cluster: prod, user: me}}, {name: test, context: {cluster: test, user: me}}]
users: [{name: me, user: {token: t}}]
`

// TestAnUnreachableServerIsNamed for verbs that ask by a client, by discovery and by a mapper of kinds.
func TestAnUnreachableServerIsNamed(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, []byte(twoContexts), 0o600); err != nil {
		t.Fatal(err)
	}
	const refused = ": dial tcp 127.0.0.1:%: connect: connection refused ("
	for _, verb := range []string{"status", "acts", "explain node/a", "freeze", "undo node/a", "undo --all", "reset a", "check", "uninstall --dry-run", "facts export"} {
		for flags, want := range map[string]string{
			"":                           "http://localhost:8080: dial tcp ",
			"--kubeconfig=" + kubeconfig: `can't reach the API server https://127.0.0.1:1 of context "prod"` + strings.Replace(refused, "%", "1", 1),
			"--kubeconfig=" + kubeconfig + " --context=test": `can't reach the API server https://127.0.0.1:2 of context "test"` + strings.Replace(refused, "%", "2", 1),
			"--server=https://127.0.0.1:3":                   "can't reach the API server https://127.0.0.1:3 of --server: dial tcp 127.0.0.1:3: connect: connection refused\n",
		} {
			var out, errOut bytes.Buffer
			app := &App{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}}
			code := Run(t.Context(), app, strings.Fields(verb+" "+flags))
			if code != 2 || out.Len() > 0 || strings.Count(errOut.String(), "\n") != 1 || !strings.HasPrefix(errOut.String(), "error: ") || !strings.Contains(errOut.String(), want) {
				t.Errorf("%s %s: exit code %d, out %q, err %q; want a line with %q", verb, flags, code, &out, &errOut, want)
			}
		}
	}
}
