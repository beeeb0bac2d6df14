package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/resourcestack/autohealer/e2e/cluster"
)

const twoContexts = `
apiVersion: v1
kind: Config
current-context: prod
clusters: [{name: c, cluster: {server: "https://%s"}}]
contexts: [{name: prod, context: {cluster: c, user: me}}, {name: test, context: {cluster: c, user: me}}]
users: [{name: me, user: {token: t}}]
`

// TestACompletionIsBoundedAsAWhole, not request by request.
func TestACompletionIsBoundedAsAWhole(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		select {
		case <-ended:
		case <-time.After(1500 * time.Millisecond):
		}
	}))
	defer server.Close()
	defer close(ended)
	app := &App{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}}
	began := time.Now()
	Run(t.Context(), app, []string{"__complete", "undo", "--cache-dir=/dev/null", "--server=" + server.URL, "node/"})
	if took := time.Since(began); took < time.Second || took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestAnUnreachableServerIsNamed for verbs that ask by a client, by discovery and by a mapper of kinds.
func TestAnUnreachableServerIsNamed(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	// Without a kubeconfig it is localhost:8080, where another program may answer.
	unserved := cluster.Unserved()
	was := clientcmd.ClusterDefaults
	clientcmd.ClusterDefaults.Server = "http://" + unserved
	t.Cleanup(func() { clientcmd.ClusterDefaults = was })
	kubeconfig := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(kubeconfig, fmt.Appendf(nil, twoContexts, unserved), 0o600); err != nil {
		t.Fatal(err)
	}
	refused := ": dial tcp " + unserved + ": connect: connection refused"
	for _, verb := range []string{"status", "history", "explain node/a", "freeze", "thaw", "undo node/a", "undo --all", "reset a", "check", "version", "uninstall --dry-run", "facts export"} {
		for flags, want := range map[string]string{
			"":                           "there is no API server at http://" + unserved + refused,
			"--kubeconfig=" + kubeconfig: "can't reach the API server https://" + unserved + ` of context "prod"` + refused + " (",
			"--kubeconfig=" + kubeconfig + " --context=test": "can't reach the API server https://" + unserved + ` of context "test"` + refused + " (",
			"--server=https://me:secret@" + unserved:         "can't reach the API server https://me:xxxxx@" + unserved + " of --server" + refused + "\n",
			"--server=https://" + unserved:                   "can't reach the API server https://" + unserved + " of --server" + refused + "\n",
		} {
			var out, errOut bytes.Buffer
			app := &App{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &errOut}}
			code := Run(t.Context(), app, strings.Fields(verb+" "+flags))
			knows := map[string]string{"version": "Client Version: devel\n"}[verb]
			if code != 2 || out.String() != knows || strings.Count(errOut.String(), "\n") != 1 || !strings.HasPrefix(errOut.String(), "error: ") || !strings.Contains(errOut.String(), want) {
				t.Errorf("%s %s: exit code %d, out %q, err %q; want a line with %q", verb, flags, code, &out, &errOut, want)
			}
		}
	}
}
