{{- define "windlass.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "windlass.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "windlass.labels" -}}
{{ include "windlass.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "windlass.metadata" -}}
name: {{ include "windlass.fullname" . }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "windlass.labels" . | nindent 2 }}
{{- end -}}

{{- define "windlass.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* The watched namespaces, separated by commas; empty for all. */ -}}
{{- define "windlass.namespaces" -}}
{{- if .Values.namespaces -}}{{ join "," .Values.namespaces }}{{- else if .Values.namespaced -}}{{ .Release.Namespace }}{{- end -}}
{{- end -}}

{{- /* "true" or empty: a namespaced release may not ask the API server who a client is. */ -}}
{{- define "windlass.secureMetrics" -}}
{{- if and .Values.metrics.secure (not (include "windlass.namespaces" .)) -}}true{{- end -}}
{{- end -}}

{{- define "windlass.metricsPort" -}}
{{- if include "windlass.secureMetrics" . -}}8443{{- else -}}8080{{- end -}}
{{- end -}}

{{- /* The subject of every binding. */ -}}
{{- define "windlass.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ include "windlass.fullname" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}
