// Command release writes what a release has into a directory, beside the image, which `make image` puts there: the plugin for each
// platform, its manifest for krew, install.yaml and the chart with the registry's name, notes and checksums. Run twice on one
// commit it writes the same bytes.
//
// Usage: release -version v0.1.0 -registry registry.example.com/platform [-dist dist]
package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is what all parts need to know.
type release struct {
	version, registry, dist string
	// built is the directory with the plugin for each platform: GOOS-GOARCH/kubectl-autohealer.
	built, changelog string
	// made is the time in archives: that of the commit, or SOURCE_DATE_EPOCH.
	made time.Time
}

func main() {
	r := release{changelog: "CHANGELOG.md"}
	flag.StringVar(&r.version, "version", "", "the version's tag, such as v0.1.0")
	flag.StringVar(&r.registry, "registry", "", "the registry that the image is pushed to, with a path, such as registry.example.com/platform")
	flag.StringVar(&r.dist, "dist", "dist", "directory to write to")
	flag.StringVar(&r.built, "built", "bin", "directory with the plugin for each platform, as GOOS-GOARCH/kubectl-autohealer")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := r.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var semver = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func (r *release) run(ctx context.Context) error {
	if !semver.MatchString(r.version) {
		return fmt.Errorf("%q is no version such as v0.1.0: tag the commit, or give VERSION", r.version)
	}
	if r.registry == "" {
		return errors.New("no registry: give REGISTRY, such as registry.example.com/platform; no image of Autohealer is published, so it must be yours")
	}
	if strings.HasSuffix(r.registry, "/") {
		return fmt.Errorf("REGISTRY %q ends with a slash", r.registry)
	}
	var err error
	if r.made, err = commitTime(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dist, 0o755); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{r.notes, r.manifest, r.chart, r.plugins, r.checksums} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func commitTime(ctx context.Context) (time.Time, error) {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("ask git for the commit's time: %w; SOURCE_DATE_EPOCH says it without git", err)
		}
		seconds = strings.TrimSpace(string(out))
	}
	n, err := strconv.ParseInt(seconds, 10, 64)
	return time.Unix(n, 0).UTC(), err
}

// checksums writes those of all files in the directory, as sha256sum does.
func (r *release) checksums(context.Context) error {
	entries, err := os.ReadDir(r.dist)
	if err != nil {
		return err
	}
	var lines []string
	for _, e := range entries {
		if e.IsDir() || e.Name() == checksumFile {
			continue
		}
		sum, err := sum(filepath.Join(r.dist, e.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, sum+"  "+e.Name()+"\n")
	}
	return os.WriteFile(filepath.Join(r.dist, checksumFile), []byte(strings.Join(lines, "")), 0o644)
}

const checksumFile = "checksums.txt"

func sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", hash.Sum(nil)), nil
}

// notes are the changelog's section of the version.
func (r *release) notes(context.Context) error {
	changelog, err := os.ReadFile(r.changelog)
	if err != nil {
		return err
	}
	text, found := section(string(changelog), "["+strings.TrimPrefix(r.version, "v")+"]")
	if !found {
		return fmt.Errorf("%s has no section ## [%s]: give what is unreleased its version and date", r.changelog, strings.TrimPrefix(r.version, "v"))
	}
	return os.WriteFile(filepath.Join(r.dist, "release-notes.md"), []byte(text), 0o644)
}

// section of a changelog, without its heading.
func section(changelog, name string) (string, bool) {
	_, after, found := strings.Cut(changelog, "\n## "+name)
	if !found {
		return "", false
	}
	_, text, _ := strings.Cut(after, "\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return strings.TrimSpace(text) + "\n", true
}

// file is one in an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

// archive writes a tar.gz that depends on nothing but the files' contents.
func (r *release) archive(path string, files []file) (err error) {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	packed := gzip.NewWriter(out)
	defer func() { err = errors.Join(err, packed.Close()) }()
	archive := tar.NewWriter(packed)
	defer func() { err = errors.Join(err, archive.Close()) }()
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: r.made, Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return nil
}
