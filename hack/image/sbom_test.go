package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

// ofThisTest is the SBOM of a program with the modules of this test's own.
func ofThisTest(t *testing.T) (*debug.BuildInfo, []byte) {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("no build information")
	}
	p := &program{name: "manager", info: info, settings: map[string]string{"GOOS": "linux", "GOARCH": "arm64"}}
	file := filepath.Join(t.TempDir(), "sbom.json")
	if err := writeSBOM(file, p, empty.Image, "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return info, content
}

func TestSBOM(t *testing.T) {
	info, content := ofThisTest(t)
	var doc v2_3.Document
	if err := json.Unmarshal(content, &doc); err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(&doc); err != nil {
		t.Error(err)
	}
	versions, sums := map[string]string{}, map[string]string{}
	for _, p := range doc.Packages {
		versions[p.PackageName] = p.PackageVersion
		for _, c := range p.PackageChecksums {
			sums[p.PackageName] = string(c.Algorithm) + " " + c.Value
		}
	}
	for _, m := range info.Deps {
		if versions[m.Path] != m.Version || !regexp.MustCompile(`^SHA256 [0-9a-f]{64}$`).MatchString(sums[m.Path]) {
			t.Errorf("%s %s is %q %q", m.Path, m.Version, versions[m.Path], sums[m.Path])
		}
	}
	if versions["image"] != "v1.2.3" || versions["stdlib"] == "" || !strings.HasPrefix(info.GoVersion, "go"+versions["stdlib"]) {
		t.Errorf("image %q, stdlib %q", versions["image"], versions["stdlib"])
	}
	if !bytes.Contains(content, []byte(`"pkg:golang/github.com/docker/cli@`)) || !bytes.Contains(content, []byte(`%2Bincompatible"`)) {
		t.Error("no package URL of docker/cli, whose version has a plus sign")
	}
	if _, again := ofThisTest(t); !bytes.Equal(content, again) {
		t.Error("two of the same program differ")
	}
}

// TestSBOMHasWhatSPDXRequires, by the fields' cardinalities in SPDX 2.3, sections 6, 7, and 11.
func TestSBOMHasWhatSPDXRequires(t *testing.T) {
	_, content := ofThisTest(t)
	var doc struct {
		SPDXVersion, DataLicense, SPDXID, Name, DocumentNamespace string
		CreationInfo                                              struct {
			Created  string
			Creators []string
		}
		Packages      []struct{ Name, SPDXID, DownloadLocation string }
		Relationships []struct{ SPDXElementID, RelatedSPDXElement, RelationshipType string }
	}
	if err := json.Unmarshal(content, &doc); err != nil {
		t.Fatal(err)
	}
	for what, pattern := range map[string][2]string{
		"version":   {doc.SPDXVersion, `^SPDX-2\.3$`},
		"license":   {doc.DataLicense, `^CC0-1\.0$`},
		"id":        {doc.SPDXID, `^SPDXRef-DOCUMENT$`},
		"name":      {doc.Name, `.`},
		"namespace": {doc.DocumentNamespace, `^https://[^#]+/[0-9a-f]{64}$`},
		"creator":   {strings.Join(doc.CreationInfo.Creators, ","), `^Tool: [^,]+$`},
	} {
		if !regexp.MustCompile(pattern[1]).MatchString(pattern[0]) {
			t.Errorf("%s is %q", what, pattern[0])
		}
	}
	if _, err := time.Parse("2006-01-02T15:04:05Z", doc.CreationInfo.Created); err != nil {
		t.Error(err)
	}
	if r := doc.Relationships[0]; r.SPDXElementID != "SPDXRef-DOCUMENT" || r.RelationshipType != "DESCRIBES" {
		t.Errorf("%+v instead of what the document describes", r)
	}
	ids := map[string]bool{}
	for _, p := range doc.Packages {
		if p.Name == "" || p.DownloadLocation == "" || !regexp.MustCompile(`^SPDXRef-[a-zA-Z0-9.-]+$`).MatchString(p.SPDXID) || ids[p.SPDXID] {
			t.Errorf("package %+v", p)
		}
		ids[p.SPDXID] = true
	}
}
