{{- define "lockstep.labels" -}}
app.kubernetes.io/name: lockstep
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "lockstep.selector" -}}
app.kubernetes.io/name: lockstep
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "lockstep.adminSecret" -}}
{{- .Values.server.adminTokenSecret | default (printf "%s-admin" .Release.Name) -}}
{{- end -}}

{{- define "lockstep.scheme" -}}
{{- if .Values.server.tlsSecret }}https{{ else }}http{{ end -}}
{{- end -}}
