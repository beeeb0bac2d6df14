package differential

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/internal/guard"
)

var _ = Describe("API server, webhook, engine and CLI", Ordered, ContinueOnFailure, func() {
	var (
		doors  *gates
		engine *guard.Guard
		all    []*verdicts
	)
	each := func(ctx context.Context, what string, of func(*subject) bool, do func(v *verdicts)) {
		By(what)
		heartbeats(ctx)
		for i, v := range all {
			if of(v.subject) {
				do(v)
			}
			if (i+1)%1000 == 0 {
				GinkgoWriter.Printf("%d of %d objects\n", i+1, len(all))
			}
		}
	}
	every := func(*subject) bool { return true }
	repeats := func(s *subject) bool { return s.unfit != "" }

	BeforeAll(func(ctx SpecContext) {
		var err error
		engine, err = guard.New(guard.Options{OwnNamespace: "autohealer-system"})
		Expect(err).NotTo(HaveOccurred())
		doors = installed(ctx)
		all = population(ctx, doors, engine)
	}, patience)

	It("are asked", func(ctx SpecContext) {
		each(ctx, "asking engine and API server", every, func(v *verdicts) {
			v.engine = v.byEngine(ctx, engine)
			v.apply = v.byApply(ctx)
		})
		doors.with(ctx, true, false)
		each(ctx, "leaving the webhook out", every, func(v *verdicts) { v.policy = v.byServer(ctx) })
		relaxAll(ctx, true)
		each(ctx, "leaving the webhook out, behind a relaxed schema", repeats, func(v *verdicts) { v.relaxedPolicy = v.byServer(ctx) })
		doors.with(ctx, false, true)
		each(ctx, "leaving the policies out, behind a relaxed schema", repeats, func(v *verdicts) { v.relaxedWebhook = v.byServer(ctx) })
		relaxAll(ctx, false)
		By("leaving the policies out, and asking the CLI")
		for batch := range slices.Chunk(all, 500) { // facts grow old
			heartbeats(ctx)
			facts := filepath.Join(h.Dir, "facts.yaml")
			Expect(os.WriteFile(facts, plugin(ctx, "facts", "export", "--kubeconfig", h.Kubeconfig), 0o600)).To(Succeed())
			objects := make([]*one, len(batch))
			for i, v := range batch {
				objects[i] = v.one
				v.webhook = v.byServer(ctx)
			}
			informed, offline := byCLI(ctx, objects, "--facts", facts), byCLI(ctx, objects)
			for i, v := range batch {
				v.informed, v.offline, v.amongOthers = informed[i], offline[i], v.kind == "Guardrail"
			}
			askAlone(ctx, batch, "--facts", facts)
			GinkgoWriter.Printf("%d more objects\n", len(batch))
		}
	}, patience)

	It("know the same schemas", func() { agree(all, (*verdicts).schemas) })
	It("say the same by every portable rule", func() { agree(all, (*verdicts).portable) })
	It("say the same by every rule where facts are known, webhook and CLI", func() { agree(all, (*verdicts).whole) })
	It("say in an apply that isn't done what policy or webhook would say", func() { agree(all, (*verdicts).applied) })
	It("were asked about every portable rule, kept and broken", func() { report(engine, all) })

	It("were asked about every kind", func() {
		kinds := make([]string, len(subjects))
		for i, s := range subjects {
			kinds[i] = s.kind
		}
		Expect(kinds).To(ConsistOf(engine.Kinds()))
	})

	It("have no doubt about the types in the policies", func(ctx SpecContext) {
		doors.with(ctx, true, true)
		for _, s := range subjects {
			policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
			Eventually(func(g Gomega, ctx context.Context) {
				g.Expect(h.Client.Get(ctx, client.ObjectKey{Name: "autohealer-" + strings.ToLower(s.kind)}, policy)).To(Succeed())
				g.Expect(policy.Status.TypeChecking).NotTo(BeNil())
				g.Expect(policy.Status.TypeChecking.ExpressionWarnings).To(BeEmpty())
			}).WithContext(ctx).Should(Succeed(), s.kind)
		}
	}, patience)
})

// askedAlone is how many Guardrails of a batch are asked about by themselves, in half a second each.
const askedAlone = 10

// askAlone asks the CLI about Guardrails one by one: those that come together judge each other.
func askAlone(ctx context.Context, batch []*verdicts, flags ...string) {
	GinkgoHelper()
	n := 0
	for _, v := range batch {
		if v.amongOthers && n < askedAlone {
			v.informed, v.amongOthers = byCLI(ctx, []*one{v.one}, flags...)[0], false
			n++
		}
	}
}

func relaxAll(ctx context.Context, relaxed bool) {
	GinkgoHelper()
	for _, s := range subjects {
		if s.unfit != "" {
			s.schema(ctx, relaxed)
		}
	}
}

// population stores objects, bad ones too, as from before there were any rules, and makes those to be judged.
func population(ctx context.Context, doors *gates, engine *guard.Guard) []*verdicts {
	GinkgoHelper()
	doors.with(ctx, false, false)
	relaxAll(ctx, true)
	var all []*verdicts
	for _, s := range subjects {
		builtin := map[string]guard.RuleInfo{}
		for _, rule := range engine.Rules(s.kind) {
			builtin[rule.ID] = rule
		}
		authored, stored := s.store(ctx, 10+objectsAKind/20)
		for i := range objectsAKind {
			v := &verdicts{one: &one{subject: s}, rules: builtin}
			if i%3 == 0 {
				which := random.IntN(len(authored))
				v.old, v.object = stored[which], s.mutate(authored[which])
			} else {
				v.object = s.object(fmt.Sprintf("new-%d", i))
			}
			all = append(all, v)
		}
	}
	relaxAll(ctx, false)
	doors.with(ctx, true, true)
	for _, s := range subjects {
		s.seen(ctx)
	}
	return all
}

// store stores n objects, and gives them as they were written and as they are stored.
func (s *subject) store(ctx context.Context, n int) (authored, stored []*unstructured.Unstructured) {
	GinkgoHelper()
	names := s.names
	s.names = nil // those are for what is judged
	defer func() { s.names = names }()
	for i := 0; len(stored) < n; i++ {
		object := s.object(fmt.Sprintf("stored-%d", i))
		if s.tame != nil {
			s.tame(object.Object["spec"].(map[string]any))
		}
		created, err := s.resource(object.GetNamespace()).Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager})
		if isInvalid(err) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		authored, stored = append(authored, object), append(stored, created)
	}
	return authored, stored
}

// seen waits until the manager knows what is stored: it has said of each object whether it accepts it.
func (s *subject) seen(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega, ctx context.Context) {
		list, err := s.resource(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		for _, object := range list.Items {
			conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
			g.Expect(conditions).NotTo(BeEmpty(), "%s %s", s.kind, object.GetName())
		}
	}).WithContext(ctx).Should(Succeed())
}
