package main

import (
	"archive/tar"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var architectures = []string{"amd64", "arm64"}

// build builds a small static program of the product's module, as the manager is built, and gives its files.
func build(t *testing.T) (binaries []string) {
	t.Helper()
	for _, arch := range architectures {
		binary := filepath.Join(t.TempDir(), "testpod")
		cmd := exec.Command("go", "build", "-C", "../..", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", binary, "./e2e/node/testpod")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		binaries = append(binaries, binary)
	}
	return binaries
}

// packed gives the directory with what is made of them.
func packed(t *testing.T, binaries ...string) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := filepath.Join(t.TempDir(), "dist")
	if err := pack("example.com/a/autohealer:v1", source{"v1.2.3", "0123abc"}, filepath.Join(dir, "autohealer-image"), binaries); err != nil {
		t.Fatal(err)
	}
	return dir
}

// contents of all files below a directory.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, dir)] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestTwoBuildsMakeTheSame(t *testing.T) {
	first, second := contents(t, packed(t, build(t)...)), contents(t, packed(t, build(t)...))
	if !maps.Equal(first, second) {
		t.Error("two builds of the same commit differ")
	}
	names := slices.Sorted(maps.Keys(first))
	for _, wanted := range []string{
		"/autohealer-image-linux-amd64.tar", "/autohealer-image-linux-arm64.tar", "/autohealer-image-linux-amd64.spdx.json",
		"/autohealer-image-linux-arm64.spdx.json", "/autohealer-image/index.json",
	} {
		if !slices.Contains(names, wanted) {
			t.Errorf("no %s among %v", wanted, names)
		}
	}
}

func TestNothingOfAnEarlierRunIsPushed(t *testing.T) {
	layout, binaries := filepath.Join(t.TempDir(), "autohealer-image"), build(t)
	files := func(version string) int {
		if err := pack("example.com/a/autohealer:v1", source{version: version}, layout, binaries); err != nil {
			t.Fatal(err)
		}
		return len(contents(t, layout))
	}
	if first, second := files("v1"), files("v2"); first != second {
		t.Errorf("%d files became %d", first, second)
	}
}

// What docker load reads.
func TestTheTarOfAPlatform(t *testing.T) {
	dir := packed(t, build(t)...)
	tag, err := name.NewTag("example.com/a/autohealer:v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range architectures {
		image, err := tarball.ImageFromPath(filepath.Join(dir, "autohealer-image-linux-"+arch+".tar"), &tag)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(image); err != nil {
			t.Error(err)
		}
		expectConfig(t, image, arch)
		expectFiles(t, image)
	}
}

func expectConfig(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != arch || config.Created.Unix() != 1700000000 {
		t.Errorf("%s/%s of %s", config.OS, config.Architecture, config.Created)
	}
	if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/testpod"}) {
		t.Errorf("user %s runs %v", config.Config.User, config.Config.Entrypoint)
	}
	for label, want := range map[string]string{
		"title": "autohealer", "source": "https://github.com/resourcestack/autohealer", "licenses": "Apache-2.0", "version": "v1.2.3",
		"revision": "0123abc",
	} {
		if got := config.Config.Labels["org.opencontainers.image."+label]; got != want {
			t.Errorf("label %s is %q", label, got)
		}
	}
}

func expectFiles(t *testing.T, image v1.Image) {
	t.Helper()
	modes := map[string]int64{}
	all := mutate.Extract(image)
	defer func() { _ = all.Close() }()
	reader := tar.NewReader(all)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		modes[header.Name] = header.Mode
	}
	if want := map[string]int64{"testpod": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644}; !maps.Equal(modes, want) {
		t.Errorf("files %v", modes)
	}
}

func TestSourceDateEpochIsTheTime(t *testing.T) {
	for epoch, want := range map[string]int64{"1700000000": 1700000000, "": 0} {
		t.Setenv("SOURCE_DATE_EPOCH", epoch)
		if at, err := created(); err != nil || at.Unix() != want {
			t.Error(at, err)
		}
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if _, err := created(); err == nil {
		t.Error("yesterday is taken")
	}
}

func TestAuthoritiesAreTrustedWithoutConditions(t *testing.T) {
	count := 0
	for rest := authorities(); ; count++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			t.Error(err)
		}
	}
	if count < 100 {
		t.Errorf("%d authorities", count)
	}
}

func TestWhatNeedsLibrariesIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"go.mod": "module example.com/a\n", "main.go": "package main\n\nfunc main() {}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-C", dir, "-o", "a", ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := readProgram(filepath.Join(dir, "a")); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
		t.Error(err)
	}
}
