package main

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// serve gives the address of a registry.
func serve(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestEachPlatformIsPulledFromWhatWasPushed(t *testing.T) {
	dir, to := packed(t, build(t)...), serve(t)+"/a/autohealer:v1"
	digest, err := push(t.Context(), filepath.Join(dir, "autohealer-image"), to)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(to)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(tag)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := index.Digest(); err != nil || got.String() != digest.DigestStr() {
		t.Errorf("%s instead of %s: %v", got, digest, err)
	}
	for _, arch := range architectures {
		image, err := remote.Image(digest, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(image); err != nil {
			t.Error(err)
		}
		expectConfig(t, image, arch)
	}
}

// What crane push does with a tar.
func TestTheTarOfAPlatformIsPushed(t *testing.T) {
	image, err := tarball.ImageFromPath(filepath.Join(packed(t, build(t)...), "autohealer-image-linux-arm64.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(serve(t) + "/a/autohealer:v1")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(tag)
	if err != nil {
		t.Fatal(err)
	}
	expectConfig(t, pulled, "arm64")
}
