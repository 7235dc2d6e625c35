{{- define "argonaut.check" -}}
{{- if not (has .Values.consumer (list "csi" "rook")) -}}{{ fail "consumer is csi or rook" }}{{- end -}}
{{- if not .Values.fsid -}}{{ fail "fsid is missing: ceph fsid" }}{{- end -}}
{{- if not .Values.monitors -}}{{ fail "monitors are missing: ceph mon dump" }}{{- end -}}
{{- end -}}

{{- define "argonaut.addresses" -}}
{{- range $n, $mon := .Values.monitors }}{{ if $n }},{{ end }}{{ $mon.address }}{{ end -}}
{{- end -}}

{{- define "argonaut.driver" -}}
{{- if eq .Values.consumer "rook" -}}{{ .Values.rook.operatorNamespace }}.{{- end -}}
{{- end -}}

{{- define "argonaut.secret" -}}
{{- if not .user.key }}{{ fail (printf "the key of %s is missing" .user.id) }}{{ end -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
type: {{ .type }}
stringData:
  userID: {{ .user.id | quote }}
  userKey: {{ .user.key | quote }}
  # Before ceph-csi 3.15, for file systems.
  adminID: {{ .user.id | quote }}
  adminKey: {{ .user.key | quote }}
---
{{ end -}}
