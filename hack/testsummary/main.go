// Runs shell commands that print what `go test -json` prints, shows packages and slow tests as they finish, what failed
// in full, and at the end what tests measured (testing.T.Attr with the key "measured") and how many passed, failed and were
// skipped, with the reasons. A skipped test that nobody sees is a test that nobody has.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	s := newSummary(os.Stdout)
	ok := len(os.Args) > 1
	for _, command := range os.Args[1:] {
		if err := run(context.Background(), s, command); err != nil {
			fmt.Fprintln(os.Stderr, "testsummary:", err)
			ok = false
		}
	}
	if !s.finish() || !ok {
		os.Exit(1)
	}
}

// run fails when the command does, also where no test says so: a pattern that matches nothing must not pass.
func run(ctx context.Context, s *summary, command string) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("run the tests: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run the tests: %w", err)
	}
	if err := s.read(output); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}
