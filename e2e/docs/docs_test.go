// Package docs follows the pages of the documentation as a new user does on the playground: each from top to bottom, with nothing but
// what the page says.
package docs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/harness/suite"
	"github.com/resourcestack/autohealer/e2e/page"
	"github.com/resourcestack/autohealer/e2e/playground"
)

const (
	root     = "../.."
	specTime = 4 * time.Minute
)

var h *harness.Harness

func TestDocs(t *testing.T) {
	suite.Run(t, "Documentation")
}

var _ = suite.OfFailures(func() *harness.Harness { return h })

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	var err error
	h, err = harness.Start(ctx, harness.Options{Out: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(h.Stop()).To(Succeed()) })
	Expect(h.StartManager(ctx)).To(Succeed())
	_, err = playground.Prepare(ctx, h)
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(specTime))

// runbooks are followed by e2e/operations/runbooks, which breaks what they mend.
const runbooks = "docs/runbooks/"

// pages are all of the repository.
func pages() (all []*page.Page, err error) {
	for _, dir := range []string{".", "config", "docs", "hack"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case dir == "." && entry.IsDir() && path != root:
				return fs.SkipDir
			case filepath.Ext(path) != ".md":
				return nil
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			p, err := page.Read(root, filepath.ToSlash(name))
			if err == nil {
				all = append(all, p)
			}
			return err
		}))
	}
	return all, err
}

// followed is whether there is something on a page for a reader to do, and nobody else does it.
func followed(p *page.Page) bool {
	return p.Skipped == "" && !strings.HasPrefix(p.Name, runbooks) &&
		slices.ContainsFunc(p.Blocks, func(b page.Block) bool { return b.Script != "" || b.Commands != nil && b.Skipped == "" })
}

var _ = Describe("Followed from top to bottom, a page does what it says and leaves nothing behind:", func() {
	all, err := pages()
	It("they can be read", func() { Expect(err).NotTo(HaveOccurred()) })
	for _, p := range all {
		if !followed(p) {
			continue
		}
		It(p.Name, func(ctx SpecContext) {
			before, err := state(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(restore, before)
			checkout := GinkgoT().TempDir()
			Expect(page.Checkout(h.Root(), checkout)).To(Succeed())
			reader := page.Reader{Dir: checkout, Patience: harness.Within, Env: []string{
				"KUBECONFIG=" + h.Kubeconfig, "PATH=" + h.BinDir + ":" + os.Getenv("PATH"), "KUBECACHEDIR=" + filepath.Join(h.Dir, "reader-cache"),
			}}
			Expect(reader.Follow(ctx, p)).To(Succeed())
			Eventually(changed).WithContext(ctx).WithArguments(before).Should(BeEmpty(), "the page leaves something otherwise than it found it")
		}, NodeTimeout(specTime))
	}
})

// state is what a page finds, and has to leave so: policies and what else it may make, and what is wrong with nodes.
func state(ctx context.Context) ([]string, error) {
	out, err := h.Kubectl(ctx, "get", "conditionsets,guardrailexceptions,guardrails,healthcheckregistrations,outlierpolicies,probeconfigs,weederconfigs,namespaces,customresourcedefinitions,deployments,statefulsets,services", "-A", "--no-headers",
		"-o", "custom-columns=KIND:.kind,NAME:.metadata.name,NAMESPACE:.metadata.namespace,READY:.status.readyReplicas")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(out) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	var nodes corev1.NodeList
	err = h.Client.List(ctx, &nodes)
	for _, n := range nodes.Items {
		for key := range n.Annotations {
			if key != "autohealer.resourcestack.com/owned-taints" { // stays for an hour, for the pace of evictions
				all = append(all, "annotation "+key+" of "+n.Name)
			}
		}
		for _, t := range n.Spec.Taints {
			all = append(all, "taint "+t.Key+" of "+n.Name)
		}
		for _, c := range n.Status.Conditions {
			if c.Status == corev1.ConditionTrue {
				all = append(all, "condition "+string(c.Type)+" of "+n.Name)
			}
		}
	}
	return all, err
}

// changed is what is there now and wasn't before, or the other way round.
func changed(ctx context.Context, before []string) ([]string, error) {
	after, err := state(ctx)
	return sets.List(sets.New(after...).SymmetricDifference(sets.New(before...))), err
}

// restore makes good what a page that failed has left, so that the next one finds what it expects.
func restore(ctx SpecContext, before []string) {
	if !CurrentSpecReport().Failed() {
		return
	}
	Expect(h.Install(ctx)).To(Succeed(), "else the webhook may be gone")
	after, err := state(ctx)
	Expect(err).NotTo(HaveOccurred())
	for _, line := range after {
		if slices.Contains(before, line) {
			continue
		}
		cells := strings.Fields(line)
		object := strings.Join(cells[:3], " ")
		switch {
		case cells[0] == "annotation":
			_, err = h.Kubectl(ctx, "annotate", "node", cells[3], cells[1]+"-")
		case cells[0] == "condition":
			err = h.SetCondition(ctx, cells[3], corev1.NodeConditionType(cells[1]), corev1.ConditionFalse, cluster.ConditionOptions{Reason: "NoProblem"})
		case cells[0] == "taint": // goes with its policy
		case !slices.ContainsFunc(before, func(was string) bool { return strings.HasPrefix(was, object+" ") }):
			_, err = h.Kubectl(ctx, "delete", cells[0], cells[1], "-n", strings.ReplaceAll(cells[2], "<none>", ""), "--ignore-not-found")
		}
		Expect(err).NotTo(HaveOccurred())
	}
}
