package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

// push pushes all platforms of a layout under one name, and the signature where there is a key, and gives the digest by which the image
// should be named. The credentials are those of docker login.
func push(ctx context.Context, from, to, keyFile string) (name.Digest, error) {
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
	if keyFile != "" { // first, so that nobody finds the image without it
		signature, err := sign(digest, keyFile)
		if err != nil {
			return name.Digest{}, fmt.Errorf("sign %s: %w", digest, err)
		}
		where := tag.Context().Tag(fmt.Sprintf("%s-%s.sig", hash.Algorithm, hash.Hex))
		if err := remote.Write(where, signature, options...); err != nil {
			return name.Digest{}, fmt.Errorf("push the signature: %w", err)
		}
	}
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

// sign makes what cosign verify --key looks for beside an image.
func sign(digest name.Digest, keyFile string) (v1.Image, error) {
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	claim, err := json.Marshal(payload.Cosign{Image: digest})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(claim)
	signature, err := ecdsa.SignASN1(rand.Reader, key, sum[:])
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(image, mutate.Addendum{
		Layer:       static.NewLayer(claim, "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)},
	})
}

func readKey(file string) (*ecdsa.PrivateKey, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("the key isn't PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the key isn't PKCS #8 without a password: %w", err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T instead of an ECDSA key", key)
	}
	return ec, nil
}
