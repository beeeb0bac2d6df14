package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// source is what a program was built from.
type source struct{ version, revision string }

// image has the program as its entrypoint, and nothing beside it but authorities: by these the manager verifies Guardrails' witnesses,
// and servers of kubeconfigs that name none. The layer of the authorities comes first, and is the same from version to version.
func (p *program) image(from source) (v1.Image, error) {
	made, err := created()
	if err != nil {
		return nil, err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":    p.title(),
		"org.opencontainers.image.source":   "https://" + p.info.Main.Path,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.version":  from.version,
		"org.opencontainers.image.revision": from.revision,
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: p.platform().OS, Architecture: p.platform().Architecture, Created: v1.Time{Time: made}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: []string{"/" + p.name}, User: "65532:65532", Labels: labels},
	})
	if err != nil {
		return nil, err
	}
	for _, f := range []file{
		{"etc/ssl/certs/ca-certificates.crt", 0o644, authorities()},
		{p.name, 0o755, p.content},
	} {
		layer, err := f.layer()
		if err != nil {
			return nil, err
		}
		history := v1.History{Created: v1.Time{Time: made}, CreatedBy: "COPY /" + f.name}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: history}); err != nil {
			return nil, err
		}
	}
	return image, nil
}

// authorities are Mozilla's, as the Go project packs them. One that Mozilla trusts for a part of its certificates only is left out: a
// file can't say for which.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes all
		}
	}
	return out.Bytes()
}

type file struct {
	name    string
	mode    int64
	content []byte
}

// layer has the one file, root's, of 1970: nothing but name, mode and content makes a difference.
func (f file) layer() (v1.Layer, error) {
	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0)}
	headerErr := writer.WriteHeader(header)
	_, writeErr := writer.Write(f.content)
	if err := errors.Join(headerErr, writeErr, writer.Close()); err != nil {
		return nil, err
	}
	opener := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	return tarball.LayerFromOpener(opener, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
}
