package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
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
// and the compiled rules. On a machine at its limit the garbage collector comes late, so it is told of a limit here, which whoever keeps the
// documents, more than 300 MB, passes all the same.
func TestTenThousandDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	for _, format := range []string{"text", "sarif"} {
		cmd := exec.CommandContext(t.Context(), built(t), "validate", "-f", "-", "-o", format)
		var stdout bytes.Buffer
		cmd.Env = append(os.Environ(), "GOMEMLIMIT=150MiB")
		cmd.Stdin, cmd.Stdout = strings.NewReader(sets(10_000, warned)), &stdout
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		t.Logf("%s: %d MB of memory, %v of processor time, %d bytes written", format, usage.Maxrss>>10, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), stdout.Len())
		if usage.Maxrss > 200<<10 {
			t.Errorf("%s: %d MB of memory", format, usage.Maxrss>>10)
		}
		if stdout.Len() > 5_000_000 {
			t.Errorf("%s: %d bytes", format, stdout.Len())
		}
	}
}
