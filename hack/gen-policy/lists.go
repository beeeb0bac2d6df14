package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// resources are what a line like "resources: [] # make generate: policies" may ask for.
var resources = map[string]func() []string{
	"kinds":                        func() []string { return plurals("", always) },
	"statuses":                     func() []string { return plurals("/status", always) },
	"kinds and statuses":           func() []string { return append(plurals("", always), plurals("/status", always)...) },
	"policies":                     func() []string { return plurals("", acts) },
	"policies of tenants":          func() []string { return plurals("", func(k *kinds.Kind) bool { return k.Tenants }) },
	"policies with a finalizer":    func() []string { return plurals("", func(k *kinds.Kind) bool { return k.Finalizer }) },
	"policies without a finalizer": func() []string { return plurals("", func(k *kinds.Kind) bool { return acts(k) && !k.Finalizer }) },
	"kinds over policies":          func() []string { return plurals("", func(k *kinds.Kind) bool { return k.RulesOver }) },
}

func always(*kinds.Kind) bool { return true }
func acts(k *kinds.Kind) bool { return !k.RulesOver }

// plurals of the kinds for which this holds, sorted.
func plurals(suffix string, of func(*kinds.Kind) bool) (all []string) {
	for _, k := range kinds.All {
		if of(k) {
			all = append(all, k.Plural()+suffix)
		}
	}
	slices.Sort(all)
	return all
}

var (
	generatedLine = regexp.MustCompile(`(?m)^( *resources: )\[.*\] # make generate: (.*)$`)
	// generatedRow is of the README's table of what the manager may do.
	generatedRow = regexp.MustCompile(`(?m)^(\| cluster \| ).*( \| [a-z, ]+ \| )(policies with a finalizer|policies without a finalizer|kinds over policies|statuses)\b`)
)

// expected are the lists of each file, in order: one whose comment was lost or reworded would stay as it is for ever.
var expected = map[string][]string{
	"config/rbac/manager_role.yaml": {"policies with a finalizer", "policies without a finalizer", "kinds over policies", "statuses"},
	"config/rbac/user_roles.yaml": {
		"kinds and statuses", "policies of tenants", "policies", "kinds and statuses", "kinds and statuses", "kinds and statuses", "kinds and statuses",
	},
	"config/webhook/configuration/validating.yaml": {"kinds"},
	"hack/gen-chart/objects/uninstall_check.yaml":  {"policies with a finalizer"},
	"README.md": {"policies with a finalizer", "policies without a finalizer", "kinds over policies", "statuses"},
}

// withExpected reads a file, and fails unless the last groups of what matches are the lists that it is expected to have.
func withExpected(root, name string, list *regexp.Regexp) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, parts := range list.FindAllSubmatch(text, -1) {
		found = append(found, string(parts[len(parts)-1]))
	}
	if !slices.Equal(found, expected[name]) {
		return nil, fmt.Errorf("%s has the generated lists %q, and should have %q: put the comments back, or change expected in hack/gen-policy/lists.go", name, found, expected[name])
	}
	return text, nil
}

// withResources fills the lists of resources in a manifest.
func withResources(root, name string) (text []byte, err error) {
	if text, err = withExpected(root, name, generatedLine); err != nil {
		return nil, err
	}
	return generatedLine.ReplaceAllFunc(text, func(line []byte) []byte {
		parts := generatedLine.FindStringSubmatch(string(line))
		return fmt.Appendf(nil, "%s[%s] # make generate: %s", parts[1], strings.Join(resources[parts[2]](), ", "), parts[2])
	}), nil
}

// withRows fills the lists of resources in the README.
func withRows(root, name string) ([]byte, error) {
	text, err := withExpected(root, name, generatedRow)
	if err != nil {
		return nil, err
	}
	return generatedRow.ReplaceAllFunc(text, func(row []byte) []byte {
		parts := generatedRow.FindStringSubmatch(string(row))
		return []byte(parts[1] + strings.Join(resources[parts[3]](), ", ") + parts[2] + parts[3])
	}), nil
}

// uninstallPage has a command that deletes all policies; in what a reader copies there is no place for a comment.
const uninstallPage = "docs/how-to/uninstall.md"

var deleting = regexp.MustCompile(`(?m)^(\$ kubectl delete )[a-z,]+( --all -A)$`)

// withCommand fills the list of policies in the command.
func withCommand(root, name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	if found := len(deleting.FindAll(text, -1)); found != 1 {
		return nil, fmt.Errorf("%s has %d commands that delete policies, and should have one", name, found)
	}
	return deleting.ReplaceAll(text, []byte("${1}"+strings.Join(resources["policies"](), ",")+"${2}")), nil
}

// withFiles writes the rest of a kustomization, from the line on that says so: a file a kind.
func withFiles(root, name string, file func(*kinds.Kind) string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return nil, err
	}
	head, line, found := strings.Cut(string(text), "# make generate")
	if !found {
		return nil, fmt.Errorf("%s: no line begins with # make generate", name)
	}
	line, _, _ = strings.Cut(line, "\n")
	indent := head[strings.LastIndex(head, "\n")+1:]
	var files []string
	for _, k := range kinds.All {
		files = append(files, indent+"- "+file(k)+"\n")
	}
	slices.Sort(files)
	return []byte(head + "# make generate" + line + "\n" + strings.Join(files, "")), nil
}

// lists are the files with lists of kinds.
func lists(root string) (files map[string][]byte, err error) {
	files = map[string][]byte{}
	for _, name := range []string{
		"config/rbac/manager_role.yaml", "config/rbac/user_roles.yaml", "config/webhook/configuration/validating.yaml", "hack/gen-chart/objects/uninstall_check.yaml",
	} {
		if files[name], err = withResources(root, name); err != nil {
			return nil, err
		}
	}
	if files["README.md"], err = withRows(root, "README.md"); err != nil {
		return nil, err
	}
	if files[uninstallPage], err = withCommand(root, uninstallPage); err != nil {
		return nil, err
	}
	for name, file := range map[string]func(*kinds.Kind) string{
		"crds/Kustomization": func(k *kinds.Kind) string { return v1alpha1.GroupVersion.Group + "_" + k.Plural() + ".yaml" },
		"config/argocd/kustomization.yaml": func(k *kinds.Kind) string {
			group := k.GVK().Group
			return "resource.customizations.health." + group + "_" + k.Name() + "=resource_customizations/" + group + "/_/health.lua"
		},
		"config/policy/kustomization.yaml": func(k *kinds.Kind) string { return strings.ToLower(k.Name()) + ".yaml" },
	} {
		if files[name], err = withFiles(root, name, file); err != nil {
			return nil, err
		}
	}
	return files, nil
}
