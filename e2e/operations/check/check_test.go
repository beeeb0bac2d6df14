package check

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/resourcestack/autohealer/e2e/cluster"
	"github.com/resourcestack/autohealer/e2e/conditionset/fixture"
	"github.com/resourcestack/autohealer/e2e/faultproxy"
	"github.com/resourcestack/autohealer/e2e/harness"
	"github.com/resourcestack/autohealer/e2e/page"
)

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

// of matches findings of these parts, which may follow from another.
func of(first string, parts ...string) gomegatypes.GomegaMatcher {
	return SatisfyAll(HaveField("State", "Unsound"), HaveField("First", first), HaveField("Part", BeElementOf(parts)))
}

// is matches a finding of a part, which is none's consequence, by its message and what to do.
func is(part, message, do string) gomegatypes.GomegaMatcher {
	return SatisfyAll(HaveField("Part", part), HaveField("State", "Unsound"), HaveField("First", ""), HaveField("Message", ContainSubstring(message)), HaveField("Do", ContainSubstring(do)))
}

// expectOnly expects that these findings come and no others: they are of the part that was broken.
func expectOnly(ctx SpecContext, matcher gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	Eventually(broken).WithContext(ctx).Should(SatisfyAll(Not(BeEmpty()), HaveEach(matcher)))
}

// certificate signs one of its own for the loopback address, which ends then.
func certificate(until time.Time) tls.Certificate {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "check"}, NotBefore: until.Add(-24 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serveInstead has the API server call a webhook with this certificate. (The manager puts its CA bundle back at once, so it is not
// that which is changed.)
func serveInstead(ctx SpecContext, served tls.Certificate) {
	GinkgoHelper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{served}}
	server.StartTLS()
	DeferCleanup(server.Close)
	kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p",
		`[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"`+server.URL+`/validate"}]`)
}

var _ = Describe("kubectl autohealer check", func() {
	It("says that a sound installation is, in every format", func(ctx SpecContext) {
		Expect(plugin(ctx, h.Kubeconfig, "check")).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()), HaveField("Out", And(
			HavePrefix("kubernetes     ok: the API server is of 1.33 or later\ninstallations  ok: there is no second one\nkinds          ok: the CRDs are those of this version\n"), HaveSuffix("\nThe installation is sound.\n")))))
		Expect(plugin(ctx, h.Kubeconfig, "check", "-o", "yaml").Out).To(And(ContainSubstring("apiVersion: cli.autohealer.resourcestack.com/v1alpha1\nkind: Check\n"), ContainSubstring("\nsound: true\n")))
		Expect(plugin(ctx, h.Kubeconfig, "version")).To(SatisfyAll(HaveField("Code", 0), HaveField("Err", BeEmpty()),
			HaveField("Out", MatchRegexp(`^Client Version: \S+\nManager Version: \S+\nKubernetes Version: v1\.\d+\.\d+\S*\n$`))))
		Expect(plugin(ctx, h.Kubeconfig, "version", "--autohealer-namespace=nowhere", "-o", "yaml").Out).To(MatchRegexp(
			`(?s)^apiVersion: cli.autohealer.resourcestack.com/v1alpha1\n.*kind: Version\n.*managerVersionUnknown: 'there is no Lease autohealer-manager in namespace nowhere:`))
		Expect(plugin(ctx, h.Kubeconfig, "check", "-o", "jsonpath={.sound}", "--wait", "--timeout=1m").Out).To(Equal("true"))
		Expect(kubectl(ctx, "get", "conditionsets,guardrailexceptions,guardrails,probeconfigs,weederconfigs", "-A", "-o", "name")).To(BeEmpty(), "nothing is stored")
		for _, args := range [][]string{{"check", "more"}, {"check", "--wait", "--timeout=-1s"}, {"check", "--wait=2m"}, {"check", "-o", "xml"}, {"check", "--server=https://" + cluster.Unserved()}} {
			Expect(plugin(ctx, h.Kubeconfig, args...)).To(HaveField("Code", 2), "%q", args)
		}
	})

	It("names a webhook that can't be reached", func(ctx SpecContext) {
		mend()
		kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p", `[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"https://`+cluster.Unserved()+`/validate"}]`)
		expectOnly(ctx, is("verdicts", "the webhook can't be reached: ", "get pods,endpointslices"))
	})

	It("names a CA bundle that is another one's", func(ctx SpecContext) {
		mend()
		serveInstead(ctx, certificate(time.Now().Add(12*time.Hour)))
		expectOnly(ctx, is("verdicts", "the caBundle of validatingwebhookconfiguration/autohealer isn't that of the certificate which the webhook serves: ", "cainjector"))
	})

	It("names a certificate that has expired", func(ctx SpecContext) {
		mend()
		serveInstead(ctx, certificate(time.Now().Add(-time.Hour)))
		expectOnly(ctx, is("verdicts", "the certificate that the webhook serves has expired: ", "docs/how-to/certificates.md"))
	})

	It("names a right that the manager lacks", func(ctx SpecContext) {
		mend()
		role := &rbacv1.ClusterRole{}
		role.Name = "autohealer-manager"
		Expect(h.Client.Get(ctx, keyOf(role), role)).To(Succeed())
		for i := range role.Rules {
			if role.Rules[i].Resources[0] == "nodes" {
				role.Rules[i].Verbs = []string{"get", "list", "watch"}
			}
		}
		Expect(h.Client.Update(ctx, role)).To(Succeed())
		expectOnly(ctx, is("rights", "the manager may not patch nodes", "It is in clusterrole/autohealer-manager, bound to the account autohealer-manager in namespace autohealer-system."))
	})

	It("names a role for people that lacks a right", func(ctx SpecContext) {
		mend()
		role := &rbacv1.ClusterRole{}
		role.Name = "autohealer-viewer"
		Expect(h.Client.Get(ctx, keyOf(role), role)).To(Succeed())
		role.Rules[0].Verbs = []string{"get", "list"}
		Expect(h.Client.Update(ctx, role)).To(Succeed())
		expectOnly(ctx, is("roles", "clusterrole/autohealer-viewer doesn't allow to watch ", "kubectl apply -k config/default"))
	})

	It("names a CRD of another version", func(ctx SpecContext) {
		mend()
		kubectl(ctx, "patch", "crd", "conditionsets.autohealer.resourcestack.com", "--type=json", "-p",
			`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/for/maxLength","value":31}]`)
		expectOnly(ctx, is("kinds", "customresourcedefinition/conditionsets.autohealer.resourcestack.com is of another version than this plugin, or was changed: spec.versions[0].schema.openAPIV3Schema.properties.spec.properties.for.maxLength differs", "kubectl apply -k config/default"))
	})

	It("names an admission policy that is missing, or was changed", func(ctx SpecContext) {
		mend()
		kubectl(ctx, "delete", "validatingadmissionpolicybinding", "autohealer-conditionset")
		kubectl(ctx, "patch", "validatingadmissionpolicy", "autohealer-weederconfig", "--type=json", "-p", `[{"op":"remove","path":"/spec/validations/0"}]`)
		DeferCleanup(func(ctx SpecContext) {
			kubectl(ctx, "delete", "validatingadmissionpolicy/autohealer-probeconfig", "validatingadmissionpolicybinding/autohealer-outlierpolicy")
		})
		kubectl(ctx, "patch", "validatingadmissionpolicy", "autohealer-probeconfig", "--type=merge", "-p", `{"spec":{"matchConstraints":{"namespaceSelector":{"matchLabels":{"judged":"yes"}}}}}`)
		kubectl(ctx, "patch", "validatingadmissionpolicybinding", "autohealer-outlierpolicy", "--type=merge", "-p", `{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"judged":"yes"}}}}}`)
		Eventually(broken).WithContext(ctx).Should(ConsistOf(
			is("policies", "validatingadmissionpolicybinding/autohealer-conditionset is missing", "kubectl apply -k config/default"),
			is("policies", "validatingadmissionpolicy/autohealer-weederconfig is of another version than this plugin, or was changed: spec.validations differs", "kubectl apply -k config/default"),
			is("policies", "validatingadmissionpolicy/autohealer-probeconfig has a field that this version hasn't: spec.matchConstraints.namespaceSelector", "kubectl edit validatingadmissionpolicy/autohealer-probeconfig"),
			is("policies", "validatingadmissionpolicybinding/autohealer-outlierpolicy has a field that this version hasn't: spec.matchResources", "kubectl edit validatingadmissionpolicybinding/autohealer-outlierpolicy"),
		), "the webhook refuses what they did")
	})

	It("names a webhook that was made to let everything pass", func(ctx SpecContext) {
		mend()
		kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p", `[{"op":"replace","path":"/webhooks/0/rules/0/operations","value":["UPDATE"]}]`)
		Eventually(broken).WithContext(ctx).Should(ConsistOf(
			is("webhook", "validatingwebhookconfiguration/autohealer is of another version than this plugin, or was changed: webhooks[0].rules[0].operations differs", "kubectl apply -k config/default"),
			SatisfyAll(of("webhook", "verdicts"), HaveField("Message", "a bad Guardrail is admitted, which guardrail/rules-compile must refuse")),
		))
	})

	It("names a webhook that fails open, chosen or not, beside what else differs", func(ctx SpecContext) {
		mend()
		kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p",
			`[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"},{"op":"replace","path":"/webhooks/0/matchPolicy","value":"Exact"}]`)
		Eventually(broken).WithContext(ctx).Should(ConsistOf(
			is("webhook", "validatingwebhookconfiguration/autohealer has failurePolicy Ignore, which is weaker than this version's Fail: while no manager answers, changes of policies are admitted without the webhook",
				"If somebody chose that, as by the chart's value webhook.failurePolicy, "),
			is("webhook", "validatingwebhookconfiguration/autohealer is of another version than this plugin, or was changed: webhooks[0].matchPolicy differs", "kubectl apply -k config/default"),
		))
	})

	It("names a webhook that was made to let the policies of a namespace pass", func(ctx SpecContext) {
		mend()
		kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=json", "-p", `[{"op":"replace","path":"/webhooks/0/namespaceSelector","value":{"matchLabels":{"judged":"yes"}}}]`)
		expectOnly(ctx, is("webhook", "validatingwebhookconfiguration/autohealer has a field that this version hasn't: webhooks[0].namespaceSelector", "kubectl edit validatingwebhookconfiguration/autohealer"))
	})

	It("names a webhook configuration that is gone, before what that leads to", func(ctx SpecContext) {
		mend()
		kubectl(ctx, "delete", "validatingwebhookconfiguration", "autohealer")
		Eventually(broken).WithContext(ctx).Should(ConsistOf(
			is("webhook", "validatingwebhookconfiguration/autohealer is missing", "kubectl apply -k config/default"),
			SatisfyAll(of("webhook", "certificates"), HaveField("Message", "there is no CA bundle, since there is no webhook in validatingwebhookconfiguration/autohealer")),
			SatisfyAll(of("webhook", "verdicts"), HaveField("Message", "a bad Guardrail is admitted, which guardrail/rules-compile must refuse")),
		))
		Expect(plugin(ctx, h.Kubeconfig, "check")).To(SatisfyAll(HaveField("Code", 1), HaveField("Out", Equal(`kubernetes     ok: the API server is of 1.33 or later
installations  ok: there is no second one
kinds          ok: the CRDs are those of this version
policies       ok: the admission policies are there, with the rules of this version
webhook        UNSOUND: validatingwebhookconfiguration/autohealer is missing
certificates   UNSOUND, which may follow from webhook
roles          ok: the roles for people have all their rights
rights         ok: the manager's account has all rights of its roles
manager        ok: one leads, and all replicas are of one version and ready
caches         ok: the manager has seen every change of a policy, but for those of the last 15 seconds
verdicts       UNSOUND, which may follow from webhook
records        ok: each taint of Autohealer's on a node is of a ConditionSet that is there, and every record can be read
The installation isn't sound, or can't be seen to be. What to do:
webhook        Install this version, the way it was installed: helm upgrade, or kubectl apply -f install.yaml, or kubectl apply -k config/default; or use the plugin of the version that is installed.
All that was found: kubectl autohealer check -o yaml
`))))
	})

	It("names a webhook configuration without a webhook", func(ctx SpecContext) {
		mend()
		kubectl(ctx, "patch", "validatingwebhookconfiguration", "autohealer", "--type=merge", "-p", `{"webhooks":[]}`)
		Eventually(broken).WithContext(ctx).Should(ConsistOf(is("webhook", "webhooks differs", "kubectl apply -k config/default"), of("webhook", "certificates"), of("webhook", "verdicts")))
	})

	It("names a Deployment that is gone, though a manager leads", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { Expect(h.Deploy(ctx, harness.Namespace)).To(Succeed()) })
		kubectl(ctx, "-n", harness.Namespace, "delete", "deployment", "autohealer-manager")
		expectOnly(ctx, is("manager", "deployment/autohealer-manager in namespace autohealer-system is missing", "kubectl apply -k config/default"))
	})

	It("asks for the rights of the account and the certificates that the Deployment names", func(ctx SpecContext) {
		DeferCleanup(func(ctx SpecContext) { Expect(h.Deploy(ctx, harness.Namespace)).To(Succeed()) })
		kubectl(ctx, "-n", harness.Namespace, "patch", "deployment", "autohealer-manager", "-p",
			`{"spec":{"template":{"spec":{"containers":[{"name":"manager","args":["--leader-elect","--cert-provider=cert-manager"]}]}}}}`)
		expectOnly(ctx, is("rights", "the manager has none of the rights of role/autohealer-manager-certificates", "They are in role/autohealer-manager-certificates, bound to the account autohealer-manager in namespace autohealer-system."))
		kubectl(ctx, "-n", harness.Namespace, "patch", "deployment", "autohealer-manager", "-p",
			`{"spec":{"template":{"spec":{"serviceAccountName":"unbound","serviceAccount":"unbound"}}}}`)
		Eventually(broken).WithContext(ctx).Should(SatisfyAll(
			ContainElement(is("rights", "the manager has none of the rights of clusterrole/autohealer-manager", "bound to the account unbound in namespace autohealer-system.")),
			ContainElement(is("rights", "serviceaccount/unbound in namespace autohealer-system is missing", "kubectl apply -k config/default")),
			HaveEach(Or(HaveField("Part", "rights"), of("rights", "manager"))),
		), "its pods can't be made without the account")
	})

	It("has nothing against a Guardrail that refuses its good objects", func(ctx SpecContext) {
		_, err := h.Apply(ctx, `
apiVersion: autohealer.resourcestack.com/v1alpha1
kind: Guardrail
metadata: {name: org}
spec:
  rules:
  - name: no-taints
    kinds: [ConditionSet]
    severity: Deny
    expression: object.metadata.name == 'allowed'
    messageExpression: "'the fleet team taints nodes'"
    rationale: They taint by themselves.
    tests:
    - {name: the allowed one, object: {metadata: {name: allowed}, spec: {type: A, effect: NoSchedule, taintKey: example.com/a, conditions: {KernelDeadlock: {status: true}}}}, expect: admit}
    - {name: another, object: {metadata: {name: a}, spec: {type: A, effect: NoSchedule, taintKey: example.com/a, conditions: {KernelDeadlock: {status: true}}}}, expect: deny}
`)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { kubectl(ctx, "delete", "guardrail", "org") })
		Eventually(func() error {
			return h.Client.Create(ctx, fixture.NewSet("a", "e2e.example.com/a", "NoSchedule", "A"), client.DryRunAll)
		}).
			Should(MatchError(ContainSubstring("org/no-taints: the fleet team taints nodes")))
		expectSound(ctx)
	})

	It("says in few lines that there is no installation where it is to look", func(ctx SpecContext) {
		got := plugin(ctx, h.Kubeconfig, "check", "--autohealer-namespace=nowhere")
		Expect(got).To(SatisfyAll(HaveField("Code", 1), HaveField("Out", SatisfyAll(
			ContainSubstring("\nrights         UNSOUND, which may follow from installations\n"),
			ContainSubstring("\nmanager        UNSOUND, which may follow from installations\n"),
			ContainSubstring("\ncaches         UNSOUND, which may follow from installations\n"),
			ContainSubstring("\nverdicts       UNSOUND, which may follow from installations\n"),
		))))
		Expect(strings.Split(got.Out, "\n")).To(HaveLen(16), "one line a part, what to do about the cause, and how to see all")
		Expect(plugin(ctx, h.Kubeconfig, "check", "--autohealer-namespace=nowhere", "-o", `jsonpath={range .parts[?(@.name=="installations")].findings[*]}{.message}{"\n"}{end}`).Out).
			To(ContainSubstring("namespace/nowhere is missing, so no manager can run there\n"))
		Expect(plugin(ctx, h.Kubeconfig, "check", "--autohealer-namespace=nowhere", "-o", `jsonpath={.parts[?(@.name=="rights")].findings[*].message}`).Out).
			To(HavePrefix("serviceaccount/autohealer-manager in namespace nowhere is missing, as which the manager runs the manager has none of the rights of clusterrole/autohealer-manager "))
	})

	It("names a second installation", func(ctx SpecContext) {
		other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
		Expect(h.Client.Create(ctx, other)).To(Succeed())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "autohealer-manager"}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("second"), LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: &metav1.MicroTime{Time: time.Now()},
		}}
		Expect(h.Client.Create(ctx, lease)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(h.Client.Delete(ctx, lease)).To(Succeed()) })
		hook := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other-autohealer"}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "policies.autohealer.resourcestack.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://other.example.com/")},
		}}}
		Expect(h.Client.Create(ctx, hook)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(h.Client.Delete(ctx, hook)).To(Succeed()) })
		Eventually(broken).WithContext(ctx).Should(ConsistOf(
			is("installations", "there seems to be a second installation: second leads by the Lease autohealer-manager in namespace other", "Remove one"),
			is("installations", "there seems to be a second installation: ValidatingWebhookConfiguration other-autohealer has the webhook policies.autohealer.resourcestack.com", "Remove one"),
		))
	})

	It("names a manager whose caches are stale", func(ctx SpecContext) {
		watches, err := faultproxy.StartWatches(h.URL, h.CACert)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(watches.Stop)
		direct, err := h.ServiceAccountKubeconfig(ctx, harness.Namespace, harness.ServiceAccount)
		Expect(err).NotTo(HaveOccurred())
		proxied := filepath.Join(h.Dir, "proxied.kubeconfig")
		Expect(watches.Kubeconfig(direct, proxied)).To(Succeed())
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(h.StopComponent(harness.Manager)).To(Succeed())
			Expect(h.StartManager(ctx)).To(Succeed())
		})
		Expect(h.StartManager(ctx, "--kubeconfig="+proxied)).To(Succeed())
		set := fixture.NewSet("unseen", "e2e.example.com/unseen", "NoSchedule", "Unseen")
		Expect(h.Client.Create(ctx, set)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(h.Client.Delete(ctx, set)).To(Succeed()) })
		expectSound(ctx)
		watches.Silence("/apis/autohealer.resourcestack.com/v1alpha1/conditionsets")
		kubectl(ctx, "patch", "conditionset", set.Name, "--type=merge", "-p", `{"spec":{"mode":"Observe"}}`)
		Eventually(broken).WithContext(ctx).Should(ConsistOf(
			is("caches", "unseen was changed ", "rollout restart deployment/autohealer-manager"),
		))
		watches.Speak("/apis/autohealer.resourcestack.com/v1alpha1/conditionsets")
	})

	It("names a manager that doesn't lead, and what keeps it from that, and waits until one does", func(ctx SpecContext) {
		Expect(h.StopComponent(harness.Manager)).To(Succeed())
		rest := of("manager", "caches", "verdicts")
		Eventually(broken).WithContext(ctx).Should(SatisfyAll(
			ContainElement(is("manager", "no manager leads, so nothing is done and nothing undone", "get pods")),
			ContainElement(SatisfyAll(HaveField("Part", "caches"), HaveField("Message", "no manager is known to lead that would see policies"))),
			ContainElement(SatisfyAll(HaveField("Part", "verdicts"), HaveField("Message", ContainSubstring("the webhook can't be reached: ")))),
			HaveEach(Or(HaveField("Part", "manager"), rest)),
		))
		Expect(plugin(ctx, h.Kubeconfig, "check", "--wait", "--timeout=2s")).To(SatisfyAll(HaveField("Code", 1), HaveField("Out", ContainSubstring("manager        UNSOUND: no manager leads, so nothing is done and nothing undone\ncaches         UNSOUND, which may follow from manager\nverdicts       UNSOUND, which may follow from manager\n"))))

		By("a forged Lease of an hour")
		renew := func(at time.Time, seconds string) {
			kubectl(ctx, "-n", harness.Namespace, "patch", "lease", "autohealer-manager", "--type=merge", "-p",
				`{"spec":{"holderIdentity":"forged","leaseDurationSeconds":`+seconds+`,"renewTime":"`+at.UTC().Format("2006-01-02T15:04:05.000000Z")+`"}}`)
		}
		renew(time.Now(), "3600")
		forged := func(message string) gomegatypes.GomegaMatcher {
			return SatisfyAll(ContainElement(is("manager", message, "kubectl -n autohealer-system delete lease autohealer-manager")), HaveEach(Or(HaveField("Part", "manager"), rest)))
		}
		Expect(broken(ctx)).To(forged("the Lease autohealer-manager in namespace autohealer-system lasts 3600 seconds, and a manager writes 15: "))
		Expect(plugin(ctx, h.Kubeconfig, "status")).To(SatisfyAll(HaveField("Code", 1), HaveField("Out", HavePrefix("Manager: none is seen to lead: its Lease lasts 3600 seconds, and a manager writes 15: "))))
		Expect(plugin(ctx, h.Kubeconfig, "freeze", "--timeout=2s")).To(SatisfyAll(HaveField("Code", 1), HaveField("Err", ContainSubstring("no manager confirmed it within 2s"))), "and not that none leads")
		Expect(plugin(ctx, h.Kubeconfig, "thaw")).To(HaveField("Code", 0))
		renew(time.Now().Add(time.Hour), "15")
		Expect(broken(ctx)).To(forged("the Lease autohealer-manager in namespace autohealer-system was renewed in the future, at "))
		kubectl(ctx, "-n", harness.Namespace, "delete", "lease", "autohealer-manager")

		By("forged marks")
		mark := func(as string) {
			kubectl(ctx, "annotate", "--overwrite", "validatingwebhookconfiguration", "autohealer", "autohealer.resourcestack.com/installation="+as)
		}
		takeAway := "kubectl annotate validatingwebhookconfiguration autohealer autohealer.resourcestack.com/installation-"
		only := func(message string) gomegatypes.GomegaMatcher {
			return SatisfyAll(ContainElement(is("installations", message, takeAway)), ContainElement(of("installations", "manager")),
				HaveEach(Or(HaveField("Part", "installations"), of("installations", "manager", "caches", "verdicts"))))
		}
		mark("kube-system/" + kubectl(ctx, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"))
		Expect(broken(ctx)).To(only("the cluster is marked as that of an installation in namespace kube-system, so the manager in namespace autohealer-system does nothing"))
		Expect(plugin(ctx, h.Kubeconfig, "check").Out).To(SatisfyAll(HavePrefix("kubernetes     ok: the API server is of 1.33 or later\ninstallations  UNSOUND: the cluster is marked "), ContainSubstring("\nrights         ok: ")))
		for _, malformed := range []string{"forged", "autohealer-system/", "/", "../forged"} {
			mark(malformed)
			Expect(broken(ctx)).To(only(`annotation autohealer.resourcestack.com/installation of validatingwebhookconfiguration/autohealer is "` + malformed + `", which is no installation's, and no manager acts while it is there`))
		}
		kubectl(ctx, "annotate", "validatingwebhookconfiguration", "autohealer", "autohealer.resourcestack.com/installation-")

		waited := make(chan said)
		go func() {
			defer GinkgoRecover()
			waited <- plugin(ctx, h.Kubeconfig, "check", "--wait")
		}()
		Expect(h.StartComponent(ctx, harness.Manager)).To(Succeed())
		Eventually(waited, "1m").Should(Receive(SatisfyAll(HaveField("Code", 0), HaveField("Out", HaveSuffix("The installation is sound.\n")))))
	})

	It("says what it may not look at", func(ctx SpecContext) {
		Expect(h.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nobody"}})).To(Succeed())
		nobody, err := h.ServiceAccountKubeconfig(ctx, "default", "nobody")
		Expect(err).NotTo(HaveOccurred())
		found, err := check(ctx, nobody)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(SatisfyAll(HaveLen(11), HaveEach(SatisfyAll(HaveField("State", "Unknown"), HaveField("Message", HavePrefix("it can't be looked at: "))))))
	})

	It("is shown as it is in docs/how-to/check.md", func(ctx SpecContext) {
		p, err := page.Read(h.Root(), "docs/how-to/check.md")
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Commands()).To(HaveLen(2))
		Expect(p.Commands()).To(HaveEach(HaveField("Text", "kubectl autohealer check")))
		sound, gone := p.Commands()[0], p.Commands()[1]
		Expect(sound.Differs(plugin(ctx, h.Kubeconfig, "check").Out)).To(BeEmpty())
		mend()
		kubectl(ctx, "delete", "validatingwebhookconfiguration", "autohealer")
		Eventually(func() string { return gone.Differs(plugin(ctx, h.Kubeconfig, "check").Out) }).Should(BeEmpty())
	})
})
