{{- define "trimtab.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* 52 characters leave room for the longest suffix, -restore and the hash of its pod */}}
{{- define "trimtab.fullname" -}}
{{- $name := include "trimtab.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* Objects of the whole cluster carry the namespace in their names: other releases have their own. */}}
{{- define "trimtab.clusterName" -}}
{{- printf "%s-%s" (include "trimtab.fullname" .) .Release.Namespace }}
{{- end }}

{{- define "trimtab.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "trimtab.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.create is false: set serviceAccount.name to one that exists" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* The ServiceAccount of a hook that restores: one of its own, or the operator's if the chart may not create Roles.
       Call with (list . NAME). */}}
{{- define "trimtab.hookAccount" -}}
{{- (first .).Values.rbac.create | ternary (last .) (include "trimtab.serviceAccountName" (first .)) }}
{{- end }}

{{- define "trimtab.selectorLabels" -}}
app.kubernetes.io/name: {{ include "trimtab.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "trimtab.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "trimtab.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: trimtab
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Metadata of an object. Call with (dict "root" $ "name" NAME), and optionally "namespace" (empty: an object of the
       whole cluster), "labels" and "annotations". */}}
{{- define "trimtab.metadata" -}}
name: {{ .name }}
{{- with hasKey . "namespace" | ternary .namespace .root.Release.Namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "trimtab.labels" .root | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Annotations of a hook. Call with (list EVENT WEIGHT). */}}
{{- define "trimtab.hook" -}}
helm.sh/hook: {{ index . 0 }}
helm.sh/hook-weight: {{ index . 1 | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* There is no default: what a stranger publishes under a name of ours would run with the operator's rights. */}}
{{- define "trimtab.image" -}}
{{- $none := "image.repository is empty, and no image of Trimtab is published: build one (docs/chart.md), push it to your registry, and set image.repository=REGISTRY/trimtab" }}
{{- $repository := required $none .Values.image.repository }}
{{- with .Values.image.registry }}
{{- $repository = printf "%s/%s" . $repository }}
{{- end }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* What the pods of the operator and of the hooks share: where they run, and as which user. */}}
{{- define "trimtab.pod" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- with .Values.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.hostAliases }}
hostAliases: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}

{{- /* The environment of the operator and of the hooks. */}}
{{- define "trimtab.env" -}}
- {name: PYTHONUNBUFFERED, value: "1"}
- {name: HOME, value: /tmp}
- {name: TMPDIR, value: /tmp}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The spec of a hook's Job. Call with (dict "root" $ "name" NAME "command" LIST "args" LIST "resources" RESOURCES
       "seconds" N "account" ACCOUNT "podAnnotations" DICT "retries" N "volume" VOLUME); without an account, the pod has no
       token. The volume is mounted at /etc/trimtab. */}}
{{- define "trimtab.job" -}}
{{- $values := .root.Values -}}
backoffLimit: {{ int .retries }}
activeDeadlineSeconds: {{ int .seconds }}
template:
  metadata:
    labels:
      {{- with $values.podLabels }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      app.kubernetes.io/name: {{ printf "%s-%s" (include "trimtab.name" .root) .name }}
      app.kubernetes.io/instance: {{ .root.Release.Name }}
    {{- with .podAnnotations }}
    annotations: {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    restartPolicy: Never
    {{- with .account }}
    serviceAccountName: {{ . }}
    {{- else }}
    automountServiceAccountToken: false
    {{- end }}
    {{- include "trimtab.pod" .root | trim | nindent 4 }}
    {{- with $values.affinity }}
    affinity: {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      - name: {{ .name }}
        image: {{ include "trimtab.image" .root }}
        imagePullPolicy: {{ $values.image.pullPolicy }}
        command: {{ toJson .command }}
        args: {{- toYaml .args | nindent 10 }}
        env: {{- include "trimtab.env" .root | nindent 10 }}
        {{- with $values.extraEnvFrom }}
        envFrom: {{- toYaml . | nindent 10 }}
        {{- end }}
        resources: {{- toYaml .resources | nindent 10 }}
        securityContext: {{- toYaml $values.securityContext | nindent 10 }}
        volumeMounts:
          - {name: scratch, mountPath: /tmp}
          {{- with .volume }}
          - {name: {{ .name }}, mountPath: /etc/trimtab, readOnly: true}
          {{- end }}
          {{- with $values.extraVolumeMounts }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
    volumes:
      - name: scratch
        emptyDir: {sizeLimit: 64Mi}
      {{- with .volume }}
      - {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end }}

{{- /* The rules of the Role or ClusterRole in files/rbac.yaml, as `trimtab rbac` renders them, with the Lease's name.
       Call with (list . kind). */}}
{{- define "trimtab.rules" -}}
{{- $root := index . 0 }}
{{- $kind := index . 1 }}
{{- range splitList "---\n" ($root.Files.Get "files/rbac.yaml") }}
{{- if contains (printf "\nkind: %s\nmetadata:" $kind) . }}
{{- $lease := printf "- %s  # --lease-name" (quote $root.Values.lease.name) }}
{{- splitList "\nrules:\n" . | last | trimSuffix "\n" | replace "- trimtab  # --lease-name" $lease }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whether other namespaces than the release's own are managed: "true", or nothing. */}}
{{- define "trimtab.elsewhere" -}}
{{- if or .Values.watchAllNamespaces .Values.watchNamespaces }}true{{ end }}
{{- end }}

{{- /* The operator's rules that concern its Lease (and Events on it), or a messaging cluster. Call with (list . PART),
       PART lease or cluster. */}}
{{- define "trimtab.rulesOf" -}}
{{- $part := last . }}
{{- range include "trimtab.rules" (list (first .) "Role") | fromYamlArray }}
{{- $lease := has "leases" .resources }}
{{- if or (has "events" .resources) (eq $lease (eq $part "lease")) }}
{{ toYaml (list .) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A Role and its binding in a namespace; without a namespace, a ClusterRole and its binding. Call with (dict "root" $
       "name" NAME "namespace" NAMESPACE "rules" TEXT "account" ACCOUNT "annotations" DICT). */}}
{{- define "trimtab.grant" -}}
{{- $kind := ternary "Role" "ClusterRole" (ne .namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata: {{- include "trimtab.metadata" . | nindent 2 }}
rules:
{{ .rules | trimAll "\n" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata: {{- include "trimtab.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- /* Where Spark runs: local[N], the sidecar, a URL (from a Secret by way of the environment), or none. */}}
{{- define "trimtab.spark" -}}
{{- with .Values.spark }}
{{- if eq .mode "embedded" }}
{{- printf "local[%d]" (int .cores) }}
{{- else if eq .mode "sidecar" }}
{{- printf "sc://127.0.0.1:%d" (int .sidecar.port) }}
{{- else if eq .mode "none" }}
{{- "none" }}
{{- else if .remote.secret }}
{{- "$(TRIMTAB_SPARK_URL)" }}
{{- else }}
{{- required "spark.mode is remote: set spark.remote.url, or spark.remote.secret" .remote.url }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A size such as 1.5Gi in KiB, to compare two. */}}
{{- define "trimtab.kibibytes" -}}
{{- $unit := dict "Ki" 1 "Mi" 1024 "Gi" 1048576 "Ti" 1073741824 }}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $unit (regexFind "[KMGT]i$" .)) }}
{{- end }}

{{- /* What can't work is refused here, with the way out. */}}
{{- define "trimtab.validate" -}}
{{- with .Values }}
{{- if and (eq .history.volume "claim") (gt (int .replicas) 1) (not (and (eq .spark.mode "remote") .history.existingClaim)) }}
{{- fail (printf "history.volume is claim and replicas is %d: each replica needs a history of its own; set replicas to 1, or history.volume to ephemeral or emptyDir" (int .replicas)) }}
{{- end }}
{{- if and .watchAllNamespaces .watchNamespaces }}
{{- fail "watchAllNamespaces and watchNamespaces exclude each other: set one" }}
{{- end }}
{{- if and .policies (include "trimtab.elsewhere" $) }}
{{- fail "policies are of the release's own namespace: with watchNamespaces or watchAllNamespaces, apply them yourself" }}
{{- end }}
{{- if and .serviceMonitor.enabled .podMonitor.enabled }}
{{- fail "serviceMonitor and podMonitor are both enabled, and each metric would be scraped twice: enable one" }}
{{- end }}
{{- $values := dict "--lease-name" "lease.name" "--allow-url" "allowUrls" }}
{{- range $word := .extraArgs }}
{{- with get $values (splitList "=" $word | first) }}
{{- fail (printf "extraArgs has %s: set %s instead, as the Role and the hook before an uninstall go by it" $word .) }}
{{- end }}
{{- end }}
{{- $mebibytes := mul (regexFind "^[0-9]+" .spark.memory) (ternary 1024 1 (hasSuffix "g" .spark.memory)) }}
{{- if lt $mebibytes 480 }}
{{- fail (printf "spark.memory is %s, and Spark needs 480m or more: set it to 700m or 1g" .spark.memory) }}
{{- end }}
{{- $sidecar := eq .spark.mode "sidecar" }}
{{- $limit := dig "limits" "memory" "" (ternary .spark.sidecar.resources .resources $sidecar) | toString }}
{{- if and (has .spark.mode (list "embedded" "sidecar")) (regexMatch "^[0-9.]+[KMGT]i$" $limit) (gt (mulf 1024 (add $mebibytes 450)) (include "trimtab.kibibytes" $limit | float64)) }}
{{- fail (printf "spark.memory is %s, and the JVM takes 450 MB more, but %s is %s: lower the first or raise the second" .spark.memory (ternary "spark.sidecar.resources.limits.memory" "resources.limits.memory" $sidecar) $limit) }}
{{- end }}
{{- $policies := max 1 (len (default list .policies)) }}
{{- $kept := mulf (include "trimtab.kibibytes" .history.keepSize | float64) $policies }}
{{- if and (not (and (eq .history.volume "claim") .history.existingClaim)) (gt $kept (include "trimtab.kibibytes" .history.size | float64)) }}
{{- $each := gt $policies 1 | ternary (printf " for each of %d policies" $policies) "" }}
{{- fail (printf "history.keepSize is %s%s, and history.size is %s: make size larger than keepSize times the number of policies, or keepSize smaller" .history.keepSize $each .history.size) }}
{{- end }}
{{- if not (and (lt (float64 .lease.retryPeriod) (float64 .lease.renewDeadline)) (lt (float64 .lease.renewDeadline) (float64 .lease.duration))) }}
{{- fail (printf "lease: duration %v, renewDeadline %v and retryPeriod %v must decrease, or two could lead at once" .lease.duration .lease.renewDeadline .lease.retryPeriod) }}
{{- end }}
{{- end }}
{{- end }}
