package main

// setting is a value of the chart.
type setting struct {
	// name is where it is in values.yaml; dots lead into groups.
	name string
	// says what it does, in Markdown.
	says string
	// def is its default; nil where config has it, at the value's place.
	def any
	// schema is JSON schema beside the type of the default.
	schema string
}

// settings are all values, in the order in which people are shown them. A group is one whose default is of that type.
var settings = []setting{
	{name: "image", def: group{}, says: "The manager's image. Nothing is published under the default name: say where yours is."},
	{name: "image.registry", says: "Registry that nodes pull from; empty if it is in `repository`."},
	{name: "image.repository", says: "Name in the registry."},
	{name: "image.tag", def: "", says: "Tag; by default the chart's `appVersion`."},
	{name: "image.digest", def: "", says: "Digest, as `sha256:…`: then that very image is run, whatever the tag is.", schema: `{"pattern": "^(sha256:[0-9a-f]{64})?$"}`},
	{name: "image.pullPolicy", def: "", says: "When nodes pull; by default Kubernetes' own.", schema: `{"enum": ["", "Always", "IfNotPresent", "Never"]}`},
	{name: "imagePullSecrets", def: list{}, says: "Secrets in the release's namespace to pull with, as `[{name: regcred}]`.", schema: `{"items": {"type": "object"}}`},

	{name: "replicas", says: "How many managers run. All serve the webhook, one leads and acts: more than two make nothing faster, and with one no policy can be changed while it restarts.",
		schema: `{"minimum": 0}`},
	{name: "resources", says: "What a manager gets. `GOMEMLIMIT` follows the limit of memory, at nine tenths of it. [How much memory](../how-to/install.md#how-much-memory) it needs."},
	{name: "nodeSelector", says: "Labels of the nodes that managers may run on."},
	{name: "tolerations", says: "Taints that managers stand. Don't add `NoExecute` ones without `tolerationSeconds`: a manager on a dead node must move.", schema: `{"items": {"type": "object"}}`},
	{name: "affinity", def: object{}, says: "Affinity of managers to nodes and pods."},
	{name: "topologySpreadConstraints", says: "How managers are spread over nodes and zones.", schema: `{"items": {"type": "object"}}`},
	{name: "priorityClassName", says: "Priority of managers; empty for the default of the cluster. For one of Kubernetes' own (`system-…`) a ResourceQuota lets up to 20 pods of it into the namespace, but into `kube-system`, where it would hold for others; clusters such as GKE ask for one."},
	{name: "podLabels", def: object{}, says: "Further labels of managers' pods.", schema: labels},
	{name: "podAnnotations", def: object{}, says: "Annotations of managers' pods.", schema: labels},
	{name: "podDisruptionBudget", def: group{}, says: "Keeps drains from taking the webhook away."},
	{name: "podDisruptionBudget.enabled", def: true, says: "Whether there is one."},
	{name: "podDisruptionBudget.maxUnavailable", says: "How many managers drains may take at once, as a number or a percentage.", schema: `{"type": ["integer", "string"]}`},
	{name: "hostNetwork", def: false, says: "Run managers, and the check before an uninstall, in their nodes' network, for API servers that reach nodes but no pods. Each replica then needs a node to itself, the namespace must allow it " +
		"(`pod-security.kubernetes.io/enforce: privileged`), and NetworkPolicies don't hold: [who may connect](../how-to/install.md#who-may-connect)."},
	{name: "ports", def: group{}, says: "Ports that managers listen on. With `hostNetwork` they are the nodes'."},
	{name: "ports.webhook", says: "Port of the webhook, which API servers must reach.", schema: port},
	{name: "ports.metrics", says: "Port of the metrics.", schema: port},
	{name: "ports.probes", says: "Port that kubelets probe.", schema: port},
	{name: "extraEnv", def: list{}, says: "Further environment variables of managers and of the check before an uninstall, such as `{name: HTTPS_PROXY, value: …}` or `{name: SSL_CERT_FILE, value: …}`.", schema: `{"items": {"type": "object"}}`},
	{name: "extraVolumes", def: list{}, says: "Further volumes of managers' pods, such as one with certificate authorities of yours.", schema: `{"items": {"type": "object"}}`},
	{name: "extraVolumeMounts", def: list{}, says: "Where managers have them; in `/etc/ssl/certs` authorities are trusted.", schema: `{"items": {"type": "object"}}`},
	{name: "extraArgs", def: list{}, says: "Further flags of the manager, such as `--v=1`.", schema: `{"items": {"type": "string"}}`},

	{name: "certProvider", def: "self-signed", says: "Where the [serving certificate](../how-to/certificates.md) comes from: `self-signed`, `cert-manager` or `files`.",
		schema: `{"enum": ["self-signed", "cert-manager", "files"]}`},
	{name: "certFiles", def: group{}, says: "For `certProvider: files`."},
	{name: "certFiles.secretName", def: "", says: "Secret in the release's namespace with `tls.crt` and `tls.key`; for `serviceMonitor` with `ca.crt`, too, and a certificate that is valid for `autohealer-metrics`."},
	{name: "webhook", def: group{}, says: "How API servers call the webhook."},
	{name: "webhook.failurePolicy", says: "What becomes of a change of a policy when no manager answers. `Fail` refuses it. **`Ignore` admits it**, judged by the admission policies alone; " +
		"managers act on no policy that breaks their rules, whoever let it in.", schema: `{"enum": ["Fail", "Ignore"]}`},
	{name: "webhook.timeoutSeconds", says: "How long API servers wait for an answer, in seconds.", schema: `{"minimum": 1, "maximum": 30}`},
	{name: "webhook.url", def: "", says: "URL that API servers call in place of the Service, as `https://HOST:PORT/validate`, for managers that they reach by other ways. Name the host to managers, too: `extraArgs: [--webhook-host=HOST]`.",
		schema: `{"pattern": "^(https://[^/?#@\\s]+(/[^?#\\s]*)?)?$"}`},
	{name: "webhook.caBundle", def: "", says: "CAs in PEM, in base64, that API servers trust, for `certProvider: files`. With the others managers publish theirs."},

	{name: "xds", def: group{}, says: "Serve Envoys, for [OutlierPolicies](../concepts/outlier-policies.md#how-envoys-get-it)."},
	{name: "xds.enabled", def: false, says: "Whether managers serve Envoys, at the Service `autohealer-xds`."},
	{name: "xds.port", says: "Port of managers and Service.", schema: port},
	{name: "xds.clientCASecret", def: "", says: "Secret in the release's namespace whose `ca.crt` has the CAs that sign Envoys' certificates. Needed."},
	{name: "xds.clients", def: object{}, says: "Who gets what: names in Envoys' certificates, each with the namespaces whose clusters it gets, `['*']` for all.",
		schema: `{"additionalProperties": {"type": "array", "items": {"type": "string"}}}`},
	{name: "xds.ejectionsFrom", def: list{}, says: "Services of Envoys that are asked whom they have ejected, as `NAMESPACE/SERVICE/PORT`.", schema: `{"items": {"type": "string"}}`},

	{name: "serviceMonitor", def: group{}, says: "For prometheus-operator: scrape managers. Bind Prometheus' account to the ClusterRole `autohealer-metrics-reader`."},
	{name: "serviceMonitor.enabled", def: false, says: "Whether there is one."},
	{name: "serviceMonitor.labels", def: object{}, says: "Labels by which your Prometheus selects it, such as `release: kube-prometheus-stack`.", schema: labels},
	{name: "prometheusRule", def: group{}, says: "For prometheus-operator: the [alerts](../reference/metrics.md)."},
	{name: "prometheusRule.enabled", def: false, says: "Whether there is one."},
	{name: "prometheusRule.labels", def: object{}, says: "Labels by which your Prometheus selects it.", schema: labels},
	{name: "networkPolicy", def: group{}, says: "[Who may connect](../how-to/install.md#who-may-connect) to managers."},
	{name: "networkPolicy.enabled", def: false, says: "Whether there is one."},
	{name: "dashboards", def: group{}, says: "Dashboards, each in a ConfigMap, for the sidecar of Grafana's chart."},
	{name: "dashboards.enabled", def: false, says: "Whether there are any."},
	{name: "dashboards.labels", def: object{"grafana_dashboard": "1"}, says: "Labels by which the sidecar finds them.", schema: labels},

	{name: "crds", def: group{}, says: "The kinds."},
	{name: "crds.enabled", def: true, says: "Whether they are in the release: then they are upgraded with it."},
	{name: "crds.keep", def: true, says: "Whether they, and all policies with them, stay when the release is uninstalled, or has them no more."},
	{name: "uninstallCheck", def: group{}, says: "A Job before `helm uninstall`."},
	{name: "uninstallCheck.enabled", def: true, says: "Refuse to uninstall while there are policies that keep a record of what they did: without the manager nobody undoes it, and they can't be deleted any more."},
	{name: "extraObjects", def: list{}, says: "Further objects of the release, as maps or as texts, which may be templates. No policies: they are refused until a manager is ready.",
		schema: `{"items": {"type": ["object", "string"]}}`},
}

type (
	group struct{}
	list  []any
)

const (
	labels = `{"additionalProperties": {"type": "string"}}`
	port   = `{"minimum": 1, "maximum": 65535}`
)

// extraObjects is the template of the value of that name.
const extraObjects = `{{- range .Values.extraObjects }}
---
{{ tpl (kindIs "string" . | ternary . (toYaml .)) $ }}
{{- end }}
`
