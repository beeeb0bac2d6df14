package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

func (r *release) image() string { return r.registry + "/autohealer:" + r.version }

// manifest is what kubectl apply -f installs.
func (r *release) manifest(ctx context.Context) error {
	to, err := filepath.Abs(filepath.Join(r.dist, "install.yaml"))
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "run", "-C", "hack/gen-chart", ".", "--root", root, "--manifest", to, "--image", r.image()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("write install.yaml: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// chart packs charts/autohealer as helm package does, with the version and the registry in it.
func (r *release) chart(context.Context) error {
	const dir = "charts/autohealer"
	number := strings.TrimPrefix(r.version, "v")
	registry, path, _ := strings.Cut(r.registry, "/")
	changes := map[string][][2]string{
		"Chart.yaml":  {{`(?m)^version: .*$`, "version: " + number}, {`(?m)^appVersion: .*$`, "appVersion: " + r.version}},
		"values.yaml": {{`(?m)^  registry: .*$`, "  registry: " + registry}, {`(?m)^  repository: .*$`, "  repository: " + strings.TrimPrefix(path+"/autohealer", "/")}},
	}
	var files []file
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		inChart, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		for _, change := range changes[inChart] {
			if content, err = replaceOnce(content, change[0], change[1]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		files = append(files, file{"autohealer/" + filepath.ToSlash(inChart), 0o644, content})
		return nil
	})
	if err != nil {
		return err
	}
	return r.archive(filepath.Join(r.dist, "autohealer-"+number+".tgz"), files)
}

// replaceOnce changes what a pattern matches once; anywhere else it would be something else's.
func replaceOnce(text []byte, pattern, by string) ([]byte, error) {
	expression := regexp.MustCompile(pattern)
	if found := expression.FindAllIndex(text, -1); len(found) != 1 {
		return nil, fmt.Errorf("%q is there %d times, and must be once", pattern, len(found))
	}
	return expression.ReplaceAllLiteral(text, []byte(by)), nil
}
