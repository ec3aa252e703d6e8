{{/* What all pods have, restricted as Pod Security's "restricted" asks. */}}
{{- define "millrace.pod.common" -}}
enableServiceLinks: false
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
{{- end -}}

{{- define "millrace.container.common" -}}
image: {{ include "millrace.image" .root | quote }}
{{- with .root.Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
readinessProbe: {httpGet: {path: /readyz, port: health}, periodSeconds: 2}
livenessProbe: {httpGet: {path: /livez, port: health}, periodSeconds: 10}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{- define "millrace.volume.metrics" -}}
- {name: metrics, secret: {secretName: {{ .Values.observability.metricsSecret }}, optional: true, defaultMode: 0440}}
{{- end -}}

{{- define "millrace.labels" -}}
app.kubernetes.io/name: {{ .root.Values.nameOverride }}
app.kubernetes.io/component: {{ .component }}
{{- with .share }}
millrace.io/writer: {{ . }}
{{- end }}
{{- end -}}

{{/* How a service comes to the bus. */}}
{{- define "millrace.login" -}}
{{- if and (eq .root.Values.bus.mode "external") (eq .root.Values.bus.external.login "credentials") -}}
- --nats-credentials=/etc/bus/nats.creds
{{- else -}}
- --nats-user={{ .user }}
- --nats-password-file=/etc/bus/password
{{- end -}}
{{- end -}}

{{/* A service: a Deployment, with its budget. */}}
{{- define "millrace.service" }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  replicas: {{ .values.replicas }}
  selector:
    matchLabels:
      {{- include "millrace.labels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "millrace.labels" . | nindent 8 }}
      annotations:
        checksum/settings: {{ include "millrace.settings" .root | sha256sum }}
        {{- with .values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "millrace.pod.common" . | nindent 6 }}
      {{- if .account }}
      serviceAccountName: {{ .account }}
      {{- else }}
      automountServiceAccountToken: false # no Kubernetes credentials
      {{- end }}
      {{- if .root.Values.topologySpread.enabled }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: {{ .root.Values.topologySpread.whenUnsatisfiable }}
          labelSelector:
            matchLabels:
              {{- include "millrace.labels" . | nindent 14 }}
      {{- end }}
      containers:
        - name: {{ .container }}
          {{- include "millrace.container.common" . | nindent 10 }}
          args:
            - {{ .program }}
            {{- range .first }}
            - {{ . | quote }}
            {{- end }}
            - --config=/etc/millrace/{{ .settings | default "services" }}.yaml
            {{- include "millrace.login" . | nindent 12 }}
            {{- range concat (.last | default list) .values.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          ports: [{name: health, containerPort: 10260}]
          resources: {{ toJson .values.resources }}
          volumeMounts:
            - {name: config, mountPath: /etc/millrace}
            - {name: bus, mountPath: /etc/bus, readOnly: true}
            - {name: metrics, mountPath: /etc/millrace-metrics, readOnly: true}
            {{- if eq .root.Values.certificates.source "cert-manager" }}
            - {name: authority, mountPath: /etc/bus-authority, readOnly: true}
            {{- end }}
            {{- range .volumes }}
            - {name: {{ .name }}, mountPath: {{ .path }}, readOnly: true}
            {{- end }}
      volumes:
        - {name: config, configMap: {name: millrace}}
        - {name: bus, secret: {secretName: {{ include "millrace.secret" . }}, defaultMode: 0440}}
        {{- include "millrace.volume.metrics" .root | nindent 8 }}
        {{- if eq .root.Values.certificates.source "cert-manager" }}
        {{- include "millrace.volume.authority" . | nindent 8 }}
        {{- end }}
        {{- range .volumes }}
        - {{ toJson .volume }}
        {{- end }}
{{- include "millrace.budget" . }}
{{- end -}}

{{/* The authority alone: the key of the bus stays with the bus. */}}
{{- define "millrace.volume.authority" -}}
- {name: authority, secret: {secretName: millrace-bus-tls, defaultMode: 0440, items: [{key: ca.crt, path: ca.crt}]}}
{{- end -}}

{{- define "millrace.budget" -}}
{{- if .root.Values.podDisruptionBudget.enabled }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
spec:
  maxUnavailable: {{ .root.Values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "millrace.labels" . | nindent 6 }}
{{- end }}
{{- end -}}

{{/* Where the bus is, for a file of settings and for the notary; as a map of flags. */}}
{{- define "millrace.bus.flags" -}}
{{- $flags := dict "nats-ca-file" (ternary "/etc/bus-authority/ca.crt" "/etc/bus/ca.crt" (eq .Values.certificates.source "cert-manager")) -}}
{{- if eq .Values.bus.mode "external" -}}
{{- $_ := set $flags "nats-url" (join "," .Values.bus.external.urls) -}}
{{- with .Values.bus.external.monitoring }}{{ $_ := set $flags "nats-monitoring" (join "," .) }}{{ end -}}
{{- $_ := set $flags "stream-replicas" (int .Values.bus.external.streamReplicas) -}}
{{- if .Values.bus.external.requireAuditGrade }}{{ $_ := set $flags "require-audit-grade" true }}{{ end -}}
{{- else if eq (int .Values.bus.servers) 3 -}}
{{- $urls := list -}}{{- $pages := list -}}
{{- range $i := until 3 -}}
{{- $urls = append $urls (printf "tls://millrace-nats-%d.millrace-nats:4222" $i) -}}
{{- $pages = append $pages (printf "https://millrace-nats-%d.millrace-nats:10260" $i) -}}
{{- end -}}
{{- $_ := set $flags "nats-url" (join "," $urls) -}}
{{- $_ := set $flags "nats-monitoring" (join "," $pages) -}}
{{- $_ := set $flags "stream-replicas" 3 -}}
{{- $_ := set $flags "require-audit-grade" true -}}
{{- else -}}
{{- $_ := set $flags "nats-url" "tls://millrace-bus:4222" -}}
{{- end -}}
{{- $flags | toJson -}}
{{- end -}}

{{/* The ConfigMap's data: what the services are told. */}}
{{- define "millrace.settings" -}}
{{- $common := include "millrace.bus.flags" . | fromJson -}}
{{- $_ := set $common "health-address" "0.0.0.0:10260" -}}
{{- $_ := set $common "metrics-token-file" "/etc/millrace-metrics/token" -}}
{{- $services := merge (dict "controllers" (include "millrace.controllers" .)) $common -}}
{{- with include "millrace.shadow" . }}{{ $_ := set $services "shadow" . }}{{ end -}}
{{- if .Values.featureGates -}}
{{- $gates := list -}}
{{- range $name, $on := .Values.featureGates }}{{ $gates = append $gates (printf "%s=%t" $name $on) }}{{ end -}}
{{- $_ := set $services "feature-gates" (join "," $gates) -}}
{{- end -}}
{{- if .Values.tokens.secret }}{{ $_ := set $services "service-account-private-key-file" "/etc/millrace-tokens/sa.key" }}{{ end -}}
{{- if .Values.signing.secret -}}
{{- $_ := set $services "cluster-signing-cert-file" "/etc/millrace-signing/tls.crt" -}}
{{- $_ := set $services "cluster-signing-key-file" "/etc/millrace-signing/tls.key" -}}
{{- end -}}
{{- if include "millrace.lease" . -}}
{{- $_ := set $services "enable-leader-migration" true -}}
{{- $_ := set $services "leader-migration-config" "/etc/millrace/migration.yaml" -}}
{{- end -}}
services.yaml: |
  apiVersion: millrace.io/v1alpha1
  kind: MillraceConfiguration
  flags:
    {{- merge (deepCopy .Values.flags.services) $services | toYaml | nindent 4 }}
{{- with include "millrace.lease" . }}
# The controllers that move between kube-controller-manager and Millrace (docs/takeover.md).
migration.yaml: |
  apiVersion: controllermanager.config.k8s.io/v1
  kind: LeaderMigrationConfiguration
  leaderName: {{ . }}
  controllerLeaders:
    {{- range include "millrace.active" $ | fromJsonArray }}
    - {name: {{ . }}, component: "*"}
    {{- end }}
{{- end }}
{{- with .Values.writer.limits }}
# What the writers hold (docs/write-limits.md).
write-limits.yaml: |
  apiVersion: millrace.io/v1alpha1
  kind: WriteLimits
  limits:
    {{- toYaml . | nindent 4 }}
{{- end }}
# The provisioner's: it says how much of the record is kept (stream-max-age, retention).
provisioner.yaml: |
  apiVersion: millrace.io/v1alpha1
  kind: MillraceConfiguration
  flags:
    {{- merge (deepCopy .Values.flags.provisioner) $common | toYaml | nindent 4 }}
{{- end -}}
