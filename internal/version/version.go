// Package version says of which version a program is.
package version

import (
	"runtime/debug"
	"strings"
)

// Of is the released version, or, of a program that has none, what the Go toolchain noted about the source.
func Of(released string) string {
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
