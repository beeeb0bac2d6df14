package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// pack writes an image under its name:
//
//	PREFIX/                     all platforms, as an OCI layout: to be pushed, by push, crane or skopeo
//	PREFIX-OS-ARCH.tar          one platform, for docker load, ctr images import and crane push
//	PREFIX-OS-ARCH.spdx.json    what is in that
func pack(called string, from source, prefix string, binaries []string) error {
	tag, err := name.NewTag(called)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(prefix); err != nil { // images of an earlier run would stay in it
		return err
	}
	if err := os.MkdirAll(filepath.Dir(prefix), 0o755); err != nil {
		return err
	}
	index := v1.ImageIndex(empty.Index)
	for _, binary := range binaries {
		p, err := readProgram(binary)
		if err != nil {
			return err
		}
		image, err := p.image(from)
		if err != nil {
			return fmt.Errorf("make the image of %s: %w", binary, err)
		}
		platform := p.platform()
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &platform}})
		file := fmt.Sprintf("%s-%s-%s", prefix, platform.OS, platform.Architecture)
		if err := tarball.WriteToFile(file+".tar", tag, image); err != nil {
			return fmt.Errorf("write %s.tar: %w", file, err)
		}
		if err := writeSBOM(file+".spdx.json", p, image, from.version); err != nil {
			return fmt.Errorf("write %s.spdx.json: %w", file, err)
		}
	}
	// An index within the layout's own, for those who take an image for each entry.
	to, err := layout.Write(prefix, empty.Index)
	if err != nil {
		return fmt.Errorf("write %s: %w", prefix, err)
	}
	if err := to.AppendIndex(index); err != nil {
		return fmt.Errorf("write %s: %w", prefix, err)
	}
	return nil
}
