{{/* The fewest rules of a grid, which has verbs by "group resource", as package rights makes them;
     as JSON. What "*" gives is not given again. */}}
{{- define "millrace.rules" -}}
{{- $every := get . "* *" | default dict -}}
{{- $order := list -}}{{- $shared := dict -}}
{{- range $at := keys . | sortAlpha -}}
{{- $verbs := list -}}
{{- range $verb := keys (get $ $at) | sortAlpha }}{{ if or (eq $at "* *") (not (hasKey $every $verb)) }}{{ $verbs = append $verbs $verb }}{{ end }}{{ end -}}
{{- if $verbs -}}
{{- $parts := splitn " " 2 $at -}}
{{- $by := printf "%s %s" $parts._0 (join " " $verbs) -}}
{{- if not (hasKey $shared $by) -}}
{{- $order = append $order $by -}}
{{- $_ := set $shared $by (dict "apiGroups" (list $parts._0) "resources" list "verbs" $verbs) -}}
{{- end -}}
{{- $rule := get $shared $by -}}
{{- $_ := set $rule "resources" (append $rule.resources $parts._1) -}}
{{- end -}}
{{- end -}}
{{- $rules := list -}}
{{- range $order }}{{ $rules = append $rules (get $shared .) }}{{ end -}}
{{- $rules | toJson -}}
{{- end -}}

{{- define "millrace.grid.add" -}}
{{- $at := printf "%s %s" .group .resource -}}
{{- if not (hasKey .grid $at) }}{{ $_ := set .grid $at dict }}{{ end -}}
{{- range .verbs }}{{ $_ := set (get $.grid $at) . true }}{{ end -}}
{{- end -}}

{{/* Whether a watcher of a scope reads a kind: "true", or nothing. */}}
{{- define "millrace.scope.has" -}}
{{- if or (eq .scope "all") (eq (and (has .kind .builtIn) (ne .kind "secrets")) (eq .scope "built-in")) }}true{{ end -}}
{{- end -}}

{{/* The controllers whose kinds are watched. */}}
{{- define "millrace.watched" -}}
{{- $names := list -}}
{{- range $name, $mode := include "millrace.chosen" . | fromJson -}}
{{- if or (ne $name "serviceaccount-token-controller") $.Values.tokens.secret }}{{ $names = append $names $name }}{{ end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* What a watcher of a scope must be allowed; as JSON. */}}
{{- define "millrace.watcher.rules" -}}
{{- $facts := include "millrace.facts" .root | fromYaml -}}
{{- $read := list "list" "watch" -}}
{{- $grid := dict -}}{{- $every := false -}}{{- $kinds := list -}}
{{- $custom := .root.Values.rbac.customKinds -}}
{{- range $name := include "millrace.watched" .root | fromJsonArray -}}
{{- $fact := get $facts.controllers $name -}}
{{- if $fact.every }}{{ $every = true }}{{ end -}}
{{- $kinds = concat $kinds (default list $fact.reads) -}}
{{- end -}}
{{- $any := and $every (ne .scope "built-in") (has "*" $custom) -}}
{{- if $every }}{{ $kinds = concat $kinds $facts.builtIn (without $custom "*") }}{{ end -}}
{{- if $any -}}
{{- include "millrace.grid.add" (dict "grid" $grid "group" "*" "resource" "*" "verbs" $read) -}}
{{- else -}}
{{- range $kind := $kinds | uniq -}}
{{- if include "millrace.scope.has" (dict "scope" $.scope "kind" $kind "builtIn" $facts.builtIn) -}}
{{- $parts := splitn "." 2 $kind -}}
{{- include "millrace.grid.add" (dict "grid" $grid "group" (default "" $parts._1) "resource" $parts._0 "verbs" $read) -}}
{{- end -}}
{{- end -}}
{{- if $every }}{{ include "millrace.grid.add" (dict "grid" $grid "group" "" "resource" "namespaces" "verbs" $read) }}{{ end -}}
{{- end -}}
{{- include "millrace.rules" $grid -}}
{{- end -}}

{{/* What a writer of some controllers must be allowed while it impersonates; as JSON. */}}
{{- define "millrace.writer.rules" -}}
{{- $facts := include "millrace.facts" .root | fromYaml -}}
{{- $custom := .root.Values.rbac.customKinds -}}
{{- $grid := dict -}}{{- $paths := list -}}
{{- range $name := .controllers -}}
{{- $fact := get $facts.controllers $name -}}
{{- $paths = concat $paths (default list $fact.paths) -}}
{{- range $write := $fact.writes -}}
{{- $parts := splitn " " 3 $write -}}
{{- $group := ternary "" $parts._1 (eq $parts._1 "core") -}}
{{- $verbs := list (printf "impersonate-on:serviceaccount:%s" $parts._0) -}}
{{- if and (eq $group "*") (eq $parts._2 "*") (not (has "*" $custom)) -}}
{{- range $kind := concat $facts.builtIn $custom -}}
{{- $of := splitn "." 2 $kind -}}
{{- include "millrace.grid.add" (dict "grid" $grid "group" (default "" $of._1) "resource" $of._0 "verbs" $verbs) -}}
{{- end -}}
{{- else -}}
{{- include "millrace.grid.add" (dict "grid" $grid "group" $group "resource" $parts._2 "verbs" $verbs) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $rules := include "millrace.rules" $grid | fromJsonArray -}}
{{- range $path := $paths | uniq | sortAlpha -}}
{{- $rules = append $rules (dict "nonResourceURLs" (list $path) "verbs" (list "impersonate-on:serviceaccount:get")) -}}
{{- end -}}
{{- $rules | toJson -}}
{{- end -}}

{{- define "millrace.account" }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* A role in the whole cluster, given to accounts. */}}
{{- define "millrace.cluster" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
rules:
{{ .rules | toYaml }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
{{- include "millrace.subjects" . }}
{{- end -}}

{{- define "millrace.subjects" -}}
{{- range .accounts }}
- kind: ServiceAccount
  name: {{ . }}
  namespace: {{ $.namespace | default $.root.Release.Namespace }}
{{- end }}
{{- end -}}

{{/* A writer's identities, and what it may do with them. */}}
{{- define "millrace.writer.roles" -}}
{{- $facts := include "millrace.facts" .root | fromYaml -}}
{{- $identities := list -}}
{{- range .controllers }}{{ $identities = append $identities (get $facts.controllers .).identity }}{{ end -}}
{{- $classic := eq .root.Values.rbac.impersonation "classic" }}
---
# The writer writes as the service accounts of these controllers, and as none else.
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}-identities
rules:
- apiGroups: [{{ ternary "\"\"" "authentication.k8s.io" $classic }}]
  resources: [serviceaccounts]
  resourceNames: {{ $identities | uniq | sortAlpha | toJson }}
  verbs: [{{ ternary "impersonate" "impersonate:serviceaccount" $classic | quote }}]
---
# It is bound in kube-system alone: no account of another namespace can be meant.
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}-identities
  namespace: kube-system
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}-identities
subjects:
{{- include "millrace.subjects" (dict "root" .root "accounts" (list .account)) }}
{{- if not $classic }}
{{- $rules := include "millrace.writer.rules" . | fromJsonArray }}
{{- include "millrace.cluster" (dict "root" .root "name" .name "rules" $rules "accounts" (list .account)) }}
{{- end }}
{{- end -}}

{{/* The right to the Lease with which the controllers move. */}}
{{- define "millrace.leader" }}
---
# A writer holds the Lease while Millrace runs the controllers.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: kube-system
rules:
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ .root.Values.takeover.lease }}]
  verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: kube-system
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
{{- include "millrace.subjects" (dict "root" .root "accounts" (list .account)) }}
{{- end -}}

{{/* By which accounts ask the API server who sends a request for metrics. */}}
{{- define "millrace.delegator" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}-delegator
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:auth-delegator
subjects:
{{- include "millrace.subjects" . }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}-delegator
  namespace: kube-system
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: extension-apiserver-authentication-reader
subjects:
{{- include "millrace.subjects" . }}
{{- end -}}

{{/* The writers: name, controllers, mode and the list for --controllers, which is empty for one
     alone; as JSON. */}}
{{- define "millrace.writers" -}}
{{- $facts := include "millrace.facts" . | fromYaml -}}
{{- $active := include "millrace.active" . | fromJsonArray -}}
{{- $writers := list -}}
{{- if and $active (not .Values.writer.split.enabled) -}}
{{- $writers = list (dict "name" "writer" "controllers" (without $active "serviceaccount-token-controller") "mode" .Values.writer.mode "list" "" "share" "") -}}
{{- else if $active -}}
{{- $shares := dict "workloads" list "collectors" list "credentials" list -}}
{{- $taken := list -}}
{{- range $name := $active }}{{ $share := (get $facts.controllers $name).writer }}{{ $_ := set $shares $share (append (get $shares $share) $name) }}{{ end -}}
{{- range $name, $fact := $facts.controllers }}{{ if and (ne $fact.writer "workloads") (not $fact.off) }}{{ $taken = append $taken (printf "-%s" $name) }}{{ end }}{{ end -}}
{{- range $share := list "workloads" "collectors" "credentials" -}}
{{- $names := get $shares $share -}}
{{- $list := join "," $names -}}
{{- if and (eq $share "workloads") (eq $.Values.controllers.default "active") (not $.Values.controllers.modes) }}{{ $list = join "," (prepend $taken "*") }}{{ end -}}
{{- if $names -}}
{{- $writers = append $writers (dict "name" (printf "writer-%s" $share) "controllers" $names "mode" (get $.Values.writer.split.modes $share | default $.Values.writer.mode) "list" $list "share" $share) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $writers | toJson -}}
{{- end -}}
