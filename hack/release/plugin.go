package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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

// plugins builds the plugin for each platform, and writes the manifest with which krew installs it.
func (r *release) plugins(ctx context.Context) error {
	built, err := os.MkdirTemp("", "autohealer-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(built) }()
	manifest := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin", Metadata: map[string]string{"name": "autohealer"},
		Spec: krewSpec{
			Version: r.version, Homepage: "https://github.com/resourcestack/autohealer",
			ShortDescription: "Validate, preview, explain and stop self-healing",
			Description: "Judges policies of Autohealer before they are applied, shows what they would do now, tells what was\n" +
				"done to an object and why, and stops, undoes and uninstalls.\n",
		},
	}
	for _, p := range r.platforms {
		platform, err := r.plugin(ctx, built, p[0], p[1])
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

func (r *release) plugin(ctx context.Context, built, goos, goarch string) (krewPlatform, error) {
	const program = "kubectl-autohealer"
	bin := program
	if goos == "windows" {
		bin += ".exe"
	}
	path := filepath.Join(built, goos+"-"+goarch)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-ldflags", "-s -w -X main.version="+r.version, "-o", path, r.program)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
	if out, err := build.CombinedOutput(); err != nil {
		return krewPlatform{}, fmt.Errorf("build the plugin for %s/%s: %w: %s", goos, goarch, err, strings.TrimSpace(string(out)))
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
