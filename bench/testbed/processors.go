package testbed

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/resourcestack/autohealer/bench/report"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// clockTick is the unit of processor time in /proc: 100 a second on every Linux, whatever the kernel's own tick.
const clockTick = 10 * time.Millisecond

// Usage is the processor time that each process took until now.
func (b *Bed) Usage() report.Usage {
	u := report.Usage{report.Self: OwnProcessorTime()}
	for _, component := range []cluster.Component{cluster.Etcd, cluster.APIServer, harness.Manager} {
		if spent, ok := processorTime(b.pid(component)); ok {
			u[component] = spent
		}
	}
	return u
}

// OwnProcessorTime is that of this process until now.
func OwnProcessorTime() time.Duration {
	var own syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &own) // it can't fail for oneself
	return time.Duration(own.Utime.Nano() + own.Stime.Nano())
}

// OwnMemory is what this process holds after a collection.
func OwnMemory() (m runtime.MemStats) {
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	runtime.ReadMemStats(&m)
	return m
}

// pid is "" for what doesn't run.
func (b *Bed) pid(component cluster.Component) string {
	pid, err := os.ReadFile(filepath.Join(b.Dir, "run", string(component)+".pid"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(pid))
}

// processorTime reads /proc/<pid>/stat: the name in parentheses may have spaces, and what counts comes behind it.
func processorTime(pid string) (time.Duration, bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if pid == "" || err != nil {
		return 0, false
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const userTime, systemTime = 11, 12 // fields 14 and 15 of proc(5), which counts from 1 and from the start
	if len(fields) <= systemTime {
		return 0, false
	}
	user, err1 := strconv.Atoi(fields[userTime])
	system, err2 := strconv.Atoi(fields[systemTime])
	return time.Duration(user+system) * clockTick, err1 == nil && err2 == nil
}
