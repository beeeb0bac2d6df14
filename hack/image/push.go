package main

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// push pushes all platforms of a layout under one name, and gives the digest by which the image should be named. The credentials are those of docker login.
func push(ctx context.Context, from, to string) (name.Digest, error) {
	tag, err := name.NewTag(to)
	if err != nil {
		return name.Digest{}, err
	}
	index, err := imageIndex(from)
	if err != nil {
		return name.Digest{}, fmt.Errorf("read %s: %w", from, err)
	}
	hash, err := index.Digest()
	if err != nil {
		return name.Digest{}, err
	}
	digest := tag.Context().Digest(hash.String())
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return name.Digest{}, fmt.Errorf("push %s: %w", tag, err)
	}
	return digest, nil
}

// imageIndex is the one that pack put into a layout.
func imageIndex(dir string) (v1.ImageIndex, error) {
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return nil, err
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("it has %d images instead of one", len(manifest.Manifests))
	}
	return outer.ImageIndex(manifest.Manifests[0].Digest)
}
