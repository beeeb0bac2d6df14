package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// program is a static binary, and what Go noted in it of its making.
type program struct {
	// name is that of its file.
	name     string
	content  []byte
	info     *buildinfo.BuildInfo
	settings map[string]string
}

func readProgram(file string) (*program, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("read how %s was built: %w", file, err)
	}
	p := &program{name: filepath.Base(file), content: content, info: info, settings: map[string]string{}}
	for _, s := range info.Settings {
		p.settings[s.Key] = s.Value
	}
	if p.settings["CGO_ENABLED"] != "0" { // it may ask for libraries, of which the image has none
		return nil, fmt.Errorf("%s isn't static: build it with CGO_ENABLED=0", file)
	}
	return p, nil
}

// title is the last element of the module's path.
func (p *program) title() string { return path.Base(p.info.Main.Path) }

func (p *program) platform() v1.Platform {
	return v1.Platform{OS: p.settings["GOOS"], Architecture: p.settings["GOARCH"]}
}

// created is the time that image and SBOM tell: SOURCE_DATE_EPOCH, which make sets to the commit's, else 1970. Now would make no two of
// them the same.
func created() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		epoch = "0"
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is in seconds since 1970: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
