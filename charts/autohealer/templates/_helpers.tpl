{{- /* Written by hand, beside what hack/gen-chart writes. */ -}}

{{- /* What Helm's charts say of each object. */ -}}
{{- define "autohealer.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end -}}

{{- define "autohealer.image" -}}
{{- with .Values.image -}}
{{ with .registry }}{{ . }}/{{ end }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* GOMEMLIMIT: nine tenths of the limit of memory, in whole MiB; off without a limit. */ -}}
{{- define "autohealer.memoryLimit" -}}
{{- $limit := dig "limits" "memory" "" (.Values.resources | default dict) | toString -}}
{{- $number := regexFind "^[0-9]+([.][0-9]+)?(e[+][0-9]+)?" $limit -}}
{{- $unit := trimPrefix $number $limit -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- if not $limit -}}
off
{{- else if not (and $number (hasKey $units $unit)) -}}
{{- fail (printf "resources.limits.memory: %s can't be read; write it as 1Gi or 1536Mi, for example" $limit) -}}
{{- else -}}
{{ divf (mulf (float64 $number) (float64 (get $units $unit)) 0.9) 1048576 | floor | int64 }}MiB
{{- end -}}
{{- end -}}

{{- define "autohealer.args" -}}
{{- with .Values.ports }}
{{- if ne (int .webhook) 9443 }}
- --webhook-port={{ .webhook }}
{{- end }}
{{- if ne (int .metrics) 8443 }}
- --metrics-bind-address=:{{ .metrics }}
{{- end }}
{{- if ne (int .probes) 8081 }}
- --health-probe-bind-address=:{{ .probes }}
{{- end }}
{{- end }}
{{- if eq .Values.certProvider "files" }}
- --cert-dir=/etc/autohealer/certificate
{{- end }}
{{- with .Values.xds }}{{ if .enabled }}
{{- if not .clients }}{{ fail "xds.enabled needs xds.clients: else no Envoy may get anything" }}{{ end }}
- --xds-bind-address=:{{ .port }}
- --xds-client-ca=/etc/autohealer/xds/ca.crt
{{- range $name, $namespaces := .clients }}
- {{ printf "--xds-client=%s=%s" $name (join "," $namespaces) | quote }}
{{- end }}
{{- range .ejectionsFrom }}
- {{ printf "--ejections-from=%s" . | quote }}
{{- end }}
{{- end }}{{ end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "autohealer.volumes" -}}
{{- if eq .Values.certProvider "files" }}
- name: certificate
  secret:
    secretName: {{ required "certProvider: files needs certFiles.secretName" .Values.certFiles.secretName | quote }}
{{- end }}
{{- if .Values.xds.enabled }}
- name: xds-client-ca
  secret:
    secretName: {{ required "xds.enabled needs xds.clientCASecret: without certificates nobody knows who asks" .Values.xds.clientCASecret | quote }}
    items:
    - key: ca.crt
      path: ca.crt
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "autohealer.volumeMounts" -}}
{{- if eq .Values.certProvider "files" }}
- name: certificate
  mountPath: /etc/autohealer/certificate
  readOnly: true
{{- end }}
{{- if .Values.xds.enabled }}
- name: xds-client-ca
  mountPath: /etc/autohealer/xds
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The Secret with the CA of the certificate that metrics are served with. */ -}}
{{- define "autohealer.caSecret" -}}
{{- if eq .Values.certProvider "cert-manager" -}}
autohealer-webhook-cert-issued
{{- else if eq .Values.certProvider "files" -}}
{{ .Values.certFiles.secretName }}
{{- else -}}
autohealer-webhook-cert
{{- end -}}
{{- end -}}
