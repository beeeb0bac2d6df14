package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var root = filepath.Join("..", "..")

// TestAListWhoseCommentIsLostIsAnError: it would be generated no longer, and every check of it would pass.
func TestAListWhoseCommentIsLostIsAnError(t *testing.T) {
	for name, of := range map[string]struct {
		fill           func(root, name string) ([]byte, error)
		comment, other string
	}{
		"config/rbac/manager_role.yaml":                {withResources, "# make generate: statuses", ""},
		"config/rbac/user_roles.yaml":                  {withResources, "# make generate: policies of tenants", "# make generate: policies"},
		"config/webhook/configuration/validating.yaml": {withResources, "# make generate: kinds", "# generated: kinds"},
		"hack/gen-chart/objects/uninstall_check.yaml":  {withResources, "# make generate: policies with a finalizer", ""},
		"README.md": {withRows, "| policies with a finalizer", "| those with a finalizer"},
	} {
		text, err := of.fill(root, name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte(of.comment)) {
			t.Fatalf("%s has no %q", name, of.comment)
		}
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), of.comment, of.other, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := of.fill(dir, name); err == nil || !strings.Contains(err.Error(), "put the comments back") {
			t.Errorf("%s with %q for %q: got %v", name, of.other, of.comment, err)
		}
	}
}
