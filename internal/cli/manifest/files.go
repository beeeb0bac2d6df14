// Package manifest reads Kubernetes objects from YAML and JSON as kubectl does, and knows the line of every field. What a
// map would silently merge, it reports: the API server never sees the key that lost.
package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Stdin is the name that stands for standard input.
const Stdin = "-"

// File is a text with the name that messages give it.
type File struct {
	Name string
	Text []byte
}

// extensions that a directory is searched for, as by kubectl.
var extensions = []string{".json", ".yaml", ".yml"}

// ErrNoFile means that a directory has nothing to read.
var ErrNoFile = errors.New("there is no file")

// Files reads files, directories and standard input. Directories are searched below their first level when recursive.
func Files(paths []string, recursive bool, stdin io.Reader) ([]File, error) {
	var files []File
	for _, p := range paths {
		found, err := filesOf(p, recursive, stdin)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

func filesOf(p string, recursive bool, stdin io.Reader) ([]File, error) {
	if p == Stdin {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return []File{{Name: "<stdin>", Text: text}}, nil
	}
	info, err := os.Stat(p)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		file, err := read(p)
		return []File{file}, err
	}
	files, err := filesBelow(p, recursive)
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%w that ends in %s", ErrNoFile, strings.Join(extensions, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("read directory %s: %w", p, err)
	}
	return files, nil
}

func filesBelow(dir string, recursive bool) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != dir && !recursive:
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains(extensions, strings.ToLower(filepath.Ext(name))):
			return nil
		}
		file, err := read(name)
		files = append(files, file)
		return err
	})
	return files, err
}

func read(name string) (File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return File{}, fmt.Errorf("read manifest: %w", err)
	}
	return File{Name: filepath.ToSlash(name), Text: text}, nil
}
