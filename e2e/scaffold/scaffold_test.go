// Package scaffold tests make scaffold in copies of the repository, and that kubebuilder leads there.
package scaffold

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// root of the repository.
var root = filepath.Join("..", "..")

var (
	// place is where copies lie, one after the other: what compilers and linters made of one directory is of no use to them in another.
	place string
	// scaffold is built once, by TestMain.
	scaffold string
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		cache, err := os.UserCacheDir()
		if err != nil {
			panic(err)
		}
		dir := filepath.Join(cache, "autohealer", "scaffold")
		free, err := lock(dir)
		if err != nil {
			panic(err)
		}
		defer free()
		place = filepath.Join(dir, "autohealer")
		defer func() { _ = os.RemoveAll(place) }() // what stays there is in the way of nobody
		scaffold = filepath.Join(dir, "scaffold")
		build := exec.Command("go", "build", "-o", scaffold, ".")
		build.Dir = filepath.Join(root, "hack", "scaffold")
		if output, err := build.CombinedOutput(); err != nil {
			panic(string(output))
		}
		return m.Run()
	}())
}

// lock makes a directory this process's own, until it ends at the latest. It waits while another clone has it.
func lock(dir string) (free func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.Create(filepath.Join(dir, ".lock"))
	if err != nil {
		return nil, err
	}
	return func() { _ = file.Close() }, syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
}

// tree is a copy of the repository.
type tree struct {
	*testing.T
	dir string
}

// newTree copies what git has, and what it would have. There is one at a time.
func newTree(t *testing.T) tree {
	c := tree{t, place}
	listed := exec.Command("git", "ls-files", "-co", "--exclude-standard")
	listed.Dir = root
	files, err := listed.Output()
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.RemoveAll(c.dir)).To(Succeed())
	for name := range strings.Lines(string(files)) {
		name = strings.TrimSpace(name)
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, and not committed yet
		}
		g.Expect(err).NotTo(HaveOccurred())
		info, err := os.Stat(filepath.Join(root, name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(c.dir, name)), 0o755)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(c.dir, name), text, info.Mode())).To(Succeed())
		g.Expect(os.Chtimes(filepath.Join(c.dir, name), info.ModTime(), info.ModTime())).To(Succeed()) // make builds no tool anew that is newer
	}
	c.run("git", "init", "-q")
	c.commit()
	return c
}

// in runs a command there.
func (c tree) in(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(c.Context(), name, args...)
	cmd.Dir = c.dir
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// run runs a command there that must succeed.
func (c tree) run(name string, args ...string) string {
	c.Helper()
	output, err := c.in(name, args...)
	NewWithT(c.T).Expect(err).NotTo(HaveOccurred(), "%s %s\n%s", name, strings.Join(args, " "), output)
	return output
}

func (c tree) commit() {
	c.Helper()
	c.run("git", "add", "-A")
	c.run("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "a")
}

// link puts binaries of this checkout there. Make builds tools that are missing.
func (c tree) link(names ...string) {
	c.Helper()
	g := NewWithT(c.T)
	binaries, err := filepath.Abs(filepath.Join(root, "bin"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.MkdirAll(filepath.Join(c.dir, "bin"), 0o755)).To(Succeed())
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(binaries, name)); err == nil {
			g.Expect(os.Symlink(filepath.Join(binaries, name), filepath.Join(c.dir, "bin", name))).To(Succeed())
		}
	}
}

// unchanged: not a byte was written.
func (c tree) unchanged() {
	c.Helper()
	NewWithT(c.T).Expect(c.run("git", "status", "--porcelain")).To(BeEmpty())
}

func (c tree) write(name, text string) {
	c.Helper()
	path := filepath.Join(c.dir, name)
	g := NewWithT(c.T)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o755)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(text), 0o600)).To(Succeed())
}

func TestWhatCanNotBecomeAKindIsRefusedAndNothingIsWritten(t *testing.T) {
	c := newTree(t)
	c.write("controllers/halfdone/add.go", "package halfdone\n")
	c.write("docs/concepts/halfdones.md", "# HalfDones\n")
	c.write("config/policy/generated.yaml", "{}\n")
	c.write("crds/autohealer.resourcestack.com_generateds.yaml", "{}\n")
	c.commit()
	for _, test := range []struct{ kind, scope, says string }{
		{"", "Cluster", "write make scaffold KIND=Foo SCOPE=Cluster|Namespaced"},
		{"Foo", "", "write make scaffold KIND=Foo SCOPE=Cluster|Namespaced"},
		{"foo", "Cluster", "KIND=foo is no name of a kind"},
		{"Foo-Bar", "Cluster", "KIND=Foo-Bar is no name of a kind"},
		{"../Foo", "Cluster", "KIND=../Foo is no name of a kind"},
		{"Foo", "cluster", "SCOPE=cluster is neither Cluster nor Namespaced"},
		{"FooList", "Cluster", "KIND=FooList would be taken for the list of another kind"},
		{"Func", "Cluster", "KIND=Func would have packages and files of the name func"},
		{"Error", "Cluster", "KIND=Error would have packages and files of the name error"},
		{"String", "Cluster", "KIND=String would have packages and files of the name string"},
		{"Main", "Cluster", "KIND=Main would have packages and files of the name main"},
		{"Internal", "Cluster", "KIND=Internal would have packages and files of the name internal"},
		{"Vendor", "Cluster", "KIND=Vendor would have packages and files of the name vendor"},
		{"Testdata", "Cluster", "KIND=Testdata would have packages and files of the name testdata"},
		{"Documentation", "Cluster", "KIND=Documentation would have packages and files of the name documentation"},
		{"Kustomization", "Cluster", "KIND=Kustomization would have packages and files of the name kustomization"},
		{"Outliers", "Cluster", "KIND=Outliers: its plural is irregular"},
		{"Envoys", "Cluster", "KIND=Envoys: its plural is irregular"},
		{"Opts", "Cluster", "KIND=Opts: its plural is irregular"},
		{"Mouse", "Cluster", "KIND=Mouse: its plural is irregular, mouses or mice"},
		{"ConditionSet", "Cluster", "there is a kind ConditionSet: PROJECT has it"},
		{"Conditionset", "Cluster", "there is a kind Conditionset: PROJECT has it"},
		{"Breaker", "Cluster", "apis/v1alpha1 has types of these names: Breaker ("},
		{"HalfDone", "Cluster", "are there already: controllers/halfdone, docs/concepts/halfdones.md; remove them, or choose another name"},
		{"Generated", "Cluster", "are there already: config/policy/generated.yaml, crds/autohealer.resourcestack.com_generateds.yaml; "},
		{"Node", "Cluster", "are there already: e2e/node; "},
	} {
		output, err := c.in(scaffold, "--kind="+test.kind, "--scope="+test.scope)
		g := NewWithT(t)
		g.Expect(err).To(HaveOccurred(), "%s %s", test.kind, test.scope)
		g.Expect(output).To(ContainSubstring(test.says))
		c.unchanged()
	}
}

// TestAKindMayHaveTheNameOfWhatIsImportedWhereItIsPut: one of the name of an import, of a variable or of an argument there.
func TestAKindMayHaveTheNameOfWhatIsImportedWhereItIsPut(t *testing.T) {
	c := newTree(t)
	all := []string{"Guard", "Clock", "Actuate", "Kubeconfig", "Policy", "Common", "Mgr", "Stored"}
	for _, kind := range all {
		c.run(scaffold, "--kind="+kind, "--scope=Cluster")
	}
	c.run("go", "build", "-C", "hack/tools", "-o", "../../bin/controller-gen", "sigs.k8s.io/controller-tools/cmd/controller-gen")
	c.run("bin/controller-gen", "object", "paths=./apis/...")
	c.run("go", "build", "./controllers", "./internal/kinds")
}

func TestAFileWithoutItsMarkerHasNothingWritten(t *testing.T) {
	c := newTree(t)
	c.run("sed", "-i", "/+kubebuilder:scaffold:kinds/d", "controllers/add.go")
	c.commit()
	output, err := c.in(scaffold, "--kind=Foo", "--scope=Cluster")
	g := NewWithT(t)
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring(`controllers/add.go has no line "// +kubebuilder:scaffold:kinds"`))
	c.unchanged()
}

// TestKubebuilderPointsToTheScaffold: its own layout is another one, and half of it would be no kind.
func TestKubebuilderPointsToTheScaffold(t *testing.T) {
	if testing.Short() {
		t.Skip("builds kubebuilder")
	}
	c := newTree(t)
	bin := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install", "sigs.k8s.io/kubebuilder/v4@v4.16.0")
	install.Dir = bin // outside any module
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=-mod=mod")
	output, err := install.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(output))
	for _, args := range [][]string{
		{"create", "api", "--group=autohealer", "--version=v1alpha1", "--kind=Foo", "--resource", "--controller", "--make=false"},
		{"create", "api", "--group=autohealer", "--version=v1alpha1", "--kind=Foo", "--resource", "--controller"},
		{"create", "webhook", "--group=autohealer", "--version=v1alpha1", "--kind=ConditionSet", "--programmatic-validation"},
		{"create", "webhook", "--group=autohealer", "--version=v1alpha1", "--kind=ConditionSet", "--defaulting", "--force"},
		{"edit", "--multigroup"},
	} {
		says, err := c.in(filepath.Join(bin, "kubebuilder"), args...)
		g := NewWithT(t)
		g.Expect(err).To(HaveOccurred(), "%v", args)
		g.Expect(says).To(ContainSubstring("run-make-scaffold.see-docs-development-adding-a-kind.md"), "%v", args)
		c.unchanged()
	}
}

// TestANewKindWorksBeforeALineOfItIsWritten scaffolds a kind of each scope, has all checked that needs no cluster, and has their
// end-to-end tests and those of all kinds run, with the binaries of this checkout's control plane.
func TestANewKindWorksBeforeALineOfItIsWritten(t *testing.T) {
	if os.Getenv("AUTOHEALER_FULL_LENGTH") == "" {
		t.Skip("takes several minutes: make test-full")
	}
	c := newTree(t)
	c.link("controller-gen", "crd-ref-docs", "golangci-lint")
	c.run("make", "scaffold", "KIND=Foo", "SCOPE=Cluster")
	c.run("make", "scaffold", "KIND=BarPolicy", "SCOPE=Namespaced")
	c.commit()
	roles, err := os.ReadFile(filepath.Join(c.dir, "config", "rbac", "user_roles.yaml"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(string(roles)).To(ContainSubstring("  resources: [outlierpolicies, probeconfigs, weederconfigs] # make generate: policies of tenants\n"), "nobody gave it to namespaces' admins")
	c.run("make", "verify")
	c.unchanged()
	c.link("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
	c.run("make", "build")
	test := func(args ...string) { // make verify has vetted them; half of a linker's time goes into what debuggers read
		t.Helper()
		c.run("go", append([]string{"test", "-vet=off", "-ldflags=-linkmode=internal -s -w", "-timeout=20m"}, args...)...)
	}
	test("./internal/guard/...", "./internal/kinds/...", "./internal/cli/check", "./internal/cli/soundness", "./config", "./internal/domain/foo", "./internal/domain/barpolicy")
	test("-count=1", "./e2e/foo", "./e2e/barpolicy")
	test("-count=1", "./e2e/admission", "-ginkgo.focus=Of every kind|kustomization")
	test("-count=1", "./e2e/differential")
}
