package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// downloads is where a release's files are, once somebody has put them there.
const downloads = "https://github.com/resourcestack/autohealer/releases/download/"

// krewPlugin is what krew's index has of a plugin: https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest
type krewPlugin struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   map[string]string `json:"metadata"`
	Spec       krewSpec          `json:"spec"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector map[string]map[string]string `json:"selector"`
	URI      string                       `json:"uri"`
	SHA256   string                       `json:"sha256"`
	Bin      string                       `json:"bin"`
}

// plugins packs the plugin for each platform, and writes the manifest with which krew installs it.
func (r *release) plugins(context.Context) error {
	manifest := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "autohealer"},
		Spec: krewSpec{
			Version: r.version, Homepage: "https://github.com/resourcestack/autohealer",
			ShortDescription: "Validate, preview, explain and stop self-healing",
			Description: "Judges policies of Autohealer before they are applied, shows what they would do now, tells what was\n" +
				"done to an object and why, and stops, undoes and uninstalls.\n",
		},
	}
	programs, err := filepath.Glob(filepath.Join(r.built, "*-*", program))
	if err != nil {
		return err
	}
	if len(programs) == 0 {
		return fmt.Errorf("there is no %s in %s: make release builds it", program, r.built)
	}
	for _, path := range programs {
		platform, err := r.plugin(path)
		if err != nil {
			return err
		}
		manifest.Spec.Platforms = append(manifest.Spec.Platforms, platform)
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, "krew.yaml"), text, 0o644)
}

const program = "kubectl-autohealer"

func (r *release) plugin(path string) (krewPlatform, error) {
	goos, goarch, _ := strings.Cut(filepath.Base(filepath.Dir(path)), "-")
	bin := program
	if goos == "windows" {
		bin += ".exe"
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return krewPlatform{}, err
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return krewPlatform{}, err
	}
	name := fmt.Sprintf("%s_%s_%s_%s.tar.gz", program, r.version, goos, goarch)
	archive := filepath.Join(r.dist, name)
	if err := r.archive(archive, []file{{bin, 0o755, content}, {"LICENSE", 0o644, license}}); err != nil {
		return krewPlatform{}, err
	}
	sum, err := sum(archive)
	return krewPlatform{
		Selector: map[string]map[string]string{"matchLabels": {"os": goos, "arch": goarch}},
		URI:      downloads + r.version + "/" + name, SHA256: sum, Bin: bin,
	}, err
}
