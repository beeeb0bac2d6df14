package main

const (
	// namespace is config's; in the chart it is the release's.
	namespace  = "autohealer-system"
	deployment = "Deployment/autohealer-manager"
	gate       = "ValidatingWebhookConfiguration/autohealer"
	check      = "Job/autohealer-uninstall-check"
	pod        = "/spec/template/spec"
	container  = pod + "/containers/0"
	imagePath  = container + "/image"

	issued = `eq .Values.certProvider "cert-manager"`
	image  = `include "autohealer.image" . | quote`
)

// conditions say when objects are in a release.
var conditions = []struct{ objects, when string }{
	{"CustomResourceDefinition/*", ".Values.crds.enabled"},
	{"PodDisruptionBudget/*", ".Values.podDisruptionBudget.enabled"},
	// Clusters ask for it for their own classes. In kube-system it would hold for the pods of others.
	{"ResourceQuota/*", `and (hasPrefix "system-" .Values.priorityClassName) (ne .Release.Namespace "kube-system")`},
	{"*/autohealer-manager-certificates", issued},
	{"NetworkPolicy/*", ".Values.networkPolicy.enabled"},
	{"ServiceMonitor/*", ".Values.serviceMonitor.enabled"},
	{"PrometheusRule/*", ".Values.prometheusRule.enabled"},
	{"Service/autohealer-xds", ".Values.xds.enabled"},
	{"*/autohealer-uninstall-check", ".Values.uninstallCheck.enabled"},
	{"ConfigMap/autohealer-dashboards", ".Values.dashboards.enabled"},
}

// place is one of config's objects where the chart has something else.
type place struct {
	objects string // Kind/name, with the wildcards of path.Match
	path    string // JSON pointer
	has     rewrite
}

// places are all of them. The generator fails at one that isn't there.
var places = []place{
	{"*/*", "/metadata/labels/-helm", lines(`include "autohealer.labels" . | fromYaml`)},
	{"CustomResourceDefinition/*", "/metadata/annotations/-helm", when(".Values.crds.keep", "helm.sh/resource-policy: keep")},

	{deployment, "/spec/replicas", value("replicas")},
	// With the node's network two replicas can't be on one node, not even while one replaces the other.
	{deployment, "/spec/strategy/rollingUpdate", unless(".Values.hostNetwork", `rollingUpdate: {maxSurge: 0, maxUnavailable: 1}`)},
	{deployment, "/spec/template/metadata/labels/-more", lines(".Values.podLabels")},
	{deployment, "/spec/template/metadata/annotations", optional(".Values.podAnnotations")},
	{deployment, pod + "/affinity", optional(".Values.affinity")},
	{deployment, pod + "/hostNetwork", when(".Values.hostNetwork", "hostNetwork: true")},
	{deployment, pod + "/dnsPolicy", when(".Values.hostNetwork", "dnsPolicy: ClusterFirstWithHostNet")},
	{deployment, pod + "/imagePullSecrets", optional(".Values.imagePullSecrets")},
	{deployment, pod + "/nodeSelector", block("nodeSelector")},
	{deployment, pod + "/priorityClassName", value("priorityClassName")},
	{deployment, pod + "/tolerations", block("tolerations")},
	{deployment, pod + "/topologySpreadConstraints", block("topologySpreadConstraints")},
	{deployment, pod + "/volumes", optional(`include "autohealer.volumes" . | fromYamlArray`)},
	{deployment, imagePath, inline(image)},
	{deployment, container + "/imagePullPolicy", optional(".Values.image.pullPolicy")},
	{deployment, container + "/args/1", inline(`printf "--cert-provider=%s" .Values.certProvider`)},
	{deployment, container + "/args/-", lines(`include "autohealer.args" . | fromYamlArray`)},
	{deployment, container + "/env/-", lines(".Values.extraEnv")},
	{deployment, container + "/env/2/value", inline(`include "autohealer.memoryLimit" . | quote`)},
	{deployment, container + "/ports/0/containerPort", value("ports.webhook")},
	{deployment, container + "/ports/1/containerPort", value("ports.metrics")},
	{deployment, container + "/ports/2/containerPort", value("ports.probes")},
	{deployment, container + "/ports/-", when(".Values.xds.enabled", "- {name: xds, containerPort: {{ .Values.xds.port }}}")},
	{deployment, container + "/resources", block("resources")},
	{deployment, container + "/volumeMounts", optional(`include "autohealer.volumeMounts" . | fromYamlArray`)},

	{"PodDisruptionBudget/autohealer-manager", "/spec/maxUnavailable", value("podDisruptionBudget.maxUnavailable")},
	{"ResourceQuota/autohealer-critical-pods", "/spec/scopeSelector/matchExpressions/0/values/0", inline(".Values.priorityClassName | quote")},

	{gate, "/metadata/annotations", when(issued, "annotations: {cert-manager.io/inject-ca-from-secret: "+namespace+"/autohealer-webhook-cert-bundle}")},
	{gate, "/webhooks/0/clientConfig/service", unless(".Values.webhook.url", "url: {{ .Values.webhook.url | quote }}")},
	{gate, "/webhooks/0/clientConfig/caBundle", optional(".Values.webhook.caBundle")},
	{gate, "/webhooks/0/failurePolicy", value("webhook.failurePolicy")},
	{gate, "/webhooks/0/timeoutSeconds", value("webhook.timeoutSeconds")},
	// The right to publish the CA is for managers that make it.
	{"ClusterRole/autohealer-manager-webhook", "/rules", unless(`ne .Values.certProvider "self-signed"`, "rules: []")},

	{"NetworkPolicy/autohealer-manager", "/spec/ingress/-", when(".Values.xds.enabled", "- ports: [{port: xds}]")},
	{"Service/autohealer-xds", "/spec/ports/0/port", value("xds.port")},

	{"ServiceMonitor/autohealer", "/metadata/labels/-more", lines(".Values.serviceMonitor.labels")},
	{"ServiceMonitor/autohealer", "/spec/endpoints/0/tlsConfig/ca/secret/name", inline(`include "autohealer.caSecret" .`)},
	{"PrometheusRule/autohealer", "/metadata/labels/-more", lines(".Values.prometheusRule.labels")},
	{"ConfigMap/autohealer-dashboards", "/metadata/labels/grafana_dashboard", instead(".Values.dashboards.labels")},

	{check, "/spec/template/metadata/labels/-more", lines(".Values.podLabels")},
	{check, "/spec/template/metadata/annotations", optional(".Values.podAnnotations")},
	// By which managers reach the API server, the check does.
	{check, pod + "/hostNetwork", when(".Values.hostNetwork", "hostNetwork: true")},
	{check, container + "/env", optional(".Values.extraEnv")},
	{check, pod + "/imagePullSecrets", optional(".Values.imagePullSecrets")},
	{check, pod + "/nodeSelector", optional(".Values.nodeSelector")},
	{check, pod + "/tolerations", optional(".Values.tolerations")},
	{check, imagePath, inline(image)},
	{check, container + "/imagePullPolicy", optional(".Values.image.pullPolicy")},
}
