package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/internal/cli/check"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// specimen is what holds for every kind is shown with: specs from its catalogue's cases.
type specimen struct {
	*kinds.Kind
	kind, resource, namespace string
	// doubtful is admitted, with warnings where warns; the policy refuses portable, and the webhook too; factual is for the webhook alone,
	// where the kind has anything of the kind.
	doubtful, portable, factual string
	warns                       bool
	// changed is portable, and as bad, in other words.
	changed string
}

var specimens = specimensOf()

func specimensOf() []specimen {
	checker, err := check.New(check.Options{Options: guard.Options{Authorizer: allowsAll{}}})
	if err != nil {
		panic(err)
	}
	all := make([]specimen, len(kinds.All))
	for i, k := range kinds.All {
		all[i] = specimen{Kind: k, kind: k.Name(), resource: k.Plural()}
		if k.Namespaced {
			all[i].namespace = harness.Namespace
		}
		for _, rule := range checker.Guard().Rules(k.Name()) {
			for _, test := range rule.Tests {
				all[i].take(checker, guard.Specimen{Kind: k.Name(), Rule: rule.ID, Test: test})
			}
		}
		if all[i].doubtful == "" {
			admitted, _, err := guard.Specimens(k.Name())
			if err != nil {
				panic(err)
			}
			all[i].doubtful = all[i].spec(admitted)
		}
		if all[i].factual == "" {
			all[i].factual = all[i].portable
		}
	}
	return all
}

// allowsAll is a cluster in which every account may do everything.
type allowsAll struct{}

func (allowsAll) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionAllow, "", nil
}

// spec of a case. A policy that is stored as it is only observes: others' nodes and pods aren't its business.
func (s *specimen) spec(of guard.Specimen) string {
	object, err := of.Made(time.Now())
	if err != nil {
		panic(err)
	}
	spec := object.Object["spec"].(map[string]any)
	if !s.RulesOver && of.Expect != guard.ExpectDeny {
		spec["mode"] = "Observe"
	}
	text, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// take uses a case for what it shows without a cluster.
func (s *specimen) take(checker *check.Checker, of guard.Specimen) {
	if of.OldObject != nil {
		return
	}
	spec := s.spec(of)
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(s.manifest("any", spec)), &object); err != nil {
		panic(err)
	}
	said := checker.Object(context.Background(), object, nil)
	if said.Stored == nil {
		return // its schema refuses it
	}
	rules := map[string]guard.RuleInfo{}
	for _, rule := range checker.Guard().Rules(s.kind) {
		rules[rule.ID] = rule
	}
	refused, portable := 0, 0
	for _, v := range said.Violations {
		if aTime.MatchString(v.Message) {
			return // it tells when it was made, and twice are two times
		}
		if v.Severity == guard.Deny {
			refused++
			if rules[v.Rule].Portable {
				portable++
			}
		}
	}
	switch {
	case refused == 0 && len(said.Violations) > 0 && s.doubtful == "":
		s.doubtful, s.warns = spec, true
	case portable > 0 && s.portable == "":
		s.portable = spec
	case portable > 0 && s.changed == "" && spec != s.portable:
		s.changed = spec
	case refused > 0 && portable == 0 && s.factual == "":
		s.factual = spec
	}
}

var aTime = regexp.MustCompile(`\d\d:\d\d:\d\d`)

// specimenOf is that of a kind.
func specimenOf(kind string) *specimen {
	return &specimens[slices.IndexFunc(specimens, func(s specimen) bool { return s.kind == kind })]
}

// each runs f for every kind.
func each(f func(s *specimen)) {
	GinkgoHelper()
	for i := range specimens {
		By(specimens[i].kind)
		f(&specimens[i])
	}
}

// manifest is an object of the kind, as a user writes it.
func (s *specimen) manifest(name, spec string) string {
	metadata := "{name: " + name + "}"
	if s.namespace != "" {
		metadata = "{name: " + name + ", namespace: " + s.namespace + "}"
	}
	return fmt.Sprintf("apiVersion: autohealer.resourcestack.com/v1alpha1\nkind: %s\nmetadata: %s\nspec: %s\n", s.kind, metadata, spec)
}

func (s *specimen) client() dynamic.ResourceInterface {
	GinkgoHelper()
	client, err := dynamic.NewForConfig(h.Config)
	Expect(err).NotTo(HaveOccurred())
	resource := client.Resource(v1alpha1.GroupVersion.WithResource(s.resource))
	if s.namespace != "" {
		return resource.Namespace(s.namespace)
	}
	return resource
}

// in are kubectl's arguments for where the object is.
func (s *specimen) in(args ...string) []string {
	if s.namespace != "" {
		args = append(args, "--namespace="+s.namespace)
	}
	return args
}

const gitOps = "argocd-controller"

// apply are kubectl's arguments as GitOps tools have them.
func apply(path string, more ...string) []string {
	return append([]string{"apply", "--server-side", "--force-conflicts", "--field-manager=" + gitOps, "-f", path}, more...)
}

// storeBad stores an object that a rule refuses, as if from before there was that rule, with a finalizer of somebody else.
func (s *specimen) storeBad(ctx context.Context, name string) {
	GinkgoHelper()
	object := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(s.manifest(name, s.portable)), &object.Object)).To(Succeed())
	object.SetFinalizers([]string{"example.com/hold"})
	removedForGood(s, name)
	Eventually(ctx, func(ctx context.Context) error { // a policy may be there for a moment after its deletion
		_, err := s.client().Apply(ctx, name, object, metav1.ApplyOptions{FieldManager: gitOps})
		return err
	}).Should(Succeed())
}

// removedForGood deletes an object when the spec ends, whatever finalizers it has.
func removedForGood(s *specimen, name string) {
	DeferCleanup(func(ctx context.Context) {
		_ = s.client().Delete(ctx, name, metav1.DeleteOptions{})
		Eventually(ctx, func(ctx context.Context) bool {
			_, _ = kubectl(ctx, s.in("patch", s.resource, name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)...)
			return s.gone(ctx, name)
		}).Should(BeTrue(), "%s %s stays", s.kind, name)
	})
}

func (s *specimen) gone(ctx context.Context, name string) bool {
	_, err := s.client().Get(ctx, name, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

var _ = Describe("Of every kind,", Label("versions"), func() {
	It("there is a specimen", func() {
		rules, err := guard.New(guard.Options{})
		Expect(err).NotTo(HaveOccurred())
		names, warn, factual := []string{}, 0, 0
		for _, s := range specimens {
			names = append(names, s.kind)
			Expect(s.portable).NotTo(BeEmpty(), s.kind)
			Expect(s.changed).NotTo(BeEmpty(), s.kind)
			if s.warns {
				warn++
			}
			if s.factual != s.portable {
				factual++
			}
		}
		Expect(names).To(ConsistOf(rules.Kinds()))
		Expect(warn).To(BeNumerically(">=", 6), "kinds with an object that is admitted with warnings, wherever it is")
		Expect(factual).To(BeNumerically(">=", 5), "kinds with an object that only the webhook refuses")
	})

	It("an object gets in a dry run, word for word, what it gets in earnest", func(ctx SpecContext) {
		warned := 0
		each(func(s *specimen) {
			for _, spec := range []string{s.portable, s.factual} {
				path := file(s.manifest("wet-and-dry", spec))
				for _, verb := range [][]string{{"create", "-f", path}, apply(path)} {
					wet := refused(ctx, verb...)
					Expect(wet).To(MatchRegexp(`\b%s/[a-z-]+: `, strings.ToLower(s.kind)))
					Expect(refused(ctx, append(verb, "--dry-run=server")...)).To(Equal(wet))
					Expect(s.gone(ctx, "wet-and-dry")).To(BeTrue())
				}
			}
			path := file(s.manifest("wet-and-dry", s.doubtful))
			dry := accepted(ctx, "create", "--dry-run=server", "-f", path)
			Expect(s.gone(ctx, "wet-and-dry")).To(BeTrue(), "a dry run stores nothing")
			removedForGood(s, "wet-and-dry")
			wet := accepted(ctx, "create", "-f", path)
			if s.warns {
				Expect(warnings(wet)).NotTo(BeEmpty())
			}
			if len(warnings(wet)) > 0 {
				warned++
			}
			Expect(dry).To(Equal(wet + " (server dry run)"))
		})
		Expect(warned).To(BeNumerically(">=", 7), "kinds with an object that is admitted with warnings here")
	}, NodeTimeout(specTime))

	It("what is stored and refused meanwhile passes the dry run of a GitOps tool as long as nobody changes it", func(ctx SpecContext) {
		withoutGates(ctx, func() { each(func(s *specimen) { s.storeBad(ctx, "unchanged") }) })
		unchanged := func(s *specimen) {
			path := file(s.manifest("unchanged", s.portable))
			Expect(accepted(ctx, apply(path, "--dry-run=server")...)).To(HaveSuffix("serverside-applied (server dry run)"))
			Expect(accepted(ctx, apply(path)...)).To(HaveSuffix("serverside-applied"))
		}
		each(func(s *specimen) {
			fresh := file(s.manifest("fresh", s.portable))
			Eventually(ctx, func(ctx context.Context) error { // the policies are in force again
				_, err := kubectl(ctx, apply(fresh, "--dry-run=server")...)
				return err
			}).ShouldNot(Succeed())
			unchanged(s)
			Expect(refused(ctx, apply(file(s.manifest("unchanged", s.changed)), "--dry-run=server")...)).To(ContainSubstring("denied"))
		})
		By("asking while no manager serves the webhook")
		withoutManager(ctx, func() { each(unchanged) })
	}, NodeTimeout(specTime))

	It("what is bad can be deleted and let go while no manager serves the webhook", func(ctx SpecContext) {
		withoutGates(ctx, func() { each(func(s *specimen) { s.storeBad(ctx, "bad") }) })
		withoutManager(ctx, func() {
			each(func(s *specimen) {
				accepted(ctx, s.in("delete", s.resource, "bad", "--wait=false")...)
				Expect(s.gone(ctx, "bad")).To(BeFalse(), "a finalizer holds it")
				accepted(ctx, s.in("patch", s.resource, "bad", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)...)
				Expect(s.gone(ctx, "bad")).To(BeTrue())
			})
		})
	}, NodeTimeout(specTime))
})

var _ = Describe("A rule that refuses everything", func() {
	spec := `{rules: [{name: r, kinds: [` + strings.Join(kinds.Names(kinds.All), ", ") + `], expression: object.metadata.name == 'nobody'}]}`
	rail := specimenOf("Guardrail")

	It("can be mended, and deleted with the manager and without", func(ctx SpecContext) {
		path := file(rail.manifest("refuses-all", spec))
		store := func() {
			GinkgoHelper()
			removedForGood(rail, "refuses-all")
			accepted(ctx, "apply", "-f", path)
			each(func(s *specimen) { // Guardrails too: this rule is about itself
				Eventually(ctx, func(ctx context.Context) string {
					output, _ := kubectl(ctx, "create", "--dry-run=server", "-f", file(s.manifest("any", s.doubtful)))
					return output
				}).Should(ContainSubstring("refuses-all/r: "))
			})
		}
		store()
		accepted(ctx, "patch", "guardrail", "refuses-all", "--type=merge", "-p", `{"spec":{"rules":[]}}`)
		Eventually(ctx, tryingOut(factual)).Should(HaveSuffix("created"))
		accepted(ctx, "delete", "guardrail", "refuses-all")

		store()
		accepted(ctx, "delete", "guardrail", "refuses-all")
		Eventually(ctx, tryingOut(factual)).Should(HaveSuffix("created"))

		store()
		withoutManager(ctx, func() { accepted(ctx, "delete", "guardrail", "refuses-all") })
	}, NodeTimeout(specTime))
})
