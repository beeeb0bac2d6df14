package page

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// read reads a page with this text, in which three single quotes are a fence.
func read(t *testing.T, text string) (*Page, error) {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.md"), []byte(strings.ReplaceAll(text, "'''", "```")), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(root, "a.md")
}

func TestAPageHasFilesScriptsAndCommandsWithWhatTheyPrint(t *testing.T) {
	g := NewWithT(t)
	p, err := read(t, `# A page

'''yaml
# a/rule.yaml
kind: Guardrail
'''

1. In a list:

   '''sh
   kubectl get nodes
   '''

'''yaml
spec: a fragment is no file
'''

<!-- test: run:
kubectl create namespace a
-->
'''console
$ cat > b.yaml <<EOF
kind: ConditionSet
EOF
$ kubectl apply -f b.yaml \
    --dry-run=server
Warning: a

conditionset created
'''

<!-- test: skip: it takes a registry -->
'''console
what is skipped may be anything
'''

<!-- test: run: kubectl delete namespace a -->
`)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.Blocks).To(Equal([]Block{
		{Line: 3, File: "a/rule.yaml", Text: "# a/rule.yaml\nkind: Guardrail\n"},
		{Line: 10, Script: "kubectl get nodes\n"},
		{Line: 21, Before: []string{"kubectl create namespace a"}, Commands: []Command{
			{Line: 22, Text: "cat > b.yaml <<EOF\nkind: ConditionSet\nEOF"},
			{Line: 25, Text: "kubectl apply -f b.yaml \\\n    --dry-run=server", Shown: []string{"Warning: a", "", "conditionset created"}},
		}},
		{Line: 33, Skipped: "it takes a registry"},
		{Before: []string{"kubectl delete namespace a"}},
	}))
}

func TestAPageThatCannotBeFollowedIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		"'''console\nWarning: a\n'''\n":            "line 2: output without a command",
		"'''console\n$ a <<EOF\n'''\n":             "line 2: the command has no end",
		"'''sh\na\n":                               "line 1: this has no end",
		"<!-- test: skip -->\n'''sh\na\n'''\n":     "line 1: not understood: <!-- test: skip -->",
		"<!-- test: run: a\n":                      "line 1: this has no end",
		"<!-- test: skip: it takes a registry -->": "there is no block to skip: it takes a registry",
	} {
		t.Run(want, func(t *testing.T) {
			_, err := read(t, text)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(want)))
		})
	}
}

func TestOnlyWhatVariesMayDifferFromWhatAPageShows(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		same           bool
	}{
		{"", "", true},
		{"", "x", false},
		{"x", "", false},
		{"a\nb", "a\nb", true},
		{"a\nb", "a\nc", false},
		{"a\nb", "a\nb\nc", false},
		{"a\n…", "a\nb\nc", true},
		{"…\nc", "a\nb\nc", true},
		{"…\nb", "a\nb\nc", false},
		{"a\n…\nc", "a\nc", true},
		{"Error: … denied", "Error: a b denied", true},
		{"Error: … denied", "Error: a b admitted", false},
		{"NAME   AGE\na      3s", "NAME   AGE\na      2m10s", true},
		{"a      3s", "b      3s", false},
		{"1 of 4 tainted", "2 of 4 tainted", false},
		{"lasted for 5m (recoverAfter)", "lasted for 10m (recoverAfter)", false},
		{"since 2026-11-21T10:00:00Z (2m)", "since 2026-11-22T11:01:02Z (47s)", true},
		{"for the time (since) ever", "for the time (since) never", false},
		{"pod/shop-654f6c594-d5wsd deleted", "pod/shop-7b496b5cf9-nch5j deleted", true},
		{"pod/shop-654f6c594-d5wsd deleted", "pod/cart-7b496b5cf9-nch5j deleted", false},
		{"node/node-1 patched", "node/node-2 patched", false},
		{"* b\n* a", "* a\n* b", true},
		{"b\na", "a\nb", false},
	} {
		command := Command{Text: "kubectl get nodes"}
		if c.shown != "" {
			command.Shown = strings.Split(c.shown, "\n")
		}
		if differs := command.Differs(c.printed); (differs == "") != c.same {
			t.Errorf("%q and %q: %s", c.shown, c.printed, differs)
		}
	}
}
