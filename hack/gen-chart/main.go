// Command gen-chart writes the Helm chart charts/autohealer and the page docs/reference/values.md from config/, which stays the source of
// all that is installed: places.go says where values go into its objects, values.go which there are. With --manifest it writes
// config/default as one file instead, for kubectl apply -f.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	root := flag.String("root", ".", "the repository")
	manifest := flag.String("manifest", "", "file for config/default, in place of the chart")
	image := flag.String("image", "", "the manager's image in it; by default config's, which nobody publishes")
	flag.Parse()
	run := writeChart
	if *manifest != "" {
		run = func(root string) error { return writeManifest(root, *manifest, *image) }
	}
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "gen-chart:", err)
		os.Exit(1)
	}
}

// writeChart leaves of charts/autohealer what is written by hand: templates/_helpers.tpl and templates/NOTES.txt.
func writeChart(root string) error {
	files, err := chart(root)
	if err != nil {
		return err
	}
	former, err := filepath.Glob(filepath.Join(root, "charts/autohealer/templates/*.yaml"))
	if err != nil {
		return err
	}
	for _, name := range former {
		err = errors.Join(err, os.Remove(name))
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	return err
}

func writeManifest(root, name, image string) error {
	text, err := manifest(root, image)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make the manifest's folder: %w", err)
	}
	return os.WriteFile(name, []byte(text), 0o644)
}

// manifest is config/default in one file.
func manifest(root, image string) (string, error) {
	objects, err := build(root, "config/default")
	if err != nil {
		return "", err
	}
	text := "# All of Autohealer " + versionOf(objects) + ": kubectl apply -f\n"
	for _, o := range objects {
		if o.is(deployment) && image != "" {
			if _, err := o.put(imagePath, image, false); err != nil {
				return "", err
			}
		}
		text += "---\n" + o.yaml()
	}
	return text, nil
}
