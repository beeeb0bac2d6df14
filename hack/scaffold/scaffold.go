package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/afero"
	"sigs.k8s.io/kubebuilder/v4/pkg/config"
	yamlstore "sigs.k8s.io/kubebuilder/v4/pkg/config/store/yaml"
	_ "sigs.k8s.io/kubebuilder/v4/pkg/config/v3" // the version of PROJECT
	"sigs.k8s.io/kubebuilder/v4/pkg/machinery"
	"sigs.k8s.io/kubebuilder/v4/pkg/model/resource"
)

const apis = "apis/v1alpha1"

// run writes the kind into the repository, or nothing: it is made in memory first.
func run(root, kind, scope string) error {
	root, err := filepath.Abs(root) // a base path of . has nothing below it
	if err != nil {
		return err
	}
	disk := afero.NewBasePathFs(afero.NewOsFs(), root)
	made := afero.NewMemMapFs()
	tree := afero.NewCopyOnWriteFs(afero.NewReadOnlyFs(disk), made)
	store := yamlstore.New(machinery.Filesystem{FS: tree})
	if err := store.Load(); err != nil {
		return fmt.Errorf("this is no repository of Autohealer: %w", err)
	}
	project := store.Config()
	n, err := namesOf(kind, scope, project.GetRepository())
	if err != nil {
		return err
	}
	if err := n.isNew(root, project); err != nil {
		return err
	}
	if err := n.write(tree, project); err != nil {
		return err
	}
	if err := store.Save(); err != nil {
		return fmt.Errorf("write PROJECT: %w", err)
	}
	return flush(made, disk)
}

// isNew says of everything that is there already of the kind.
func (n names) isNew(root string, project config.Config) error {
	resources, err := project.GetResources()
	if err != nil {
		return fmt.Errorf("read PROJECT: %w", err)
	}
	if slices.ContainsFunc(resources, func(r resource.Resource) bool { return strings.EqualFold(r.Kind, n.Kind) }) {
		return fmt.Errorf("there is a kind %s: PROJECT has it", n.Kind)
	}
	declared, err := n.declared(filepath.Join(root, apis))
	if err != nil {
		return err
	}
	if len(declared) > 0 {
		return fmt.Errorf("%s has types of these names: %s", apis, strings.Join(declared, ", "))
	}
	paths := n.generated("autohealer." + project.GetDomain())
	for _, f := range n.files() {
		paths = append(paths, f.Path)
	}
	return n.isAlone(root, paths)
}

// isAlone says which of the kind's own paths there are already.
func (n names) isAlone(root string, paths []string) error {
	var there []string
	for _, path := range paths {
		if dir := filepath.Dir(path); filepath.Base(dir) == n.Lower && filepath.Ext(path) == ".go" { // the package is the kind's alone
			path = dir
		}
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil && !slices.Contains(there, path) {
			there = append(there, path)
		} else if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	slices.Sort(there)
	if len(there) > 0 {
		return fmt.Errorf("KIND=%s: these would be its own, and are there already: %s; remove them, or choose another name. Nothing was written", n.Kind, strings.Join(there, ", "))
	}
	return nil
}

// write makes all files, and the entry of PROJECT.
func (n names) write(tree afero.Fs, project config.Config) error {
	var builders []machinery.Builder
	for _, f := range n.files() {
		builders = append(builders, f)
	}
	for _, l := range n.lines() {
		text, err := afero.ReadFile(tree, l.Path)
		if err != nil {
			return err
		}
		for _, marker := range l.GetMarkers() {
			if !strings.Contains(string(text), marker.String()) {
				return fmt.Errorf("%s has no line %q, where the kind's would be written; put it back. Nothing was written", l.Path, marker)
			}
		}
		builders = append(builders, l)
	}
	scaffold := machinery.NewScaffold(machinery.Filesystem{FS: tree}, machinery.WithConfig(project))
	if err := scaffold.Execute(builders...); err != nil {
		return err
	}
	for _, row := range n.rows() {
		if err := addRow(tree, row[0], row[1], row[2]); err != nil {
			return err
		}
	}
	return project.UpdateResource(resource.Resource{
		GVK:  resource.GVK{Group: "autohealer", Domain: project.GetDomain(), Version: "v1alpha1", Kind: n.Kind},
		Path: n.Repo + "/" + apis, API: &resource.API{CRDVersion: "v1", Namespaced: n.Namespaced}, Controller: true,
		Webhooks: &resource.Webhooks{WebhookVersion: "v1", Validation: true},
	})
}

// flush writes what was made to the disk.
func flush(made, disk afero.Fs) error {
	return afero.Walk(made, ".", func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := afero.ReadFile(made, path)
		if err != nil {
			return err
		}
		if err := disk.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		fmt.Println(path)
		return afero.WriteFile(disk, path, text, 0o644)
	})
}
