package guardrails

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/harness"
)

// newRail is a Guardrail with a spec in YAML.
func newRail(name, spec string) *v1alpha1.Guardrail {
	GinkgoHelper()
	rail := &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: name}}
	Expect(yaml.UnmarshalStrict([]byte(spec), &rail.Spec)).To(Succeed())
	return rail
}

// put stores a Guardrail, in place of the one with its name, and waits until it is in force. It goes with the spec.
func put(ctx context.Context, name, spec string) *v1alpha1.Guardrail {
	GinkgoHelper()
	rail := newRail(name, spec)
	store(ctx, rail)
	inForce(ctx, name)
	return rail
}

// store stores a Guardrail, in place of the one with its name.
func store(ctx context.Context, rail *v1alpha1.Guardrail) {
	GinkgoHelper()
	stored, err := readRail(ctx, rail.Name)
	if apierrors.IsNotFound(err) {
		Expect(w.Client.Create(ctx, rail)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { drop(ctx, rail.Name) })
		return
	}
	Expect(err).NotTo(HaveOccurred())
	stored.Spec = rail.Spec
	Expect(w.Client.Update(ctx, stored)).To(Succeed())
}

// drop deletes a Guardrail.
func drop(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(w.Client.Delete(ctx, &v1alpha1.Guardrail{ObjectMeta: metav1.ObjectMeta{Name: name}}))).To(Succeed())
}

func readRail(ctx context.Context, name string) (*v1alpha1.Guardrail, error) {
	rail := &v1alpha1.Guardrail{}
	return rail, w.Client.Get(ctx, types.NamespacedName{Name: name}, rail)
}

// inForce waits until the manager has told what became of a Guardrail.
func inForce(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		rail, err := readRail(ctx, name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(rail.Status.ObservedGeneration).To(Equal(rail.Generation))
	}).Should(Succeed(), "Guardrail %s should be in force", name)
}

// says gives a condition of an object as "True Reason: message"; "" when it isn't there, or of an older generation.
func says(object client.Object, conditions []metav1.Condition, conditionType string) string {
	c := meta.FindStatusCondition(conditions, conditionType)
	if c == nil || c.ObservedGeneration != object.GetGeneration() {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

func railSays(ctx context.Context, name, conditionType string) func() (string, error) {
	return func() (string, error) {
		rail, err := readRail(ctx, name)
		return says(rail, rail.Status.Conditions, conditionType), err
	}
}

func setSays(ctx context.Context, name, conditionType string) func() (string, error) {
	return func() (string, error) {
		set := &v1alpha1.ConditionSet{}
		err := w.Client.Get(ctx, types.NamespacedName{Name: name}, set)
		return says(set, set.Status.Conditions, conditionType), err
	}
}

// events about an object, as "reason: note".
func events(ctx context.Context, name string) func() ([]string, error) {
	return func() ([]string, error) {
		var list eventsv1.EventList
		if err := w.Client.List(ctx, &list); err != nil {
			return nil, err
		}
		var all []string
		for _, e := range list.Items {
			if e.Regarding.Name == name {
				all = append(all, e.Reason+": "+e.Note)
			}
		}
		return all, nil
	}
}

// answer is what the API server says of an object: warnings in order, and the refusal.
type answer struct {
	warnings []string
	refusal  string
}

// HandleWarningHeader takes one warning in.
func (a *answer) HandleWarningHeader(_ int, _ string, text string) {
	a.warnings = append(a.warnings, text)
}

// create asks to store an object, and gives the answer.
func create(ctx context.Context, object client.Object, options ...client.CreateOption) answer {
	return ask(func(c client.Client) error { return c.Create(ctx, object.DeepCopyObject().(client.Object), options...) })
}

// ask makes one request with a client of its own, so that nobody else's warnings are heard.
func ask(request func(client.Client) error) answer {
	GinkgoHelper()
	heard := &answer{}
	config := rest.CopyConfig(w.Config)
	config.WarningHandler = heard
	c, err := client.New(config, client.Options{Scheme: harness.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	if err := request(c); err != nil {
		heard.refusal = err.Error()
	}
	return *heard
}

// rule is a Guardrail's spec with one rule over ConditionSets.
func rule(name, expression string, more ...string) string {
	fields := slices.Concat([]string{"name: " + name, "kinds: [ConditionSet]", "expression: " + fmt.Sprintf("%q", expression)}, more)
	return "{rules: [{" + strings.Join(fields, ", ") + "}]}"
}
