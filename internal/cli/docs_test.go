package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/resourcestack/autohealer/e2e/page"
)

// expectPage compares a page of the documentation with what it should be, or, with -update, writes it.
func expectPage(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is out of date; go test ./internal/cli -update writes it anew; -want +got\n%s", name, diff)
	}
}

// TestPagesShowRealOutput runs the plugin's commands of pages about files that are here, at the time that these are about. What pages
// show of a cluster is followed by e2e/docs.
func TestPagesShowRealOutput(t *testing.T) {
	for name, c := range map[string]struct {
		dir string
		// least number of commands; fewer would show little.
		least int
	}{
		"docs/concepts/weeder-configs.md":   {dir: "weeder", least: 1},
		"docs/concepts/probe-configs.md":    {dir: "prober", least: 2},
		"docs/concepts/outlier-policies.md": {dir: "outlier", least: 3},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := page.Read(filepath.Join("..", ".."), name)
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(filepath.Join("testdata", c.dir))
			commands := 0
			for _, command := range p.Commands() {
				args, isOurs := strings.CutPrefix(command.Text, "kubectl autohealer ")
				if !isOurs {
					continue
				}
				commands++
				_, stdout, stderr := run(t, "", strings.Fields(args)...)
				if differs := command.Differs(stderr + stdout); differs != "" {
					t.Error(differs)
				}
			}
			if commands < c.least {
				t.Errorf("found %d commands, want at least %d", commands, c.least)
			}
		})
	}
}

// TestTheReferenceIsUpToDate: the page of all verbs is made from the verbs themselves.
func TestTheReferenceIsUpToDate(t *testing.T) {
	root := New(&App{IOStreams: genericiooptions.NewTestIOStreamsDiscard()})
	var out strings.Builder
	out.WriteString(referenceIntroduction)
	for _, cmd := range leaves(root) {
		writeReference(&out, cmd)
	}
	out.WriteString(referenceRules)
	expectPage(t, filepath.Join("..", "..", "docs", "reference", "cli.md"), out.String())
}

func leaves(cmd *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, sub := range cmd.Commands() {
		switch {
		case sub.Name() == "completion" || sub.Name() == "help":
		case sub.HasSubCommands():
			all = append(all, leaves(sub)...)
		default:
			all = append(all, sub)
		}
	}
	return all
}

func writeReference(out *strings.Builder, cmd *cobra.Command) {
	fmt.Fprintf(out, "\n## %s\n\n", strings.TrimPrefix(cmd.CommandPath(), "kubectl autohealer "))
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	fmt.Fprintf(out, "%s\n\n```sh\n%s\n```\n", long, strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	var flags strings.Builder
	kubectl := false
	clusters := pflag.NewFlagSet("", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(false).AddFlags(clusters)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch {
		case clusters.Lookup(f.Name) != nil && cmd.LocalFlags().Lookup("kubeconfig") != nil:
			kubectl = true
			return
		case f.Name == "help":
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value := f.Value.Type()
		if value == "stringSlice" {
			value = "string, may be given several times"
		}
		byDefault := ""
		if f.DefValue != "" && f.DefValue != "[]" && f.DefValue != "false" {
			byDefault = " Default: `" + f.DefValue + "`."
		}
		fmt.Fprintf(&flags, "| `%s` | %s | %s.%s |\n", name, strings.ReplaceAll(value, "|", ", "), f.Usage, byDefault)
	})
	if flags.Len() > 0 {
		fmt.Fprintf(out, "\n| flag | value | |\n|---|---|---|\n%s", flags.String())
	}
	if kubectl {
		out.WriteString("\nkubectl's flags for clusters (`--kubeconfig`, `--context`, …) hold too.\n")
	}
	fmt.Fprintf(out, "\n```sh\n%s\n```\n", strings.ReplaceAll(strings.TrimPrefix(cmd.Example, "  "), "\n  ", "\n"))
}

const referenceIntroduction = `# kubectl autohealer

<!-- Made from the verbs by go test ./internal/cli -update. Do not edit. -->

<!-- test: skip page: it has every verb's usage; internal/cli parses the examples -->

A kubectl plugin: put ` + "`kubectl-autohealer`" + ` on the PATH, and ` + "`kubectl autohealer VERB`" + ` finds it. It also runs by itself. It
judges with the rules that it was built with; use the version that runs in the cluster.

For completion put ` + "`cmd/kubectl-autohealer/kubectl_complete-autohealer`" + `, made executable, on the PATH as well, and load kubectl's own:
` + "`source <(kubectl completion bash)`" + `. Stand-alone: ` + "`source <(kubectl-autohealer completion bash)`" + `; zsh, fish and PowerShell likewise.

A verb exits with 0 when it did what it says and all is well, with 1 when it did and someone should look, and with 2 when it could not;
plan has 3, too. With --dry-run, 0 means that it could be done.

Colors are only for terminals, and [NO_COLOR](https://no-color.org) turns them off. Progress is shown on a terminal's
standard error, and nowhere else.
`

const referenceRules = `
## What validate finds by itself

These come before the rules of the [catalogue](guardrails.md).

<a id="manifest-undecodable"></a>
### manifest/undecodable

The text is neither YAML nor JSON, or no Kubernetes object; or its metadata has a value of another type.

<a id="manifest-duplicate-key"></a>
### manifest/duplicate-key

A map has a key twice. kubectl keeps one of the values and drops the other without a word, so the API server never sees it.
YAML takes ` + "`yes`, `on` and `true`" + ` for one key.

<a id="manifest-duplicate-object"></a>
### manifest/duplicate-object

Two documents are one object: of one kind, namespace and name. Each may be right, so it is a warning; the one that is applied last
replaces the other.

<a id="manifest-kind"></a>
### manifest/kind

There is no such kind in this API version, or apiVersion and kind are missing. It is a warning where the API group is another one and the
kind is one of Autohealer's: the group may be misspelt, and then nobody judges the object.

<a id="schema-unknown-field"></a>
### schema/unknown-field

The schema doesn't know the field; most are misspelt. The API server refuses it, or, with ` + "`--validate=false`" + `, drops it.

<a id="schema-value"></a>
### schema/value

The schema of the CustomResourceDefinition, or one of the CEL rules in it, refuses the value. The API server refuses the same
fields, in words of its own ([Read a refusal](../how-to/read-a-refusal.md#the-schema)).
`
