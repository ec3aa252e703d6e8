{{- define "millrace.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The bundled bus: its name is that of its Service, and its component. */}}
{{- define "millrace.bus" -}}
{{- if eq (int .Values.bus.servers) 3 }}millrace-nats{{ else }}millrace-bus{{ end -}}
{{- end -}}

{{- define "millrace.secret" -}}
{{- $name := printf "millrace-%s-bus" .user -}}
{{- if eq .user "bus" }}{{ $name = "millrace-bus" }}{{ end -}}
{{- get .root.Values.credentials.secrets .user | default $name -}}
{{- end -}}

{{- define "millrace.facts" -}}
{{- .Files.Get "files/controllers.yaml" -}}
{{- end -}}

{{/* What was chosen: for each controller of --controllers its mode, active or shadow; as JSON. */}}
{{- define "millrace.chosen" -}}
{{- $facts := include "millrace.facts" . | fromYaml -}}
{{- $chosen := dict -}}
{{- range $name, $fact := $facts.controllers -}}
{{- $mode := get $.Values.controllers.modes $name | default (ternary "off" $.Values.controllers.default (default false $fact.off)) -}}
{{- if ne $mode "off" }}{{ $_ := set $chosen $name $mode }}{{ end -}}
{{- end -}}
{{- $chosen | toJson -}}
{{- end -}}

{{/* Those of a mode, with the rights that they need; serviceaccount-token-controller has roles of its own. */}}
{{- define "millrace.active" -}}
{{- $names := list -}}
{{- range $name, $mode := include "millrace.chosen" . | fromJson }}{{ if eq $mode "active" }}{{ $names = append $names $name }}{{ end }}{{ end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* Those that act here: a controller whose flag is not set stays with kube-controller-manager. */}}
{{- define "millrace.acting" -}}
{{- $facts := include "millrace.facts" . | fromYaml -}}
{{- $names := list -}}
{{- range $name := include "millrace.active" . | fromJsonArray -}}
{{- $fact := get $facts.controllers $name -}}
{{- $runs := not $fact.needs -}}
{{- if eq (default "" $fact.needs) "feature-gates" -}}
{{- $on := default false $fact.gateOn -}}
{{- if hasKey $.Values.featureGates $fact.gate }}{{ $on = get $.Values.featureGates $fact.gate }}{{ end -}}
{{- $runs = eq (toString $on) "true" -}}
{{- end -}}
{{- if eq (default "" $fact.needs) "root-ca-file" }}{{ $runs = ne $.Values.rootCA.configMap "" }}{{ end -}}
{{- if eq (default "" $fact.needs) "service-account-private-key-file" }}{{ $runs = ne $.Values.tokens.secret "" }}{{ end -}}
{{- if eq (default "" $fact.needs) "cluster-signing-cert-file" }}{{ $runs = ne $.Values.signing.secret "" }}{{ end -}}
{{- if $runs }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* The value of --controllers. */}}
{{- define "millrace.controllers" -}}
{{- $facts := include "millrace.facts" . | fromYaml -}}
{{- $items := list -}}
{{- if ne .Values.controllers.default "off" }}{{ $items = list "*" }}{{ end -}}
{{- range $name, $mode := .Values.controllers.modes -}}
{{- $off := default false (get $facts.controllers $name).off -}}
{{- if and (eq $mode "off") (ne $.Values.controllers.default "off") (not $off) }}{{ $items = append $items (printf "-%s" $name) }}{{ end -}}
{{- if and (ne $mode "off") (or (eq $.Values.controllers.default "off") $off) }}{{ $items = append $items $name }}{{ end -}}
{{- end -}}
{{- join "," $items -}}
{{- end -}}

{{/* The value of --shadow; empty where all act. Where shadow is the default it names those that act,
     so that a controller that is new looks on. */}}
{{- define "millrace.shadow" -}}
{{- $facts := include "millrace.facts" . | fromYaml -}}
{{- $items := list -}}
{{- if eq .Values.controllers.default "shadow" }}{{ $items = list "*" }}{{ end -}}
{{- range $name, $mode := .Values.controllers.modes -}}
{{- $off := default false (get $facts.controllers $name).off -}}
{{- if and (eq $mode "active") (eq $.Values.controllers.default "shadow") }}{{ $items = append $items (printf "-%s" $name) }}{{ end -}}
{{- if and (eq $mode "shadow") (or (ne $.Values.controllers.default "shadow") $off) }}{{ $items = append $items $name }}{{ end -}}
{{- end -}}
{{- if include "millrace.active" . | fromJsonArray }}{{ join "," $items }}{{ else }}*{{ end -}}
{{- end -}}

{{/* The Lease with which the active controllers move; empty where none does. */}}
{{- define "millrace.lease" -}}
{{- if include "millrace.active" . | fromJsonArray }}{{ .Values.takeover.lease }}{{ end -}}
{{- end -}}

{{/* What no values that fit the schema can mean. */}}
{{- define "millrace.check" -}}
{{- if and .Values.takeover.lease .Values.writer.split.enabled }}{{ fail "takeover.lease: one writer holds the Lease of all controllers: turn writer.split off, or leave takeover.lease empty and move the controllers with controllers.modes" }}{{ end -}}
{{- if not (include "millrace.chosen" . | fromJson) }}{{ fail "controllers: every controller is off: name one in controllers.modes, or set controllers.default" }}{{ end -}}
{{- if and (eq .Values.bus.mode "external") (not .Values.bus.external.urls) }}{{ fail "bus.external.urls is empty: name the servers of the external bus, such as tls://nats-0.nats:4222" }}{{ end -}}
{{- if and (eq .Values.bus.mode "external") (eq .Values.certificates.source "cert-manager") }}{{ fail "certificates.source is cert-manager, which makes the certificate of a bundled bus; bus.mode is external: put its authority into the Secrets as ca.crt" }}{{ end -}}
{{- if and (eq .Values.certificates.source "cert-manager") (not .Values.certificates.certManager.issuer.name) }}{{ fail "certificates.certManager.issuer.name is empty: name the issuer that signs the certificate of the bus" }}{{ end -}}
{{- if and (gt (int .Values.bus.servers) 1) (ne (int .Values.bus.servers) 3) }}{{ fail "bus.servers is not 1 or 3" }}{{ end -}}
{{- if and .Values.writer.split.enabled (eq .Values.rbac.impersonation "classic") }}{{ fail "writer.split needs rbac.impersonation=constrained: no overlay has both, and nothing tests them together" }}{{ end -}}
{{- if and .Values.writer.split.modes (not .Values.writer.split.enabled) }}{{ fail "writer.split.modes is set, and writer.split.enabled is not: set writer.mode for the one writer" }}{{ end -}}
{{- if and (has "*" .Values.rbac.customKinds) (gt (len .Values.rbac.customKinds) 1) }}{{ fail "rbac.customKinds: \"*\" stands for every kind: give it alone, or the names without it" }}{{ end -}}
{{- if and (not (include "millrace.active" . | fromJsonArray)) (or .Values.writer.split.enabled .Values.tokens.secret .Values.tokens.roles .Values.signing.secret) }}{{ fail "no controller is active, so that there is no writer: writer.split, tokens and signing have no meaning; set controllers.default or controllers.modes" }}{{ end -}}
{{- end -}}
