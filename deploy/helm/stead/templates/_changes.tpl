{{- /* What the values change in the objects of deploy/k8s. The templates whose names begin with a verb print nothing: they
change the object that they are given. */ -}}

{{- /* Whether an object is installed. */ -}}
{{- define "stead.wanted" -}}
{{- $values := .root.Values -}}
{{- $name := .object.metadata.name -}}
{{- $policy := eq .object.kind "NetworkPolicy" -}}
{{- $store := trimPrefix "clients-to-" $name -}}
{{- $reached := merge (pick $values.networkPolicies "mail" "providers") $values.networkPolicies.stores -}}
{{- if and $policy (not $values.networkPolicies.enabled) -}}false
{{- else if and $policy (hasKey $reached $store) -}}
{{- not (empty (get $reached $store).peers) -}}
{{- else if and (hasPrefix "bootstrap" $name) (not $values.bootstrap.enabled) -}}false
{{- else -}}true
{{- end -}}
{{- end -}}

{{- define "stead.change" -}}
{{- $object := .object -}}
{{- $values := .root.Values -}}
{{- $name := $object.metadata.name -}}
{{- $_ := set $object.metadata "namespace" .root.Release.Namespace -}}
{{- $service := get $values.services $name | default dict -}}
{{- if eq $object.kind "ConfigMap" -}}
  {{- $data := include "stead.settings" (dict "data" $object.data "service" $service "values" $values) | fromJson -}}
  {{- $_ := set $object "data" $data -}}
  {{- $_ := set .checksums $name (toJson $data | sha256sum) -}}
{{- else if eq $object.kind "Deployment" -}}
  {{- $template := $object.spec.template -}}
  {{- include "stead.change-pod" (dict "pod" $template.spec "values" $values) -}}
  {{- $container := first $template.spec.containers -}}
  {{- $_ := set $container "resources" (mergeOverwrite $container.resources (deepCopy $service.resources)) -}}
  {{- /* A service reads its settings at start. */ -}}
  {{- $_ := set $template.metadata "annotations" (dict "checksum/settings" (get .checksums $name)) -}}
{{- else if eq $object.kind "HorizontalPodAutoscaler" -}}
  {{- $_ := set $object "spec" (mergeOverwrite $object.spec (deepCopy $service.autoscaling)) -}}
{{- else if eq $object.kind "CronJob" -}}
  {{- include "stead.change-pod" (dict "pod" $object.spec.jobTemplate.spec.template.spec "values" $values) -}}
{{- else if eq $object.kind "Job" -}}
  {{- include "stead.change-job" (dict "job" $object "values" $values) -}}
{{- else if eq $object.kind "RoleBinding" -}}
  {{- range $object.subjects -}}
    {{- if eq $name "prometheus" -}}
      {{- $_ := set . "name" $values.observability.prometheus.serviceAccount -}}
      {{- $_ := set . "namespace" $values.observability.prometheus.namespace -}}
    {{- else -}}
      {{- $_ := set . "namespace" $.root.Release.Namespace -}}
    {{- end -}}
  {{- end -}}
{{- else if eq $object.kind "NetworkPolicy" -}}
  {{- include "stead.change-policy" (dict "policy" $object "policies" $values.networkPolicies) -}}
{{- else if has $object.kind (list "Ingress" "HTTPRoute") -}}
  {{- include "stead.change-route" (dict "route" $object "edge" $values.edge) -}}
{{- else if has $object.kind (list "PodMonitor" "PrometheusRule") -}}
  {{- $of := get $values.observability (untitle $object.kind) -}}
  {{- with $of.labels }}{{ $_ := set $object.metadata "labels" . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- /* The data of a service's ConfigMap, as JSON. */ -}}
{{- define "stead.settings" -}}
{{- $settings := mergeOverwrite (deepCopy .values.settings) (deepCopy .service.settings) -}}
{{- include "stead.require-settings" $settings -}}
{{- $given := dict "BASE_URL" .values.baseUrl "TRUSTED_PROXIES" (toString (int64 .values.trustedProxies)) -}}
{{- if .values.storesCa -}}
  {{- $path := "/etc/stead/stores-ca/ca.crt" -}}
  {{- $given = merge $given (dict "PGSSLMODE" "verify-full" "PGSSLROOTCERT" $path "SSL_CERT_FILE" $path) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .data) $given $settings | toJson -}}
{{- end -}}

{{- /* Refuses settings that are a value of the chart, or a secret. */ -}}
{{- define "stead.require-settings" -}}
{{- range $name, $value := dict "BASE_URL" "baseUrl" "TRUSTED_PROXIES" "trustedProxies" -}}
  {{- if hasKey $ $name }}{{ fail (printf "settings: give %s as the value %s" $name $value) }}{{ end -}}
{{- end -}}
{{- range list "DATABASE_URL" "REDIS_URL" "NATS_URL" "KEY_ENCRYPTION_KEYS" "ENVIRONMENT_VARIABLE_KEYS" "AUDIT_HEAD_KEYS" "MAIL_KEYS" "COOKIE_KEYS" "SMTP_URL" -}}
  {{- if hasKey $ . }}{{ fail (printf "settings: %s is a secret: put it into the existingSecret" .) }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "stead.change-pod" -}}
{{- $pod := .pod -}}
{{- $values := .values -}}
{{- with $values.images.pullSecrets -}}
  {{- $names := list -}}
  {{- range . }}{{ $names = append $names (dict "name" .) }}{{ end -}}
  {{- $_ := set $pod "imagePullSecrets" $names -}}
{{- end -}}
{{- range $pod.volumes -}}
  {{- $service := get $values.services (dig "secret" "secretName" "" .) -}}
  {{- if $service }}{{ $_ := set .secret "secretName" $service.existingSecret }}{{ end -}}
{{- end -}}
{{- if $values.storesCa -}}
  {{- $volume := dict "name" "stores-ca" "configMap" (dict "name" $values.storesCa) -}}
  {{- $_ := set $pod "volumes" (append $pod.volumes $volume) -}}
{{- end -}}
{{- range $pod.containers -}}
  {{- $_ := set . "image" (include "stead.image" (dict "image" .image "images" $values.images)) -}}
  {{- if $values.storesCa -}}
    {{- $mount := dict "name" "stores-ca" "mountPath" "/etc/stead/stores-ca" "readOnly" true -}}
    {{- $_ := set . "volumeMounts" (append .volumeMounts $mount) -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{- /* The reference of an image, from that of deploy/k8s: stead/token-service:dev. */ -}}
{{- define "stead.image" -}}
{{- $repository := splitList ":" .image | first -}}
{{- with .images.registry }}{{ . }}/{{ end }}{{ $repository }}:{{ include "stead.tag" . }}
{{- with get .images.digests (base $repository) }}@{{ . }}{{ end }}
{{- end -}}

{{- define "stead.tag" -}}
{{- .images.tag | default (splitList ":" .image | last) -}}
{{- end -}}

{{- /* A Job cannot be changed: its name has the tag, and a digest of what it does, so that another one takes its place. */ -}}
{{- define "stead.change-job" -}}
{{- $job := .job -}}
{{- $pod := $job.spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- $tag := include "stead.tag" (dict "image" $container.image "images" .values.images) -}}
{{- include "stead.change-pod" (dict "pod" $pod "values" .values) -}}
{{- if eq $job.metadata.name "bootstrap" -}}
  {{- include "stead.require-settings" .values.bootstrap.settings -}}
  {{- range $name, $value := .values.bootstrap.settings -}}
    {{- $_ := set $container "env" (append $container.env (dict "name" $name "value" $value)) -}}
  {{- end -}}
{{- end -}}
{{- $suffix := regexReplaceAll "[^a-z0-9]+" (lower $tag) "-" | trunc 24 | trimSuffix "-" -}}
{{- $_ := set $job.metadata "name" (printf "%s-%s-%s" $job.metadata.name $suffix (toJson $job.spec | sha256sum | trunc 8)) -}}
{{- end -}}

{{- define "stead.change-policy" -}}
{{- $rules := index .policy.spec (first .policy.spec.policyTypes | lower) -}}
{{- $rule := dict -}}
{{- if $rules }}{{ $rule = first $rules }}{{ end -}}
{{- $name := .policy.metadata.name -}}
{{- $store := get (merge (pick .policies "mail" "providers") .policies.stores) (trimPrefix "clients-to-" $name) -}}
{{- if $store -}}
  {{- $ports := list -}}
  {{- range $store.ports }}{{ $ports = append $ports (dict "port" (int .)) }}{{ end -}}
  {{- $_ := set $rule "to" (include "stead.peers" $store.peers | fromJsonArray) -}}
  {{- $_ := set $rule "ports" $ports -}}
{{- else if and (eq $name "dns") .policies.dns -}}
  {{- $_ := set $rule "to" (include "stead.peers" .policies.dns | fromJsonArray) -}}
{{- else if and (eq $name "services-from-the-edge") .policies.edge -}}
  {{- $_ := set $rule "from" (include "stead.peers" .policies.edge | fromJsonArray) -}}
{{- else if and (eq $name "services-from-monitoring") .policies.monitoring -}}
  {{- $_ := set $rule "from" (include "stead.peers" .policies.monitoring | fromJsonArray) -}}
{{- else if and (eq $name "services-to-the-collector") .policies.monitoring -}}
  {{- $_ := set $rule "to" (include "stead.peers" .policies.monitoring | fromJsonArray) -}}
{{- end -}}
{{- end -}}

{{- /* Peers of a NetworkPolicy, as JSON: a string is a range of addresses. */ -}}
{{- define "stead.peers" -}}
{{- $peers := list -}}
{{- range . -}}
  {{- $peer := . -}}
  {{- if kindIs "string" . }}{{ $peer = dict "ipBlock" (dict "cidr" .) }}{{ end -}}
  {{- $peers = append $peers $peer -}}
{{- end -}}
{{- toJson $peers -}}
{{- end -}}

{{- define "stead.change-route" -}}
{{- $spec := .route.spec -}}
{{- $edge := .edge -}}
{{- with $edge.annotations -}}
  {{- $_ := set $.route.metadata "annotations" (mergeOverwrite ($.route.metadata.annotations | default dict) (deepCopy .)) -}}
{{- end -}}
{{- if eq .route.kind "HTTPRoute" -}}
  {{- with $edge.host }}{{ $_ := set $spec "hostnames" (list .) }}{{ end -}}
  {{- $_ := set $spec "parentRefs" (list (mergeOverwrite (first $spec.parentRefs) (deepCopy $edge.gateway))) -}}
{{- else -}}
  {{- with $edge.className }}{{ $_ := set $spec "ingressClassName" . }}{{ end -}}
  {{- with $edge.host }}{{ $_ := set (first $spec.rules) "host" . }}{{ end -}}
  {{- with $edge.tlsSecret }}{{ $_ := set $spec "tls" (list (dict "hosts" (list $edge.host) "secretName" .)) }}{{ end -}}
{{- end -}}
{{- end -}}
