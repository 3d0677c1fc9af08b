{{- /* The name of all that the release installs. A release that was installed before names followed the release keeps its own. */}}
{{- define "stellwerk.fullname" -}}
{{- if not (hasKey .Values "chosenName") -}}
{{- /* Looked up once: a template asks for the name dozens of times. */}}
{{- $_ := set .Values "chosenName" (include "stellwerk.chosenName" .) -}}
{{- end -}}
{{- .Values.chosenName -}}
{{- end -}}

{{- define "stellwerk.chosenName" -}}
{{- $before := lookup "apps/v1" "Deployment" .Release.Namespace .Chart.Name | default dict -}}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $before -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if or (eq .Release.Name .Chart.Name) (eq $owner .Release.Name) -}}
{{- .Chart.Name -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "stellwerk.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "stellwerk.fullname" .) -}}
{{- end -}}

{{- /* The labels by which pods are found: they never change, as a Deployment's selector cannot. */}}
{{- define "stellwerk.selectorLabels" -}}
app.kubernetes.io/name: {{ include "stellwerk.fullname" . }}
{{- end -}}

{{- define "stellwerk.labels" -}}
{{ include "stellwerk.selectorLabels" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.operatorName }}
scheduling.stellwerk.dev/operator: {{ . }}
{{- end }}
{{- end -}}

{{- define "stellwerk.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* "true" where an object of the whole cluster (root, apiVersion, kind, name) is absent, or of this release. */}}
{{- define "stellwerk.isOwn" -}}
{{- $root := index . 0 -}}
{{- $found := lookup (index . 1) (index . 2) "" (index . 3) | default dict -}}
{{- $release := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found -}}
{{- if or (not $found) (eq $release $root.Release.Name) -}}true{{- end -}}
{{- end -}}

{{- /* Two operators that serve the same profiles would both place the same pods. */}}
{{- define "stellwerk.check" -}}
{{- $root := . -}}
{{- range (lookup "apps/v1" "Deployment" "" "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- $release := dig "annotations" "meta.helm.sh/release-name" "" .metadata -}}
{{- $is_own := and (eq $release $root.Release.Name) (eq .metadata.namespace $root.Release.Namespace) -}}
{{- $is_one := or (hasPrefix "stellwerk-" (get $labels "helm.sh/chart")) (eq (get $labels "app.kubernetes.io/name") "stellwerk") -}}
{{- if and $is_one (not $is_own) (eq (get $labels "scheduling.stellwerk.dev/operator") $root.Values.operatorName) -}}
{{- fail (printf "deployment/%s in namespace %s serves the same profiles already: set operatorName, and label the profiles of this release scheduling.stellwerk.dev/operator=NAME" .metadata.name .metadata.namespace) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.observe .Values.takeOverDefaultScheduler -}}
{{- fail "takeOverDefaultScheduler cannot be used with observe: an observer schedules no pods. Set observe: false first" -}}
{{- end -}}
{{- if and .Values.operatorName .Values.takeOverDefaultScheduler -}}
{{- fail "takeOverDefaultScheduler cannot be used with operatorName: remove one of them" -}}
{{- end -}}
{{- end -}}

{{- /* The schedulerName of a profile that this release makes, or that its operator makes where there is none. */}}
{{- define "stellwerk.testedScheduler" -}}
{{- $names := list -}}
{{- range $name := keys .Values.profiles | sortAlpha -}}
{{- with get $.Values.profiles $name -}}
{{- if .schedulerName -}}{{- $names = append $names .schedulerName -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if or .Values.takeOverDefaultScheduler (and .Values.observe (not $names)) -}}default-scheduler
{{- else -}}{{ first $names | default (.Values.operatorName | default "stellwerk") }}
{{- end -}}
{{- end -}}
