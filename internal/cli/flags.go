package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/resourcestack/autohealer/internal/cli/manifest"
)

// choice is a flag with few values; a wrong one is an error that names the flag and the right ones.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }

// Set takes one of the allowed values.
func (c *choice) Set(value string) error {
	if !slices.Contains(c.allowed, value) {
		return fmt.Errorf("must be one of %s", strings.Join(c.allowed, ", "))
	}
	c.value = value
	return nil
}

// choiceFlag adds a flag whose default is the first value.
func choiceFlag(cmd *cobra.Command, name, shorthand, usage string, allowed ...string) *choice {
	c := &choice{value: allowed[0], allowed: allowed}
	cmd.Flags().VarP(c, name, shorthand, usage)
	// It fails for a flag that isn't there, and this one is.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// inputs are the flags that say which manifests to read.
type inputs struct {
	filenames []string
	recursive bool
}

func (in *inputs) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&in.filenames, "filename", "f", nil, "file or directory with manifests, or - for standard input")
	cmd.Flags().BoolVarP(&in.recursive, "recursive", "R", false, "search the directories in -f recursively")
	// Both fail for a flag that isn't there, and this one is.
	_ = cmd.MarkFlagRequired("filename")
	_ = cmd.MarkFlagFilename("filename", "json", "yaml", "yml")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("%q: files are named with -f; see '%s --help'", args[0], cmd.CommandPath())
	}
}

func (a *App) files(in inputs) ([]manifest.File, error) {
	files, err := manifest.Files(in.filenames, in.recursive, a.In)
	if err != nil {
		return nil, fmt.Errorf("--filename: %w", err)
	}
	return files, nil
}

func documentsOf(files []manifest.File) []manifest.Document {
	return slices.Collect(manifest.Each(files, ""))
}

// isTerminal says whether someone looks at a stream.
func isTerminal(stream any) bool {
	file, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(file.Fd()))
}

// wantsColors says whether a stream may be colored (https://no-color.org).
func wantsColors(stream any) bool {
	return isTerminal(stream) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}
