package soundness

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/apis/v1alpha1"
	"github.com/resourcestack/autohealer/internal/domain/docs"
	"github.com/resourcestack/autohealer/internal/guard"
	"github.com/resourcestack/autohealer/internal/kinds"
)

// verdicts asks the gates about the specimens of each kind, in dry runs: nothing is stored.
func (c *Checker) verdicts(ctx context.Context) ([]Finding, error) {
	var found []Finding
	for _, kind := range kinds.All {
		good, bad, err := guard.Specimens(kind.Name())
		if err != nil {
			return nil, err
		}
		for _, ask := range []struct {
			guard.Specimen
			finding func(kind, rule string, err error) *Finding
		}{{bad, c.refused}, {good, c.admitted}} {
			err := c.dryRun(ctx, kind, ask.Specimen)
			switch {
			case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
				found = append(found, Finding{fmt.Sprintf("no %s can be judged: %v", kind.Name(), err), reapply}) // its kind is missing, or the namespace
				continue
			case isDenied(err), unanswered(err):
				return sorted(found), err
			}
			f := c.webhookUnreached(err)
			if f == nil {
				f = ask.finding(kind.Name(), ask.Rule, err)
			}
			if f != nil {
				found = append(found, *f)
			}
		}
	}
	return sorted(found), nil
}

// isDenied tells the API server's own refusal, of whoever may not create the kind, from a verdict.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot create resource ")
}

// unanswered tells a failure on the way to the API server from its answer.
func unanswered(err error) bool {
	var answer apierrors.APIStatus
	return err != nil && !errors.As(err, &answer)
}

// dryRun creates a specimen. A policy only observes: what the cluster is like now is no reason to refuse it then.
func (c *Checker) dryRun(ctx context.Context, kind *kinds.Kind, s guard.Specimen) error {
	o, err := s.Made(c.Clock.Now())
	if err != nil {
		return err
	}
	o.Object["metadata"] = map[string]any{}
	o.SetGenerateName("autohealer-check-")
	if kind.Namespaced {
		o.SetNamespace(c.Namespace)
	}
	if !kind.RulesOver {
		o.Object["spec"].(map[string]any)["mode"] = string(v1alpha1.Observe)
	}
	return c.Client.Create(ctx, o, client.DryRunAll)
}

// refused is for a bad object.
func (c *Checker) refused(kind, rule string, err error) *Finding {
	switch {
	case err == nil:
		return &Finding{fmt.Sprintf("a bad %s is admitted, which %s must refuse", kind, rule), reapply}
	case !strings.Contains(err.Error(), rule):
		return &Finding{fmt.Sprintf("a bad %s isn't refused in the words of %s, but: %v", kind, rule, err), reapply}
	}
	return nil
}

// admitted is for a good object. Refused by a rule of a Guardrail, it has been judged as well.
func (c *Checker) admitted(kind, _ string, err error) *Finding {
	const ours = `admission webhook "policies.autohealer.resourcestack.com" denied the request: `
	if err == nil || strings.Contains(err.Error(), ours) && strings.Contains(err.Error(), " (Guardrail ") && !strings.Contains(err.Error(), strings.ToLower(kind)+"/") {
		return nil
	}
	return &Finding{fmt.Sprintf("a good %s is refused: %v", kind, err), "If a Guardrail of yours refuses it, that is as you wish. " + reapply}
}

// webhookUnreached says why the API server didn't reach the webhook; nil when it did, or didn't try.
func (c *Checker) webhookUnreached(err error) *Finding {
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		return nil
	}
	text := err.Error()
	_, why, _ := strings.Cut(text, "failed calling webhook ")
	has := func(phrase string) bool { return strings.Contains(text, phrase) }
	const bundle = "caBundle of validatingwebhookconfiguration/" + webhookConfiguration
	switch {
	case has("certificate has expired"):
		return &Finding{"the certificate that the webhook serves has expired: " + why, "The manager renews it, unless it is in files or cert-manager's: " + docs.Base + "docs/how-to/certificates.md. Restart it: kubectl -n " + c.Namespace + " rollout restart deployment/" + c.Manager + ". " + c.logs()}
	case has("signed by unknown authority"), has("unable to load root certificates"):
		return &Finding{"the " + bundle + " isn't that of the certificate which the webhook serves: " + why, "The manager publishes the right one, if it may patch that configuration and nobody else writes it, such as cert-manager's cainjector or a GitOps tool. " + c.logs()}
	case has("x509: certificate is valid for"), has("doesn't contain any IP SANs"):
		return &Finding{"the certificate that the webhook serves is for another host: " + why, "Give the manager the host by which API servers call it: --webhook-host: " + docs.Base + "docs/how-to/certificates.md"}
	}
	return &Finding{"the webhook can't be reached: " + why, fmt.Sprintf("See whether its pods are ready and its Service has them: kubectl -n %s get pods,endpointslices; and whether the network lets API servers through: %sdocs/how-to/install.md#who-may-connect. %s", c.Namespace, docs.Base, c.logs())}
}

// webhookConfiguration is the webhook's.
const webhookConfiguration = "autohealer"

// expiryWarning is how long before its end a CA is reported. The manager makes the next one long before.
const expiryWarning = 7 * 24 * time.Hour

// certificates looks at the CAs by which the API server knows the webhook. Whether they are the right ones, the verdicts tell.
func (c *Checker) certificates(ctx context.Context) ([]Finding, error) {
	var stored admissionregistrationv1.ValidatingWebhookConfiguration
	err := c.Client.Get(ctx, types.NamespacedName{Name: webhookConfiguration}, &stored)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if len(stored.Webhooks) == 0 {
		return []Finding{{"there is no CA bundle, since there is no webhook in validatingwebhookconfiguration/" + webhookConfiguration, reapply}}, nil
	}
	var found []Finding
	for _, hook := range stored.Webhooks {
		if why := badBundle(hook.ClientConfig.CABundle, c.Clock.Now()); why != "" {
			found = append(found, Finding{"the CA bundle of webhook " + hook.Name + " " + why, "The manager publishes it, once it runs and may patch that configuration. " + c.logs()})
		}
	}
	return found, nil
}

// badBundle says what is wrong with a CA bundle; "" when one of its CAs holds now and will for a while.
func badBundle(bundle []byte, now time.Time) string {
	if len(bundle) == 0 {
		return "is empty"
	}
	authorities, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		return fmt.Sprintf("can't be read: %v", err)
	}
	begun := slices.DeleteFunc(slices.Clone(authorities), func(a *x509.Certificate) bool { return now.Before(a.NotBefore) })
	if len(begun) == 0 {
		return "isn't valid before " + authorities[0].NotBefore.UTC().Format(time.RFC3339)
	}
	last := slices.MaxFunc(begun, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	switch remaining := last.NotAfter.Sub(now); {
	case remaining <= 0:
		return "expired " + last.NotAfter.UTC().Format(time.RFC3339)
	case remaining < expiryWarning:
		return "expires " + last.NotAfter.UTC().Format(time.RFC3339) + ", and no other CA follows"
	}
	return ""
}
