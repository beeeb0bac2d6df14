// Command gen-policy writes what is generated from the registry of kinds and the catalogue of rules: the ValidatingAdmissionPolicies
// in config/policy, the page docs/reference/guardrails.md, and the lists of kinds in manifests. With --check it writes nothing and fails if a file is not up to date.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/guard/publish"
)

func main() {
	check := flag.Bool("check", false, "only check that the files are up to date")
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	if err := run(*root, *check); err != nil {
		fmt.Fprintln(os.Stderr, "gen-policy:", err)
		os.Exit(1)
	}
}

func run(root string, check bool) error {
	g, err := guard.New(guard.Options{})
	if err != nil {
		return err
	}
	page, err := publish.Docs(g)
	if err != nil {
		return err
	}
	files, err := lists(root)
	if err != nil {
		return err
	}
	files["docs/reference/guardrails.md"] = page
	for _, kind := range g.Kinds() {
		text, err := publish.Policy(g, kind)
		if err != nil {
			return err
		}
		files["config/policy/"+strings.ToLower(kind)+".yaml"] = text
	}
	for name, text := range files {
		if err := put(filepath.Join(root, name), text, check); err != nil {
			return err
		}
	}
	return nil
}

func put(name string, text []byte, check bool) error {
	if check {
		there, err := os.ReadFile(name)
		if err != nil || !bytes.Equal(there, text) {
			return fmt.Errorf("%s is not what registry and catalogue say; run make generate", name)
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := os.WriteFile(name, text, 0o644); err != nil {
		return fmt.Errorf("write generated file: %w", err)
	}
	return nil
}
