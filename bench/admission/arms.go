package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// armLabel says which admission an object gets here: every arm of the comparison is installed at the same time, and requests of all arms
// take turns, so that noise hits all alike.
const armLabel = "bench.example.com/arm"

// Arms of the comparison, the cheapest first.
const (
	armNothing = "nothing"
	armNoop    = "no-op-webhook"
	armPolicy  = "policy"
	armWebhook = "webhook"
	armBoth    = "webhook-and-policy"
)

var arms = []string{armNothing, armNoop, armPolicy, armWebhook, armBoth}

// webhookOf is the name of an arm's webhook; ours is in config/webhook.
var webhookOf = map[string]string{armNoop: "no-op.bench.example.com", armWebhook: "policies.autohealer.resourcestack.com"}

func only(arms ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: armLabel, Operator: metav1.LabelSelectorOpIn, Values: arms}}}
}

// installArms narrows the installed webhook and policy to their arms, and adds the no-op webhook: ours in all but its
// name and address.
func (b *Bench) installArms(ctx context.Context, reference *server) error {
	registration := b.Clients.AdmissionregistrationV1()
	hooks, err := registration.ValidatingWebhookConfigurations().Get(ctx, "autohealer", metav1.GetOptions{})
	if err != nil {
		return err
	}
	noop := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bench-no-op"}}
	hook := hooks.Webhooks[0].DeepCopy()
	hook.Name, hook.ObjectSelector = webhookOf[armNoop], only(armNoop)
	hook.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new(reference.url + "/noop"), CABundle: reference.ca}
	noop.Webhooks = []admissionregistrationv1.ValidatingWebhook{*hook}
	if _, err := registration.ValidatingWebhookConfigurations().Create(ctx, noop, metav1.CreateOptions{}); err != nil {
		return err
	}
	hooks.Webhooks[0].ObjectSelector = only(armWebhook, armBoth)
	if _, err := registration.ValidatingWebhookConfigurations().Update(ctx, hooks, metav1.UpdateOptions{}); err != nil {
		return err
	}
	binding, err := registration.ValidatingAdmissionPolicyBindings().Get(ctx, "autohealer-conditionset", metav1.GetOptions{})
	if err != nil {
		return err
	}
	binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{ObjectSelector: only(armPolicy, armBoth)}
	_, err = registration.ValidatingAdmissionPolicyBindings().Update(ctx, binding, metav1.UpdateOptions{})
	return err
}

// refusals is by what a set that evicts every healthy node must be refused, by arm; "" where nothing refuses it.
var refusals = map[string]string{
	armNothing: "", armNoop: "", armPolicy: "ValidatingAdmissionPolicy", armWebhook: webhookOf[armWebhook], armBoth: "ValidatingAdmissionPolicy",
}

// awaitArms waits until each arm has the admission it stands for.
func (c *creator) awaitArms(ctx context.Context) error {
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		last = c.checkArms(ctx)
		return last == nil, nil
	}); err != nil {
		return fmt.Errorf("wait for the arms: %w", errors.Join(err, last))
	}
	return nil
}

func (c *creator) checkArms(ctx context.Context) error {
	for arm, by := range refusals {
		cs := newSet()
		cs.Labels = map[string]string{armLabel: arm}
		cs.Spec.Effect = corev1.TaintEffectNoExecute
		cs.Spec.Conditions = map[string]v1alpha1.MemberCondition{"OutOfDisk": {Status: v1alpha1.RequiredStatus{JSON: "false"}}}
		body, err := json.Marshal(cs)
		if err != nil {
			return fmt.Errorf("encode a set: %w", err)
		}
		err = c.send(ctx, "conditionsets", body)
		if (err == nil) != (by == "") || err != nil && !strings.Contains(err.Error(), by) {
			return fmt.Errorf("with %s a dangerous set gives %w", arm, err)
		}
	}
	return nil
}

// calls are those of one webhook so far that admitted, by the API server's own count; fast are those within the goal's 5 ms.
type calls struct{ all, fast int }

func (b *Bench) webhookCalls(ctx context.Context, arm string) (c calls, err error) {
	samples, err := b.APIServerMetric(ctx, "apiserver_admission_webhook_admission_duration_seconds_bucket")
	for _, s := range samples {
		if s.Labels["rejected"] != "false" || s.Labels["name"] != webhookOf[arm] {
			continue
		}
		switch s.Labels["le"] {
		case "0.005":
			c.fast += int(s.Value)
		case "+Inf":
			c.all += int(s.Value)
		}
	}
	return c, err
}
