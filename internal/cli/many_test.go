package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// sets are ConditionSets, which are good or of which each has a warning.
func sets(n int, effect string) string {
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "---\napiVersion: autohealer.resourcestack.com/v1alpha1\nkind: ConditionSet\nmetadata:\n  name: set-%d\n  labels:\n    team: nodes\nspec:\n"+
			"  type: KernelDeadlock\n  effect: %s\n  taintKey: example.com/kernel-%d\n  conditions:\n    KernelDeadlock: {status: true}\n  for: 5m\n", i, effect, i)
	}
	return all.String()
}

const (
	good   = "NoSchedule"
	warned = "NoExecute"
)

// TestSARIFOfManyDocuments: what couldn't be asked is said once, for however many documents, and of a finding all that code scanning reads
// and no more: of ten thousand documents less than 5 MB.
func TestSARIFOfManyDocuments(t *testing.T) {
	size := func(n int, effect string) int {
		code, stdout, stderr := run(t, sets(n, effect), "validate", "-f", "-", "-o", "sarif")
		if code != 0 || !strings.Contains(stdout, fmt.Sprintf("conditionset/would-exceed-limit, for %d objects", n)) {
			t.Fatalf("exit code %d\n%.1000s\n%s", code, stdout, stderr)
		}
		return len(stdout)
	}
	if few, many := size(100, good), size(1000, good); many-few > 50 {
		t.Errorf("900 documents more, of which nothing is found, need %d bytes", many-few)
	}
	if few, many := size(100, warned), size(1000, warned); many-few > 900*450 {
		t.Errorf("a finding needs %d bytes", (many-few)/900)
	}
}

// TestADocumentCostsTheSameAmongMany: a document more needs no more allocations, however many there are.
func TestADocumentCostsTheSameAmongMany(t *testing.T) {
	allocations := func(n int) uint64 {
		text := sets(n, warned)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if code, _, stderr := run(t, text, "validate", "-f", "-"); code != 0 {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		runtime.ReadMemStats(&after)
		return after.Mallocs - before.Mallocs
	}
	allocations(1) // what is compiled once
	few, more, many := allocations(100), allocations(600), allocations(2600)
	each, eachOfMany := (more-few)/500, (many-more)/2000
	t.Logf("a document takes %d allocations, and %d among more", each, eachOfMany)
	if each > 1900 || eachOfMany > each+each/20 {
		t.Errorf("a document takes %d allocations, and %d among more", each, eachOfMany)
	}
}

// TestTenThousandDocuments: of what was read and judged nothing is kept but what is said. 150 MB are the aim, half of them the program itself
// and the compiled rules; what the garbage collector does late on a machine at its limit comes on top. Whoever keeps the documents needs more
// than 300.
func TestTenThousandDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	for _, format := range []string{"", "sarif"} {
		cmd := exec.CommandContext(t.Context(), built(t), "validate", "-f", "-", "-o", format)
		var stdout bytes.Buffer
		cmd.Stdin, cmd.Stdout = strings.NewReader(sets(10_000, warned)), &stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		memory := mostMemory(cmd.Process.Pid)
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		most := <-memory
		t.Logf("%s: %d MB of memory, %v of processor time, %d bytes written", format, most>>10, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), stdout.Len())
		if runtime.GOOS == "linux" && (most == 0 || most > 200<<10) {
			t.Errorf("%s: %d MB of memory", format, most>>10)
		}
		if stdout.Len() > 5_000_000 {
			t.Errorf("%s: %d bytes", format, stdout.Len())
		}
	}
}

// mostMemory gives the most memory that a process has had, in KiB, when it is gone; 0 where nobody tells. What wait4 says counts the memory of
// this process in, from before the program took over.
func mostMemory(pid int) <-chan int {
	known := make(chan int, 1)
	go func() {
		most := 0
		for {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			_, rest, alive := strings.Cut(string(status), "VmHWM:")
			if err != nil || !alive { // it ended, or nobody waits for it any more
				known <- most
				return
			}
			_, _ = fmt.Sscan(rest, &most)
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return known
}
