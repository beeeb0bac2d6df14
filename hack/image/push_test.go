package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/sigstore/sigstore/pkg/signature/payload"
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
	digest, err := push(t.Context(), filepath.Join(dir, "autohealer-image"), to, "")
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
	if _, err := remote.Get(tag.Context().Tag(strings.Replace(digest.DigestStr(), ":", "-", 1) + ".sig")); err == nil {
		t.Error("it is signed, and there was no key")
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

func TestTheSignatureIsWhatCosignVerifies(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	digest, err := push(t.Context(), filepath.Join(packed(t, build(t)...), "autohealer-image"), serve(t)+"/a/autohealer:v1", file)
	if err != nil {
		t.Fatal(err)
	}

	signature, claim := signatureOf(t, digest)
	sum := sha256.Sum256(claim)
	if !ecdsa.VerifyASN1(&key.PublicKey, sum[:], signature) {
		t.Error("the public key doesn't verify it")
	}
	var said payload.Cosign
	if err := json.Unmarshal(claim, &said); err != nil || said.Image.String() != digest.String() {
		t.Errorf("%s signs %s instead of %s: %v", claim, said.Image, digest, err)
	}
}

// signatureOf reads it as cosign does: the only layer of the image at the tag that follows from the digest, and its annotation.
func signatureOf(t *testing.T, digest name.Digest) (signature, claim []byte) {
	t.Helper()
	image, err := remote.Image(digest.Context().Tag(strings.Replace(digest.DigestStr(), ":", "-", 1) + ".sig"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Layers) != 1 || manifest.Layers[0].MediaType != "application/vnd.dev.cosign.simplesigning.v1+json" {
		t.Fatalf("layers %v", manifest.Layers)
	}
	signature, err = base64.StdEncoding.DecodeString(manifest.Layers[0].Annotations["dev.cosignproject.cosign/signature"])
	if err != nil {
		t.Fatal(err)
	}
	layer, err := image.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	if claim, err = io.ReadAll(content); err != nil {
		t.Fatal(err)
	}
	return signature, claim
}

func TestKeysThatCantSignAreRefused(t *testing.T) {
	_, err := sign(name.Digest{}, filepath.Join(t.TempDir(), "none"))
	if !os.IsNotExist(err) {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	for content, want := range map[string]string{
		"text": "isn't PEM",
		"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n": "isn't PKCS #8",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sign(name.Digest{}, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", content, err)
		}
	}
}
