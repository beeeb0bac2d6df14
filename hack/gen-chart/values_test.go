package main

import (
	"strings"
	"testing"
)

const everything = `
certProvider: cert-manager
xds: {enabled: true, clientCASecret: envoys, clients: {spiffe://edge: ["*"], spiffe://shop: [shop, payments]}, ejectionsFrom: [edge/envoys/ejections]}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
prometheusRule: {enabled: true, labels: {release: prometheus}}
networkPolicy: {enabled: true}
dashboards: {enabled: true}
`

func TestAllFollowsTheNamespaceOfTheRelease(t *testing.T) {
	here, _, err := render(t, namespace, everything)
	if err != nil {
		t.Fatal(err)
	}
	there, _, err := render(t, "elsewhere", everything)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(here, namespace, "elsewhere"); there != want {
		t.Error("the same chart in another namespace is another one")
	}
	if there == here {
		t.Error("no object has the namespace")
	}
}

func TestWhatValuesDo(t *testing.T) {
	for values, want := range map[string]struct {
		object string
		has    string
	}{
		"image: {registry: r.example.org, repository: a/b, tag: v2}":                                                              {deployment, "image: r.example.org/a/b:v2\n"},
		"image: {registry: '', repository: b, digest: 'sha256:0000000000000000000000000000000000000000000000000000000000000000'}": {deployment, "image: b:v0.1.0@sha256:0000000000000000000000000000000000000000000000000000000000000000\n"},
		"image: {pullPolicy: Always, registry: x}":                                                                                {deployment, "imagePullPolicy: Always\n"},
		"image: {registry: registry}":                                                                                             {check, "image: registry/autohealer:v0.1.0\n"},
		"imagePullSecrets: [{name: regcred}]":                                                                                     {deployment, "imagePullSecrets:\n      - name: regcred\n"},
		"imagePullSecrets: [{name: regcred2}]":                                                                                    {check, "imagePullSecrets:\n      - name: regcred2\n"},
		"replicas: 3":                                                                                                             {deployment, "replicas: 3\n"},
		"resources: {limits: {memory: 2Gi}}":                                                                                      {deployment, "value: 1843MiB\n"},
		"resources: {limits: {memory: 1.5Gi, cpu: 2}}":                                                                            {deployment, "value: 1382MiB\n"},
		"resources: {limits: {memory: 1000M}}":                                                                                    {deployment, "value: 858MiB\n"},
		"resources: {limits: {memory: 2147483648}}":                                                                               {deployment, "value: 1843MiB\n"},
		"resources: {limits: {memory: null}}":                                                                                     {deployment, `value: "off"` + "\n"},
		"nodeSelector: {pool: system}":                                                                                            {deployment, "nodeSelector:\n        kubernetes.io/os: linux\n        pool: system\n"},
		"nodeSelector: {pool: another}":                                                                                           {check, "pool: another\n"},
		"tolerations: []":                                                                                                         {deployment, "tolerations: []\n"},
		"tolerations: [{operator: Exists, effect: NoSchedule}]":                                                                   {check, "tolerations:\n      - effect: NoSchedule\n        operator: Exists\n"},
		"affinity: {nodeAffinity: {}}":                                                                                            {deployment, "affinity:\n        nodeAffinity: {}\n"},
		"topologySpreadConstraints: []":                                                                                           {deployment, "topologySpreadConstraints: []\n"},
		"priorityClassName: system-x":                                                                                             {"ResourceQuota/autohealer-critical-pods", "values:\n      - system-x\n"},
		"podLabels: {team: core}":                                                                                                 {deployment, "app.kubernetes.io/name: autohealer\n        team: core\n"},
		"podAnnotations: {a: b}":                                                                                                  {deployment, "annotations:\n        a: b\n"},
		"podDisruptionBudget: {maxUnavailable: 50%}":                                                                              {"PodDisruptionBudget/*", "maxUnavailable: 50%\n"},
		"hostNetwork: true":                                                                                                       {deployment, "hostNetwork: true\n"},
		"{hostNetwork: true, replicas: 2}":                                                                                        {deployment, "rollingUpdate:\n      maxSurge: 0\n      maxUnavailable: 1\n"},
		"{hostNetwork: true, replicas: 4}":                                                                                        {deployment, "dnsPolicy: ClusterFirstWithHostNet\n"},
		"{hostNetwork: true, replicas: 5}":                                                                                        {check, "hostNetwork: true\n"},
		"ports: {webhook: 10250}":                                                                                                 {deployment, "- --webhook-port=10250\n"},
		"ports: {metrics: 1, probes: 2}":                                                                                          {deployment, "- --metrics-bind-address=:1\n        - --health-probe-bind-address=:2\n"},
		"ports: {webhook: 10251}":                                                                                                 {deployment, "- containerPort: 10251\n          name: webhook\n"},
		"extraEnv: [{name: HTTPS_PROXY, value: p}]":                                                                               {deployment, "name: HTTPS_PROXY\n"},
		"extraEnv: [{name: HTTPS_PROXY, value: q}]":                                                                               {check, "env:\n        - name: HTTPS_PROXY\n"},
		"{extraVolumes: [{name: ca, configMap: {name: ours}}]}":                                                                   {deployment, "volumes:\n      - configMap:\n          name: ours\n        name: ca\n"},
		"{extraVolumeMounts: [{name: ca, mountPath: /etc/ssl/certs/ours}]}":                                                       {deployment, "volumeMounts:\n        - mountPath: /etc/ssl/certs/ours\n"},
		"podLabels: {team: a}":                                                                                                    {check, "team: a\n"},
		"extraArgs: [--v=1, '--webhook-host=a']":                                                                                  {deployment, "- --cert-provider=self-signed\n        - --v=1\n        - --webhook-host=a\n"},
		"{certProvider: files, certFiles: {secretName: tls}}":                                                                     {deployment, "- --cert-provider=files\n        - --cert-dir=/etc/autohealer/certificate\n"},
		"{certProvider: files, certFiles: {secretName: pki}}":                                                                     {deployment, "secretName: pki\n"},
		"{certProvider: files, certFiles: {secretName: ca}, webhook: {caBundle: QQ==}}":                                           {gate, "caBundle: QQ==\n"},
		"{certProvider: files, certFiles: {secretName: a}}":                                                                       {"ClusterRole/autohealer-manager-webhook", "rules: []\n"},
		"{certProvider: files, certFiles: {secretName: b}, serviceMonitor: {enabled: true}}":                                      {"ServiceMonitor/*", "name: b\n"},
		"{certProvider: cert-manager, serviceMonitor: {enabled: true}}":                                                           {"ServiceMonitor/*", "name: autohealer-webhook-cert-issued\n"},
		"serviceMonitor: {enabled: true, labels: {release: p}}":                                                                   {"ServiceMonitor/*", "labels:\n    release: p\n"},
		"prometheusRule: {enabled: true, labels: {release: q}}":                                                                   {"PrometheusRule/*", "labels:\n    release: q\n"},
		"webhook: {failurePolicy: Ignore}":                                                                                        {gate, "failurePolicy: Ignore\n"},
		"webhook: {timeoutSeconds: 10}":                                                                                           {gate, "timeoutSeconds: 10\n"},
		"webhook: {url: 'https://10.0.0.1:9443/validate'}":                                                                        {gate, "clientConfig:\n    url: https://10.0.0.1:9443/validate\n"},
		everything:                   {deployment, "- --xds-bind-address=:18000\n        - --xds-client-ca=/etc/autohealer/xds/ca.crt\n        - --xds-client=spiffe://edge=*\n        - --xds-client=spiffe://shop=shop,payments\n        - --ejections-from=edge/envoys/ejections\n"},
		everything + "replicas: 2\n": {deployment, "- containerPort: 18000\n          name: xds\n"},
		everything + "replicas: 4\n": {"NetworkPolicy/*", "- ports:\n    - port: xds\n"},
		everything + "replicas: 5\n": {"Service/autohealer-xds", "port: 18000\n"},
		"crds: {keep: true}":         {"CustomResourceDefinition/guardrails.*", "scope: Cluster\n"},
		"extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-x'}}]":     {"ConfigMap/healing-x", "kind: ConfigMap\n"},
		"extraObjects: [\"apiVersion: v1\\nkind: Secret\\nmetadata: {name: '{{ .Release.Namespace }}'}\"]": {"Secret/" + namespace, "kind: Secret\n"},
	} {
		t.Run(values, func(t *testing.T) {
			for _, o := range helm(t, values) {
				if o.is(want.object) {
					if !strings.Contains(o.yaml(), want.has) {
						t.Errorf("no %q in\n%s", want.has, o.yaml())
					}
					return
				}
			}
			t.Errorf("there is no %s", want.object)
		})
	}
}

func TestWhatValuesLeaveOut(t *testing.T) {
	for values, pattern := range map[string]string{
		"crds: {enabled: false}":                "CustomResourceDefinition/*",
		"podDisruptionBudget: {enabled: false}": "PodDisruptionBudget/*",
		"priorityClassName: ''":                 "ResourceQuota/*",
		"uninstallCheck: {enabled: false}":      "*/autohealer-uninstall-check",
	} {
		for _, o := range helm(t, values) {
			if o.is(pattern) {
				t.Errorf("%s: there is %s", values, o.id())
			}
		}
	}
	manifests, _, err := render(t, "kube-system", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range read(t, manifests) {
		if o.is("ResourceQuota/*") {
			t.Error("a quota would hold for all critical pods of kube-system")
		}
	}
}

func TestKeptCRDsSaySo(t *testing.T) {
	for values, keeps := range map[string]bool{"": true, "crds: {keep: false}": false} {
		manifests, _, err := render(t, namespace, values)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range separator.Split(manifests, -1) {
			definition := strings.Contains(text, "\nkind: CustomResourceDefinition\n")
			if kept := strings.Contains(text, "\n    helm.sh/resource-policy: keep\n"); kept != (definition && keeps) {
				t.Errorf("%q: kept: %t\n%.200s", values, kept, text)
			}
		}
	}
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	for values, says := range map[string]string{
		"replica: 3":                               "replica",
		"image: {repo: a}":                         "repo",
		"replicas: many":                           "replicas",
		"certProvider: acme":                       "certProvider",
		"webhook: {failurePolicy: Sometimes}":      "failurePolicy",
		"webhook: {timeoutSeconds: 31}":            "timeoutSeconds",
		"webhook: {url: 'http://a'}":               "url",
		"webhook: {url: 'https://'}":               "url",
		"webhook: {url: 'https://u:p@a/validate'}": "url",
		"webhook: {url: 'https://a/validate?b=c'}": "url",
		"webhook: {url: 'https://a b/validate'}":   "url",
		"image: {digest: 'sha256:0'}":              "digest",
		"image: {digest: '0000000000000000000000000000000000000000000000000000000000000000'}":        "digest",
		"image: {digest: 'sha256:GGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGGG'}": "digest",
		"certProvider: files":                     "certProvider: files needs certFiles.secretName",
		"xds: {enabled: true}":                    "xds.enabled needs xds.clients",
		"xds: {enabled: true, clients: {a: [b]}}": "xds.enabled needs xds.clientCASecret",
		"resources: {limits: {memory: 1024Mib}}":  "resources.limits.memory: 1024Mib can't be read; write it as 1Gi or 1536Mi, for example",
		"resources: {limits: {memory: lots}}":     "resources.limits.memory: lots can't be read",
	} {
		if _, _, err := render(t, namespace, values); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", values, err)
		}
	}
	if _, _, err := render(t, namespace, "global: {imageRegistry: a}\nenabled: true"); err != nil {
		t.Errorf("as a part of another chart: %v", err)
	}
}

func TestNotesWarn(t *testing.T) {
	for values, says := range map[string]string{
		"":                                 "nothing is published at registry.example.com",
		"webhook: {failurePolicy: Ignore}": "webhook.failurePolicy is Ignore",
		"uninstallCheck: {enabled: false}": "helm uninstall takes the manager away whatever it has to undo",
		"hostNetwork: true":                "pod-security.kubernetes.io/enforce=privileged",
	} {
		if _, notes, err := render(t, namespace, values); err != nil || !strings.Contains(notes, says) {
			t.Errorf("%q: %v\n%s", values, err, notes)
		}
	}
	if _, notes, err := render(t, namespace, "image: {registry: r.example.org}"); err != nil || strings.Contains(notes, "WARNING") {
		t.Errorf("%v\n%s", err, notes)
	}
}
