package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// write has a release written, with a text in the plugin's place.
func write(t *testing.T, version, registry string) (dist string, err error) {
	t.Helper()
	r := &release{version: version, registry: registry, dist: t.TempDir(), built: t.TempDir(), changelog: filepath.Join(t.TempDir(), "changelog")}
	files := map[string]string{r.changelog: "# Changelog\n\n## [0.2.0-rc.1]\n\n- all\n"}
	for _, platform := range []string{"linux-arm64", "windows-amd64"} {
		files[filepath.Join(r.built, platform, "kubectl-autohealer")] = "for " + platform
	}
	for name, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return r.dist, r.run(t.Context())
}

func contents(t *testing.T, archive string) map[string]string {
	t.Helper()
	g := NewWithT(t)
	f, err := os.Open(archive)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = f.Close() }()
	unpacked, err := gzip.NewReader(f)
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for reader := tar.NewReader(unpacked); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(header.ModTime.UTC()).To(Equal(time.Unix(1000, 0).UTC()))
		text, err := io.ReadAll(reader)
		g.Expect(err).NotTo(HaveOccurred())
		found[header.Name] = string(text)
	}
}

func TestARelease(t *testing.T) {
	g := NewWithT(t)
	t.Chdir("../..")
	t.Setenv("SOURCE_DATE_EPOCH", "1000")
	dist, err := write(t, "v0.2.0-rc.1", "registry.example.com/platform")
	g.Expect(err).NotTo(HaveOccurred())
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dist, name))
		g.Expect(err).NotTo(HaveOccurred())
		return string(text)
	}

	t.Run("installs the registry's image", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(read("install.yaml")).To(And(ContainSubstring("image: registry.example.com/platform/autohealer:v0.2.0-rc.1\n"), ContainSubstring("kind: ValidatingAdmissionPolicyBinding")))
		chart := contents(t, filepath.Join(dist, "autohealer-0.2.0-rc.1.tgz"))
		g.Expect(chart["autohealer/Chart.yaml"]).To(And(ContainSubstring("\nversion: 0.2.0-rc.1\n"), ContainSubstring("\nappVersion: v0.2.0-rc.1\n")))
		g.Expect(chart["autohealer/values.yaml"]).To(ContainSubstring("  registry: registry.example.com\n"))
		g.Expect(chart["autohealer/values.yaml"]).To(ContainSubstring("  repository: platform/autohealer\n"))
		g.Expect(chart).To(HaveKey("autohealer/templates/deployment.yaml"))
		g.Expect(chart).To(HaveKey("autohealer/values.schema.json"))
	})

	t.Run("has a plugin that krew can install", func(t *testing.T) {
		g := NewWithT(t)
		var manifest krewPlugin
		g.Expect(yaml.UnmarshalStrict([]byte(read("krew.yaml")), &manifest)).To(Succeed())
		var want []krewPlatform
		for _, p := range []struct{ os, arch, bin string }{{"linux", "arm64", "kubectl-autohealer"}, {"windows", "amd64", "kubectl-autohealer.exe"}} {
			name := "kubectl-autohealer_v0.2.0-rc.1_" + p.os + "_" + p.arch + ".tar.gz"
			sum, err := sum(filepath.Join(dist, name))
			g.Expect(err).NotTo(HaveOccurred())
			want = append(want, krewPlatform{
				Selector: map[string]map[string]string{"matchLabels": {"os": p.os, "arch": p.arch}},
				URI:      "https://github.com/resourcestack/autohealer/releases/download/v0.2.0-rc.1/" + name, SHA256: sum, Bin: p.bin,
			})
			g.Expect(contents(t, filepath.Join(dist, name))).To(And(HaveKeyWithValue(p.bin, "for "+p.os+"-"+p.arch), HaveKey("LICENSE")))
			g.Expect(read(checksumFile)).To(ContainSubstring(sum + "  " + name + "\n"))
		}
		g.Expect(manifest.Spec.Platforms).To(ConsistOf(want))
	})

	t.Run("has checksums that sha256sum finds right", func(t *testing.T) {
		if _, err := exec.LookPath("sha256sum"); err != nil {
			t.Skip(err)
		}
		check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksumFile)
		check.Dir = dist
		said, err := check.CombinedOutput()
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), "%s", said)
	})

	t.Run("has the changelog's section", func(t *testing.T) {
		NewWithT(t).Expect(read("release-notes.md")).To(Equal("- all\n"))
	})

	t.Run("is the same a second time", func(t *testing.T) {
		g := NewWithT(t)
		again, err := write(t, "v0.2.0-rc.1", "registry.example.com/platform")
		g.Expect(err).NotTo(HaveOccurred())
		other, err := os.ReadFile(filepath.Join(again, checksumFile))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(other)).To(Equal(read(checksumFile)))
	})
}

func TestWhatIsNoReleaseIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ version, registry, says string }{
		"a commit":                {"851ffbd-dirty", "registry.example.com", "is no version such as v0.1.0"},
		"no registry":             {"v0.1.0", "", "no image of Autohealer is published"},
		"none in the changelog":   {"v0.3.0", "registry.example.com", "has no section ## [0.3.0]"},
		"a registry with a slash": {"v0.1.0", "registry.example.com/", "ends with a slash"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := write(t, c.version, c.registry)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(c.says)))
		})
	}
}

func TestNotesAreTheChangelogsSection(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- new\n\n## [0.1.0] - 2026-11-27\n\n### Added\n\n- all\n\n## [0.0.1]\n\n- old\n"
	for name, want := range map[string]string{"[0.1.0]": "### Added\n\n- all\n", "Unreleased": "- new\n", "[0.0.1]": "- old\n", "[0.3.0]": ""} {
		text, found := section(changelog, name)
		if text != want || found != (want != "") {
			t.Errorf("section %s: %q, %v; want %q", name, text, found, want)
		}
	}
}
