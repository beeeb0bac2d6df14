package soundness

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
)

// sample is a kind's bad and good object. They are dry runs, so that nothing is stored; the good ones only observe.
type sample struct {
	kind string
	// rule refuses the bad one.
	rule      string
	bad, good string
}

// samples are as small as they can be, so that no other rule than the one named has anything against them.
var samples = []sample{
	{
		kind: "ConditionSet", rule: "conditionset/matches-healthy-nodes",
		bad:  `{mode: Observe, type: AutohealerCheck, effect: NoSchedule, taintKey: example.com/autohealer-check, conditions: {KernelDeadlock: {status: false}}}`,
		good: `{mode: Observe, type: AutohealerCheck, effect: NoSchedule, taintKey: example.com/autohealer-check, conditions: {KernelDeadlock: {status: true}}}`,
	}, {
		kind: "WeederConfig", rule: "weederconfig/negative-pod-selector",
		bad:  `{mode: Observe, servicesAndDependantSelectors: {autohealer-check: {podSelectors: [{matchExpressions: [{key: role, operator: NotIn, values: [main]}]}]}}}`,
		good: `{mode: Observe, servicesAndDependantSelectors: {autohealer-check: {podSelectors: [{matchLabels: {autohealer-check: "true"}}]}}}`,
	}, {
		kind: "ProbeConfig", rule: "probeconfig/untouchable-dependent",
		bad:  probe("kube-apiserver"),
		good: probe("autohealer-check"),
	}, {
		kind: "OutlierPolicy", rule: "outlierpolicy/max-below-base",
		bad:  `{mode: Observe, targetRefs: [{group: "", kind: Service, name: autohealer-check}], outlierDetection: {maxEjectionTime: 29s}}`,
		good: `{mode: Observe, targetRefs: [{group: "", kind: Service, name: autohealer-check}], outlierDetection: {}}`,
	}, {
		kind: "HealthCheckRegistration", rule: "healthcheckregistration/condition-type",
		bad:  registration("Ready"),
		good: registration("AutohealerCheck"),
	}, {
		kind: "Guardrail", rule: "guardrail/rules-compile", // which the webhook alone can see
		bad:  `{rules: [{name: typing-error, kinds: [ConditionSet], expression: "object.spec.efect != 'NoExecute'"}]}`,
		good: `{limits: {maxTaintedNodes: 1%}}`,
	}, {
		kind: "GuardrailException", rule: "guardrailexception/too-long",
		bad:  exception("2099-01-01T00:00:00Z"),
		good: "",
	},
}

// probe scales a Deployment down in namespaces that there are none of: no Secret has to be read for that.
func probe(deployment string) string {
	return `{mode: Observe, namespaceSelector: {matchLabels: {autohealer-check: "true"}}, internalKubeConfigSecretName: autohealer-check, externalKubeConfigSecretName: autohealer-check-external, ` +
		`dependentResourceInfos: [{ref: {apiVersion: apps/v1, kind: Deployment, name: ` + deployment + `}, scaleUp: {level: 0}, scaleDown: {level: 0}}]}`
}

// registration is about objects of a type that there are none of.
func registration(conditionType string) string {
	return `{mode: Observe, target: {apiVersion: example.com/v1, kind: AutohealerCheck, type: autohealer-check}, checks: [{name: check, conditionType: ` + conditionType +
		`, object: {apiVersion: v1, kind: Pod, name: "'autohealer-check'"}, evaluate: {builtin: {}}}]}`
}

func exception(until string) string {
	return `{ruleIDs: [conditionset/matches-healthy-nodes], targetRef: {kind: ConditionSet, name: autohealer-check}, reason: kubectl autohealer check asks, ` +
		`specHash: "` + strings.Repeat("0", 64) + `", expiresAt: "` + until + `"}`
}

// verdicts asks the gates.
func (c *Checker) verdicts(ctx context.Context) ([]Finding, error) {
	var found []Finding
	for _, s := range samples {
		if s.good == "" {
			s.good = exception(c.Clock.Now().Add(soon / 2).UTC().Format("2006-01-02T15:04:05Z"))
		}
		for _, ask := range []struct {
			spec string
			says func(sample, error) *Finding
		}{{s.bad, c.refused}, {s.good, c.admitted}} {
			err := c.dryRun(ctx, s.kind, ask.spec)
			switch {
			case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
				found = append(found, Finding{fmt.Sprintf("no %s can be judged: %v", s.kind, err), reapply}) // its kind is missing, or the namespace
				continue
			case lacksRight(err), unanswered(err):
				return sorted(found), err
			}
			f := c.unreached(err)
			if f == nil {
				f = ask.says(s, err)
			}
			if f != nil {
				found = append(found, *f)
			}
		}
	}
	return sorted(found), nil
}

// lacksRight tells the API server's own refusal, of whoever may not create the kind, from a verdict.
func lacksRight(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot create resource ")
}

// unanswered tells a failure on the way to the API server from its answer.
func unanswered(err error) bool {
	var answer apierrors.APIStatus
	return err != nil && !errors.As(err, &answer)
}

func (c *Checker) dryRun(ctx context.Context, kind, spec string) error {
	o := &object{Object: map[string]any{}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetGenerateName("autohealer-check-")
	if kind == "OutlierPolicy" || kind == "WeederConfig" || kind == "ProbeConfig" {
		o.SetNamespace(c.Namespace)
	}
	var content map[string]any
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		return fmt.Errorf("read the sample of %s: %w", kind, err)
	}
	o.Object["spec"] = content
	return c.Client.Create(ctx, o, client.DryRunAll)
}

// refused is for a bad object.
func (c *Checker) refused(s sample, err error) *Finding {
	switch {
	case err == nil:
		return &Finding{fmt.Sprintf("a bad %s is admitted, which %s must refuse", s.kind, s.rule), reapply}
	case !strings.Contains(err.Error(), s.rule):
		return &Finding{fmt.Sprintf("a bad %s isn't refused in the words of %s, but: %v", s.kind, s.rule, err), reapply}
	}
	return nil
}

// admitted is for a good object. Refused by a rule of a Guardrail, it has been judged as well.
func (c *Checker) admitted(s sample, err error) *Finding {
	const ours = `admission webhook "policies.autohealer.resourcestack.com" denied the request: `
	if err == nil || strings.Contains(err.Error(), ours) && strings.Contains(err.Error(), " (Guardrail ") && !strings.Contains(err.Error(), strings.ToLower(s.kind)+"/") {
		return nil
	}
	return &Finding{fmt.Sprintf("a good %s is refused: %v", s.kind, err), "If a Guardrail of yours refuses it, that is as you wish. " + reapply}
}

// unreached says why the API server didn't reach the webhook; nil when it did, or didn't try.
func (c *Checker) unreached(err error) *Finding {
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		return nil
	}
	text := err.Error()
	_, why, _ := strings.Cut(text, "failed calling webhook ")
	has := func(words string) bool { return strings.Contains(text, words) }
	const bundle = "caBundle of validatingwebhookconfiguration/" + webhookConfiguration
	switch {
	case has("certificate has expired"):
		return &Finding{"the certificate that the webhook serves has expired: " + why, "The manager renews it, unless it is in files or cert-manager's: docs/how-to/certificates.md. Restart it: kubectl -n " + c.Namespace + " rollout restart deployment/" + c.Manager + ". " + c.logs()}
	case has("signed by unknown authority"), has("unable to load root certificates"):
		return &Finding{"the " + bundle + " isn't that of the certificate which the webhook serves: " + why, "The manager publishes the right one, if it may patch that configuration and nobody else writes it, such as cert-manager's cainjector or a GitOps tool. " + c.logs()}
	case has("x509: certificate is valid for"), has("doesn't contain any IP SANs"):
		return &Finding{"the certificate that the webhook serves is for another host: " + why, "Give the manager the host by which API servers call it: --webhook-host. docs/how-to/certificates.md"}
	}
	return &Finding{"the webhook can't be reached: " + why, fmt.Sprintf("See whether its pods are ready and its Service has them: kubectl -n %s get pods,endpointslices; and whether the network lets API servers through: docs/how-to/install.md, Who may connect. %s", c.Namespace, c.logs())}
}
