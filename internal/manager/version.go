package manager

import (
	"runtime/debug"
	"strings"
)

// buildVersion is the released version, or what the Go toolchain noted about the source.
func buildVersion(released string) string {
	if released != "" {
		return released
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	var revision, dirty string
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return strings.TrimSuffix("devel-"+revision, "-") + dirty
}
