package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// machine describes what the figures were measured on.
func (b *bench) machine(ctx context.Context) string {
	server := "unknown"
	if version, err := b.clients.Discovery().ServerVersion(); err == nil {
		server = version.GitVersion
	}
	load, _, _ := strings.Cut(readLine("/proc/loadavg", ""), " ")
	return fmt.Sprintf(`Measured on %s by commit %s: %d processors (%s), %s of memory, %s/%s, Linux %s, %s; Kubernetes %s with etcd without
fsync, all processes and the load on this one machine. Load average when the run began: %s.
`, b.began.UTC().Format(time.DateOnly), b.commit(ctx), runtime.NumCPU(), readLine("/proc/cpuinfo", "model name"), memory(), runtime.GOOS, runtime.GOARCH,
		readLine("/proc/sys/kernel/osrelease", ""), runtime.Version(), server, load)
}

func memory() string {
	var kib float64
	if _, err := fmt.Sscanf(readLine("/proc/meminfo", "MemTotal"), "%f kB", &kib); err != nil {
		return "unknown size"
	}
	return fmt.Sprintf("%.0f GiB", kib/(1<<20))
}

// readLine gives a file's first line with this key, without the key, or just its first line.
func readLine(path, key string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(content)) {
		name, value, _ := strings.Cut(line, ":")
		if key == "" {
			return strings.TrimSpace(line)
		}
		if strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// commit that is measured; `go run` doesn't stamp it into the program.
func (b *bench) commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "-C", b.Root(), "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown" // no git, or no repository
	}
	return strings.TrimSpace(string(out))
}
