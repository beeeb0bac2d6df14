package page

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Reader follows pages as somebody would in a checkout, with kubectl and its plugin on the PATH.
type Reader struct {
	// Dir is where commands run and files are saved.
	Dir string
	// Env is added to the environment.
	Env []string
	// Patience is how long a command that changes nothing is asked again until it prints what the page shows: people aren't as fast
	// as a test, and the manager follows in its own time.
	Patience time.Duration
}

// Checkout makes a directory look like the repository's root without being it, so that a reader's files don't get there.
func Checkout(root, dir string) error {
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			if err := os.Symlink(filepath.Join(root, e.Name()), filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return err
}

// Follow does what the page says, from top to bottom, and gives an error where something isn't as the page has it.
func (r Reader) Follow(ctx context.Context, p *Page) error {
	for _, b := range p.Blocks {
		if err := r.block(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	return nil
}

func (r Reader) block(ctx context.Context, b Block) error {
	for _, script := range b.Before {
		if err := r.script(ctx, b.Line, script); err != nil {
			return err
		}
	}
	if b.Skipped != "" {
		return nil
	}
	if b.Script != "" {
		return r.script(ctx, b.Line, b.Script)
	}
	if b.File != "" {
		path := filepath.Join(r.Dir, b.File)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(b.Text), 0o600)
	}
	for _, c := range b.Commands {
		if err := r.command(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (r Reader) script(ctx context.Context, line int, script string) error {
	said, err := r.Run(ctx, "set -e\n"+script, "")
	if err != nil {
		return fmt.Errorf("line %d: %w:\n%s\nprints:\n%s", line, err, script, said)
	}
	return nil
}

// command expects what the page shows. A command's exit code isn't shown, and what it means its output says.
func (r Reader) command(ctx context.Context, c Command) error {
	said, _ := r.Run(ctx, c.Text, "")
	differs := c.Differs(said)
	if differs == "" || !c.reads() {
		return asError(differs)
	}
	_ = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, r.Patience, false, func(ctx context.Context) (bool, error) {
		said, _ = r.Run(ctx, c.Text, "")
		if ctx.Err() == nil {
			differs = c.Differs(said)
		}
		return differs == "", nil
	}) // what is missing in the end is said by differs
	return asError(differs)
}

func asError(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// reads says that the command changes nothing.
func (c Command) reads() bool {
	if strings.Contains(c.Text, " --dry-run") {
		return true
	}
	for _, verb := range []string{"get ", "describe ", "diff ", "autohealer status", "autohealer explain ", "autohealer plan ", "autohealer validate ", "autohealer hash "} {
		if strings.HasPrefix(c.Text, "kubectl "+verb) {
			return true
		}
	}
	return false
}

// Run runs a script of the page's and gives both of its outputs as a terminal shows them.
func (r Reader) Run(ctx context.Context, script, input string) (string, error) {
	sh := exec.CommandContext(ctx, "sh", "-c", script)
	sh.Dir, sh.Env, sh.Stdin = r.Dir, append(os.Environ(), r.Env...), strings.NewReader(input)
	var out bytes.Buffer
	sh.Stdout, sh.Stderr = &out, &out
	err := sh.Run()
	return out.String(), err
}
