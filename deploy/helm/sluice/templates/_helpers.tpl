{{- define "sluice.name" -}}
{{- printf "%s-%s" .root.Release.Name .part | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "sluice.labels" -}}
app.kubernetes.io/name: sluice
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "sluice.account" -}}
{{- .Values.serviceAccount.name | default (printf "%s-sluice" .Release.Name | trunc 63 | trimSuffix "-") -}}
{{- end -}}

{{/* A part of sluice: a Deployment of one container that serves at a port, and its Service. */}}
{{- define "sluice.part" -}}
{{- $values := index .root.Values .part -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "sluice.name" . }}
  labels:
    {{- include "sluice.labels" . | nindent 4 }}
spec:
  replicas: {{ $values.replicas | default 1 }}
  selector:
    matchLabels:
      {{- include "sluice.labels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "sluice.labels" . | nindent 8 }}
      {{- if and .root.Values.scrapeAnnotations (ne .part "console") }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ .port | quote }}
        prometheus.io/path: /metrics
      {{- end }}
    spec:
      serviceAccountName: {{ include "sluice.account" .root }}
      automountServiceAccountToken: false
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        runAsGroup: 10001
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: {{ .part }}
          image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag }}"
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            {{- toYaml .args | nindent 12 }}
          env:
            - name: SLUICE_COORDINATOR
              value: {{ .root.Values.coordinator | quote }}
            - name: HOME
              value: /tmp
            {{- range $name, $value := .root.Values.env }}
            - name: {{ $name }}
              value: {{ $value | quote }}
            {{- end }}
          {{- with .root.Values.existingSecret }}
          envFrom:
            - secretRef:
                name: {{ . }}
          {{- end }}
          ports:
            - name: http
              containerPort: {{ .port }}
          livenessProbe:
            httpGet:
              path: /healthz
              port: http
            initialDelaySeconds: 10
            periodSeconds: 30
            timeoutSeconds: 5
          readinessProbe:
            httpGet:
              {{- /* the exporter and the console show an outage of the coordinator, and must be reached in it */}}
              path: {{ eq .part "daemon" | ternary "/readyz" "/healthz" }}
              port: http
            periodSeconds: 15
            timeoutSeconds: 10
          resources:
            {{- toYaml $values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: ["ALL"]
          volumeMounts:
            - name: tmp
              mountPath: /tmp
      volumes:
        - name: tmp
          emptyDir: {}
      {{- with .root.Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ include "sluice.name" . }}
  labels:
    {{- include "sluice.labels" . | nindent 4 }}
spec:
  selector:
    {{- include "sluice.labels" . | nindent 4 }}
  ports:
    - name: http
      port: {{ .port }}
      targetPort: http
{{- end -}}
