package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// clockTick is the unit of CPU time in /proc: 100 a second on every Linux, whatever the kernel's own tick.
const clockTick = 10 * time.Millisecond

// self stands for this program, which makes the load.
const self cluster.Component = "bench"

// usage is CPU time by process. Processes that don't run, or systems without /proc, are missing.
type usage map[cluster.Component]time.Duration

// usage reads the CPU time that each process took until now.
func (b *bench) usage() usage {
	u := usage{}
	for _, component := range []cluster.Component{cluster.Etcd, cluster.APIServer, harness.Manager} {
		if spent, ok := cpuTime(b.pid(component)); ok {
			u[component] = spent
		}
	}
	var own syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &own) == nil {
		u[self] = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	}
	return u
}

// since is what each process took since before; one that was started meanwhile took all of it.
func (u usage) since(before usage) usage {
	spent := usage{}
	for component, now := range u {
		if was := before[component]; was <= now {
			spent[component] = now - was
		} else {
			spent[component] = now
		}
	}
	return spent
}

func (u usage) total() (all time.Duration) {
	for _, spent := range u {
		all += spent
	}
	return all
}

// add sums up over rounds.
func (u usage) add(more usage) {
	for component, spent := range more {
		u[component] += spent
	}
}

func (b *bench) pid(component cluster.Component) string {
	pid, err := os.ReadFile(filepath.Join(b.Dir, "run", string(component)+".pid"))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(pid))
}

// cpuTime reads /proc/<pid>/stat: the name in parentheses may have spaces, and what counts comes behind it.
func cpuTime(pid string) (time.Duration, bool) {
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

// notePeak remembers the manager's greatest memory so far; it is called before the manager is stopped.
func (b *bench) notePeak() {
	status, err := os.ReadFile(filepath.Join("/proc", b.pid(harness.Manager), "status"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, _ := strconv.Atoi(fields[1]) // 0 when the kernel writes something else
			b.peakMemory = max(b.peakMemory, kib<<10)
		}
	}
}
