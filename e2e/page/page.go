// Package page reads pages of the documentation as their readers do, so that tests can follow them: files that a reader saves, and
// commands with what they print.
//
//   - A ```console block has commands behind "$ ", each with all that it prints; "…" stands for what is left out, of a line or lines.
//   - A ```sh block is one script, of which nothing is shown.
//   - A ```yaml block whose first line is a comment with a file's name, such as "# rule.yaml", is that file.
//
// Code in Go is kept for those who have it compiled; nothing else is looked at. For tests alone, readers don't see them, there are comments in a page:
//
//   - "<!-- test: skip: REASON -->" says why the next block isn't followed,
//   - "<!-- test: skip page: REASON -->" why none of the page is,
//   - "<!-- test: run: SCRIPT -->" does, before the next block or in the end, what isn't the reader's to do.
package page

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Page is one page.
type Page struct {
	Name string // its path from the repository's root
	// Skipped is why the page isn't followed; empty where it is.
	Skipped string
	Blocks  []Block
}

// Block is what a reader does something with: one of File, Script, Code and Commands is set.
type Block struct {
	Line int
	// Skipped is why the block isn't followed; empty where it is.
	Skipped string
	// Before is run before it.
	Before []string
	// File is the name of the file that Text is to be saved as.
	File, Text string
	Script     string
	Code       string // in Go, which isn't run
	Commands   []Command
}

// Command is one of a console block.
type Command struct {
	Line  int
	Text  string
	Shown []string // the lines that the page shows behind it
}

var (
	fence    = regexp.MustCompile("^( *)```(\\w*)$")
	comment  = regexp.MustCompile(`(?s)^<!-- test: (skip|skip page|run):\s+(.+?)\s*-->$`)
	fileName = regexp.MustCompile(`^# ([\w./-]+\.ya?ml)$`)
	heredoc  = regexp.MustCompile(`<<'?(\w+)'?`)
)

// Read reads the page of this name below the repository's root.
func Read(root, name string) (*Page, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	p := &Page{Name: name}
	if err := p.parse(strings.Split(string(text), "\n")); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return p, nil
}

// File gives the text of the page's file of this name.
func (p *Page) File(name string) (string, error) {
	for _, b := range p.Blocks {
		if b.File == name {
			return b.Text, nil
		}
	}
	return "", fmt.Errorf("%s has no file %s", p.Name, name)
}

// Commands gives all commands of the page's console blocks that aren't skipped.
func (p *Page) Commands() (all []Command) {
	for _, b := range p.Blocks {
		if b.Skipped == "" {
			all = append(all, b.Commands...)
		}
	}
	return all
}

// SkippedCommand is the skipped command that has these words, for a test that follows it elsewhere.
func (p *Page) SkippedCommand(words string) (Command, error) {
	for _, b := range p.Blocks {
		for _, c := range b.Commands {
			if b.Skipped != "" && strings.Contains(c.Text, words) {
				return c, nil
			}
		}
	}
	return Command{}, fmt.Errorf("%s has no skipped command with %s", p.Name, words)
}

func (p *Page) parse(lines []string) error {
	var next Block // what comments say of the next block
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "<!-- test:") {
			first := i
			last, err := end(lines, i, func(line string) bool { return strings.HasSuffix(line, "-->") })
			if err == nil {
				err = p.instruct(&next, strings.Join(lines[first:last+1], "\n"))
			}
			if err != nil {
				return fmt.Errorf("line %d: %w", first+1, err)
			}
			i = last
			continue
		}
		opening := fence.FindStringSubmatch(lines[i])
		if opening == nil {
			continue
		}
		next.Line = i + 1
		last, err := end(lines, i+1, func(line string) bool { return strings.TrimSpace(line) == "```" })
		if err != nil {
			return fmt.Errorf("line %d: %w", next.Line, err)
		}
		content := make([]string, 0, last-i)
		for _, line := range lines[i+1 : last] {
			content = append(content, strings.TrimPrefix(line, opening[1]))
		}
		used, err := next.fill(opening[2], content)
		if err != nil {
			return err
		}
		if used {
			p.Blocks = append(p.Blocks, next)
			next = Block{}
		}
		i = last
	}
	if next.Skipped != "" {
		return fmt.Errorf("there is no block to skip: %s", next.Skipped)
	}
	if next.Before != nil {
		p.Blocks = append(p.Blocks, next)
	}
	return nil
}

// end is the first line from one on that ends what began there.
func end(lines []string, from int, ends func(string) bool) (int, error) {
	for i := from; i < len(lines); i++ {
		if ends(lines[i]) {
			return i, nil
		}
	}
	return 0, errors.New("this has no end")
}

// instruct does what a comment for tests says.
func (p *Page) instruct(next *Block, text string) error {
	said := comment.FindStringSubmatch(text)
	switch {
	case said == nil:
		return fmt.Errorf("not understood: %s", text)
	case said[1] == "skip":
		next.Skipped = said[2]
	case said[1] == "skip page":
		p.Skipped = said[2]
	default:
		next.Before = append(next.Before, said[2])
	}
	return nil
}

// fill makes the block what the fence's language and the content say; false where readers do nothing with it.
func (b *Block) fill(language string, content []string) (bool, error) {
	text := strings.Join(content, "\n") + "\n"
	if b.Skipped != "" {
		if language == "console" {
			_ = b.addCommands(content) // it may be one to read
		}
		return true, nil
	}
	switch language {
	case "console":
		return true, b.addCommands(content)
	case "sh":
		b.Script = text
		return true, nil
	case "go":
		b.Code = text
		return true, nil
	case "yaml":
		first, _, _ := strings.Cut(text, "\n")
		if name := fileName.FindStringSubmatch(first); name != nil {
			b.File, b.Text = name[1], text
			return true, nil
		}
	}
	return false, nil
}

// addCommands reads a console block; here-documents and lines that end with a backslash belong to the command.
func (b *Block) addCommands(lines []string) error {
	for i := 0; i < len(lines); i++ {
		text, isCommand := strings.CutPrefix(lines[i], "$ ")
		if !isCommand {
			if b.Commands == nil {
				return fmt.Errorf("line %d: output without a command", b.Line+i+1)
			}
			last := &b.Commands[len(b.Commands)-1]
			last.Shown = append(last.Shown, lines[i])
			continue
		}
		line := b.Line + i + 1
		for ends := heredoc.FindStringSubmatch(text); strings.HasSuffix(text, `\`) || ends != nil; {
			if i++; i == len(lines) {
				return fmt.Errorf("line %d: the command has no end", line)
			}
			text += "\n" + lines[i]
			if ends != nil && lines[i] == ends[1] {
				break
			}
		}
		b.Commands = append(b.Commands, Command{Line: line, Text: text})
	}
	return nil
}
