package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

const (
	ourWebhook  = "policies.autohealer.resourcestack.com" // in config/webhook
	noopWebhook = "no-op.bench.example.com"
	ourPolicy   = "autohealer-conditionset" // in config/policy
)

func only(arms ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: armLabel, Operator: metav1.LabelSelectorOpIn, Values: arms}}}
}

// installArms narrows the installed webhook and policy to their arms, and adds the no-op webhook: ours in all but its
// name and address.
func (b *bench) installArms(ctx context.Context, reference *server) error {
	registration := b.clients.AdmissionregistrationV1()
	hooks, err := registration.ValidatingWebhookConfigurations().Get(ctx, "autohealer", metav1.GetOptions{})
	if err != nil {
		return err
	}
	noop := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "bench-no-op"}}
	hook := hooks.Webhooks[0].DeepCopy()
	hook.Name, hook.ObjectSelector = noopWebhook, only(armNoop)
	hook.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: ptr.To(reference.url + "/noop"), CABundle: reference.ca}
	noop.Webhooks = []admissionregistrationv1.ValidatingWebhook{*hook}
	if _, err := registration.ValidatingWebhookConfigurations().Create(ctx, noop, metav1.CreateOptions{}); err != nil {
		return err
	}
	hooks.Webhooks[0].ObjectSelector = only(armWebhook, armBoth)
	if _, err := registration.ValidatingWebhookConfigurations().Update(ctx, hooks, metav1.UpdateOptions{}); err != nil {
		return err
	}
	binding, err := registration.ValidatingAdmissionPolicyBindings().Get(ctx, ourPolicy, metav1.GetOptions{})
	if err != nil {
		return err
	}
	binding.Spec.MatchResources = &admissionregistrationv1.MatchResources{ObjectSelector: only(armPolicy, armBoth)}
	_, err = registration.ValidatingAdmissionPolicyBindings().Update(ctx, binding, metav1.UpdateOptions{})
	return err
}

// refusals is by what a set that evicts every healthy node must be refused, by arm; "" where nothing refuses it.
var refusals = map[string]string{
	armNothing: "", armNoop: "", armPolicy: "ValidatingAdmissionPolicy", armWebhook: ourWebhook, armBoth: "ValidatingAdmissionPolicy",
}

// awaitArms waits until each arm has the admission it stands for.
func (a *asker) awaitArms(ctx context.Context) error {
	const tries, between = 100, 100 * time.Millisecond
	var err error
	for range tries {
		if err = a.checkArms(ctx); err == nil {
			return nil
		}
		if err := pause(ctx, between); err != nil {
			return err
		}
	}
	return fmt.Errorf("wait for the arms: %w", err)
}

func (a *asker) checkArms(ctx context.Context) error {
	for arm, by := range refusals {
		cs := newSet()
		cs.Labels = map[string]string{armLabel: arm}
		cs.Spec.Effect = corev1.TaintEffectNoExecute
		cs.Spec.Conditions = map[string]v1alpha1.MemberCondition{"OutOfDisk": {Status: v1alpha1.RequiredStatus{JSON: "false"}}}
		body, err := json.Marshal(cs)
		if err != nil {
			return fmt.Errorf("encode a set: %w", err)
		}
		err = a.send(ctx, body)
		if (err == nil) != (by == "") || err != nil && !strings.Contains(err.Error(), by) {
			return fmt.Errorf("with %s a dangerous set gives %w", arm, err)
		}
	}
	return nil
}

// calls are those of one webhook so far, by the API server's own count.
type calls struct{ all, fast int }

// webhookCalls reads the API server's histogram of webhook calls that admitted, by arm.
func (b *bench) webhookCalls(ctx context.Context) (map[string]calls, error) {
	metrics, err := b.clients.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	found := map[string]calls{}
	for line := range bytes.Lines(metrics) {
		name, labels, ok := strings.Cut(string(line), "{")
		if !ok || name != "apiserver_admission_webhook_admission_duration_seconds_bucket" || !strings.Contains(labels, `rejected="false"`) {
			continue
		}
		for arm, hook := range map[string]string{armNoop: noopWebhook, armWebhook: ourWebhook} {
			var count int
			_, value, _ := strings.Cut(labels, "} ")
			if _, err := fmt.Sscan(value, &count); err != nil || !strings.Contains(labels, `name="`+hook+`"`) {
				continue
			}
			c := found[arm]
			switch {
			case strings.Contains(labels, `le="`+slowestAdmission+`"`):
				c.fast += count
			case strings.Contains(labels, `le="+Inf"`):
				c.all += count
			}
			found[arm] = c
		}
	}
	return found, nil
}
