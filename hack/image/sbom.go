package main

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// authoritiesModule is where authorities come from.
const authoritiesModule = "golang.org/x/crypto/x509roots/fallback"

// writeSBOM writes what is in an image as SPDX 2.3: the program with Go and each module that is linked into it, by version and go.sum's
// sum, and the authorities.
func writeSBOM(path string, p *program, image v1.Image, version string) error {
	doc, err := sbom(p, image, version)
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(json.Write(doc, out, json.Indent(" "), json.EscapeHTML(false)), out.Close())
}

func sbom(p *program, image v1.Image, version string) (*spdx.Document, error) {
	made, createdErr := created()
	digest, digestErr := image.Digest()
	authorities, authoritiesErr := ownDependency(authoritiesModule)
	if err := errors.Join(createdErr, digestErr, authoritiesErr); err != nil {
		return nil, err
	}
	title := p.title()
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: title + " " + version,
		DocumentNamespace: fmt.Sprintf("https://%s/spdx/%s", p.info.Main.Path, digest.Hex), // unique, as it must be
		CreationInfo: &spdx.CreationInfo{
			Created:  made.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "autohealer-hack-image"}},
		},
	}
	add := func(parent common.ElementID, relation string, added *spdx.Package) common.ElementID {
		added.PackageSPDXIdentifier = common.ElementID(fmt.Sprintf("Package-%d", len(doc.Packages)))
		added.PackageDownloadLocation = "NOASSERTION"
		doc.Packages = append(doc.Packages, added)
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(parent)), RefB: common.MakeDocElementID("", string(added.PackageSPDXIdentifier)), Relationship: relation,
		})
		return added.PackageSPDXIdentifier
	}
	whole := add(doc.SPDXIdentifier, common.TypeRelationshipDescribe, &spdx.Package{
		PackageName: title, PackageVersion: version, PrimaryPackagePurpose: "CONTAINER",
		PackageChecksums:          []common.Checksum{{Algorithm: common.SHA256, Value: digest.Hex}},
		PackageExternalReferences: purl(fmt.Sprintf("pkg:oci/%s@sha256%%3A%s?arch=%s", title, digest.Hex, p.platform().Architecture)),
	})
	add(whole, common.TypeRelationshipContains, ofModule(authorities))
	main := add(whole, common.TypeRelationshipContains, ofModule(&debug.Module{Path: p.info.Main.Path, Version: version}))
	goVersion, _, _ := strings.Cut(strings.TrimPrefix(p.info.GoVersion, "go"), " ") // experiments follow
	add(main, common.TypeRelationshipDependsOn, ofModule(&debug.Module{Path: "stdlib", Version: goVersion}))
	for _, dependency := range p.info.Deps {
		add(main, common.TypeRelationshipDependsOn, ofModule(dependency))
	}
	return doc, nil
}

func ofModule(m *debug.Module) *spdx.Package {
	if m.Replace != nil {
		m = m.Replace
	}
	described := &spdx.Package{
		PackageName: m.Path, PackageVersion: m.Version,
		PackageExternalReferences: purl("pkg:golang/" + strings.ToLower(m.Path) + "@" + strings.ReplaceAll(m.Version, "+", "%2B")),
	}
	if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
		described.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: hex.EncodeToString(sum)}}
	}
	return described
}

func purl(locator string) []*spdx.PackageExternalReference {
	return []*spdx.PackageExternalReference{{
		Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: locator,
	}}
}

// ownDependency is a module that is linked into this command.
func ownDependency(path string) (*debug.Module, error) {
	own, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, errors.New("this command has no build information")
	}
	i := slices.IndexFunc(own.Deps, func(m *debug.Module) bool { return m.Path == path })
	if i < 0 {
		return nil, fmt.Errorf("this command was built without %s", path)
	}
	return own.Deps[i], nil
}
