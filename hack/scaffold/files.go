package main

import (
	"embed"
	"fmt"
	"strings"

	"github.com/spf13/afero"
	"sigs.k8s.io/kubebuilder/v4/pkg/machinery"
)

//go:embed templates
var templates embed.FS

// file is a new one, from a template.
type file struct {
	machinery.TemplateMixin
	names
	template string
}

// SetTemplateDefaults reads the template.
func (f *file) SetTemplateDefaults() error {
	text, err := templates.ReadFile("templates/" + f.template + ".tmpl")
	if err != nil {
		return err
	}
	f.TemplateBody, f.IfExistsAction = string(text), machinery.Error
	f.SetDelim("«", "»") // Go, YAML and Markdown have braces of their own
	return nil
}

// files of a kind.
func (n names) files() (all []*file) {
	for path, template := range map[string]string{
		"apis/v1alpha1/" + n.Lower + "_types.go":       "types.go",
		"internal/domain/" + n.Lower + "/plan.go":      "planner.go",
		"internal/domain/" + n.Lower + "/plan_test.go": "planner_test.go",
		"internal/guard/catalog/" + n.Lower + ".yaml":  "rules.yaml",
		"controllers/" + n.Lower + "/add.go":           "add.go",
		"controllers/" + n.Lower + "/hooks.go":         "hooks.go",
		"config/samples/" + n.Lower + "-1.yaml":        "sample.yaml",
		"config/samples/refused/" + n.Lower + ".yaml":  "refused.yaml",
		"docs/concepts/" + n.Plural + ".md":            "concept.md",
		"e2e/" + n.Lower + "/" + n.Lower + "_test.go":  "e2e_test.go",
	} {
		f := &file{names: n, template: template}
		f.Path = path
		all = append(all, f)
	}
	return all
}

// lines go into a file, each at a marker. They go together: an import that isn't used yet would be dropped again.
type lines struct {
	machinery.InserterMixin
	at map[string]string
}

// GetMarkers gives the markers.
func (l *lines) GetMarkers() (all []machinery.Marker) {
	for marker := range l.at {
		all = append(all, machinery.NewMarkerFor(l.Path, marker))
	}
	return all
}

// GetCodeFragments gives the lines.
func (l *lines) GetCodeFragments() machinery.CodeFragmentsMap {
	all := machinery.CodeFragmentsMap{}
	for marker, text := range l.at {
		all[machinery.NewMarkerFor(l.Path, marker)] = machinery.CodeFragments{text + "\n"}
	}
	return all
}

// generated are the files that make generate writes of a kind alone.
func (n names) generated(group string) []string {
	return []string{"config/policy/" + n.Lower + ".yaml", "crds/" + group + "_" + n.Plural + ".yaml"}
}

// lines are what files that all kinds share have of one.
func (n names) lines() (all []*lines) {
	// These files have imports and variables of other names, which a kind may have, too.
	planner, controller := n.Lower+"planner", n.Lower+"controller"
	namespaced := ""
	if n.Namespaced {
		namespaced = ", Namespaced: true"
	}
	entry := fmt.Sprintf("\t{\n\t\tObject: &v1alpha1.%[1]s{}, List: &v1alpha1.%[1]sList{}%[2]s,\n\t\tTerms: terms(func(p, _ *v1alpha1.%[1]s, _ Setting) %[3]s.Terms { return %[3]s.TermsOf(p) }),\n\t},",
		n.Kind, namespaced, planner)
	for path, at := range map[string]map[string]string{
		"apis/v1alpha1/groupversion_info.go": {"kinds": fmt.Sprintf("\t\t&%[1]s{}, &%[1]sList{},", n.Kind)},
		"internal/kinds/all.go":              {"imports": fmt.Sprintf("\t%s %q", planner, n.Repo+"/internal/domain/"+n.Lower), "kinds": entry},
		"controllers/add.go": {
			"imports": fmt.Sprintf("\t%s %q", controller, n.Repo+"/controllers/"+n.Lower),
			"kinds":   fmt.Sprintf("\t\t%q: func() error { return %s.AddToManager(mgr, common) },", n.Kind, controller),
		},
		"config/samples/kustomization.yaml": {"samples": "- " + n.Lower + "-1.yaml"},
	} {
		l := &lines{at: at}
		l.Path = path
		all = append(all, l)
	}
	return all
}

// rows are what tables of pages have of a kind: the header of each, and the new row.
func (n names) rows() [][3]string {
	return [][3]string{
		{"README.md", "| kind | what it does |", fmt.Sprintf("| [`%s`](docs/concepts/%s.md) | %s are selected |", n.Kind, n.Plural, n.Targets)},
		{"config/samples/README.md", "| kind | sample |", fmt.Sprintf("| %[1]s | [%[2]s-1.yaml](%[2]s-1.yaml) | yes |", n.Kind, n.Lower)},
	}
}

// addRow writes a row at the end of the table whose first line begins so. Markdown has no markers.
func addRow(fs afero.Fs, name, header, row string) error {
	text, err := afero.ReadFile(fs, name)
	if err != nil {
		return err
	}
	before, table, found := strings.Cut(string(text), "\n"+header)
	table, after, ended := strings.Cut(table, "\n\n")
	if !found || !ended {
		return fmt.Errorf("%s has no table that begins with %q", name, header)
	}
	return afero.WriteFile(fs, name, []byte(before+"\n"+header+table+"\n"+row+"\n\n"+after), 0o644)
}
