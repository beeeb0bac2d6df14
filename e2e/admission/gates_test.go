package admission

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/harness"
)

const (
	// portable is a set that webhook and policy both refuse.
	portable = `{type: Probe, effect: NoSchedule, taintKey: karpenter.sh/probe, conditions: {KernelDeadlock: {status: true}}}`
	// factual is a set that only the webhook has something to say about: a warning.
	factual = `{type: Probe, effect: NoSchedule, taintKey: example.com/probe, conditions: {NobodyReportsThis: {status: true}}}`
)

// annotationPolicy guards Nodes, not sets.
const annotationPolicy = "autohealer-node-annotations"

// withoutWebhook runs f while the API server calls no webhook, and restores its configuration, without a CA, as a fresh
// installation would.
func withoutWebhook(ctx context.Context, f func()) {
	GinkgoHelper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(h.Client.Get(ctx, types.NamespacedName{Name: "autohealer"}, config)).To(Succeed())
	Expect(h.Client.Delete(ctx, config)).To(Succeed())
	defer func() {
		GinkgoHelper()
		ctx, cancel := toRestore(ctx)
		defer cancel()
		config.Webhooks[0].ClientConfig.CABundle = nil
		createAnew(ctx, config)
		webhookInForce(ctx)
	}()
	Eventually(ctx, tryingOut(factual)).Should(Equal("created"), "the webhook is gone")
	f()
}

// withUnreachableWebhook runs f while nobody answers at the webhook's URL.
func withUnreachableWebhook(ctx context.Context, f func()) {
	GinkgoHelper()
	url := changeWebhook(ctx, func(c *admissionregistrationv1.WebhookClientConfig) {
		c.URL = ptr.To("https://" + cluster.Unserved() + "/validate")
	}).URL
	defer func() {
		GinkgoHelper()
		ctx, cancel := toRestore(ctx)
		defer cancel()
		changeWebhook(ctx, func(c *admissionregistrationv1.WebhookClientConfig) { c.URL = url })
		webhookInForce(ctx)
	}()
	Eventually(ctx, tryingOut(factual)).Should(ContainSubstring("failed calling webhook"))
	f()
}

// changeWebhook changes how the API server calls the webhook, and gives how it did before.
func changeWebhook(ctx context.Context, change func(*admissionregistrationv1.WebhookClientConfig)) admissionregistrationv1.WebhookClientConfig {
	GinkgoHelper()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	Expect(h.Client.Get(ctx, types.NamespacedName{Name: "autohealer"}, config)).To(Succeed())
	before := config.DeepCopy()
	change(&config.Webhooks[0].ClientConfig)
	Expect(h.Client.Patch(ctx, config, client.StrategicMergeFrom(before))).To(Succeed())
	return before.Webhooks[0].ClientConfig
}

// withoutPolicy runs f while the generated policy is gone, and restores it. Without a policy, portable is refused by the
// webhook alone or not at all.
func withoutPolicy(ctx context.Context, f func()) {
	GinkgoHelper()
	policy := installedPolicy(ctx)
	for _, object := range policy {
		Expect(h.Client.Delete(ctx, object)).To(Succeed())
	}
	defer func() {
		GinkgoHelper()
		ctx, cancel := toRestore(ctx)
		defer cancel()
		createAnew(ctx, policy...)
		Eventually(ctx, tryingOut(portable)).Should(ContainSubstring("ValidatingAdmissionPolicy"), "the policy is in force again")
	}()
	Eventually(ctx, tryingOut(portable)).ShouldNot(ContainSubstring("ValidatingAdmissionPolicy"), "the policy is gone")
	f()
}

// withoutGates runs f while nothing but the CRD's schema judges sets.
func withoutGates(ctx context.Context, f func()) {
	GinkgoHelper()
	withoutPolicy(ctx, func() { withoutWebhook(ctx, f) })
}

// installedPolicy gives the generated policies and their bindings.
func installedPolicy(ctx context.Context) []client.Object {
	GinkgoHelper()
	var objects []client.Object
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	Expect(h.Client.List(ctx, &policies)).To(Succeed())
	for i := range policies.Items {
		if policies.Items[i].Name != annotationPolicy {
			objects = append(objects, &policies.Items[i])
		}
	}
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	Expect(h.Client.List(ctx, &bindings)).To(Succeed())
	for i := range bindings.Items {
		if bindings.Items[i].Spec.PolicyName != annotationPolicy {
			objects = append(objects, &bindings.Items[i])
		}
	}
	Expect(len(objects)).To(BeNumerically(">=", 2), "a policy and its binding are installed by default")
	return objects
}

func createAnew(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		object.SetResourceVersion("")
		object.SetUID("")
		Expect(h.Client.Create(ctx, object)).To(Succeed())
	}
}

// noManager is true while a spec has stopped it: what waits for the webhook then would wait in vain.
var noManager bool

// webhookInForce waits until the API server asks a manager again.
func webhookInForce(ctx context.Context) {
	GinkgoHelper()
	if noManager {
		return
	}
	Eventually(ctx, tryingOut(factual)).Should(ContainSubstring("Warning: conditionset/unsupported-condition-type"), "the webhook is in force again")
}

// withoutManager runs f while no manager runs, and starts it again.
func withoutManager(ctx context.Context, f func()) {
	GinkgoHelper()
	Expect(h.StopComponent(harness.Manager)).To(Succeed())
	noManager = true
	defer func() {
		GinkgoHelper()
		noManager = false
		startManager(ctx)
		webhookInForce(ctx)
	}()
	f()
}

// startManager starts it with its usual flags and those added.
func startManager(ctx context.Context, args ...string) {
	GinkgoHelper()
	ctx, cancel := toRestore(ctx)
	defer cancel()
	Expect(h.StartManager(ctx, args...)).To(Succeed())
}

// toRestore gives time for the way back also when the spec has used up its own.
func toRestore(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
}

// tryingOut is what the API server says of a set that isn't stored: a line a warning, then the error or "created". It is
// polled, and so asks without a new process each time.
func tryingOut(spec string) func(context.Context) string {
	GinkgoHelper()
	heard := &warningLines{}
	config := rest.CopyConfig(h.Config)
	config.WarningHandler = heard
	client, err := dynamic.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	sets, probe := client.Resource(v1alpha1.GroupVersion.WithResource("conditionsets")), object("probe", spec)
	return func(ctx context.Context) string {
		heard.lines = nil
		outcome := "created"
		if _, err := sets.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			outcome = err.Error()
		}
		return strings.Join(append(heard.lines, outcome), "\n")
	}
}

// warningLines are the warnings of a client's requests, which are made one at a time.
type warningLines struct{ lines []string }

// HandleWarningHeader takes one in.
func (w *warningLines) HandleWarningHeader(_ int, _ string, text string) {
	w.lines = append(w.lines, "Warning: "+text)
}
