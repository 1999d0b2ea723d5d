{{- /* The chart's name and version, for the label helm.sh/chart. */ -}}
{{- define "stead.chart" -}}
{{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- /* The operator's image. */ -}}
{{- define "stead.image" -}}
{{- $image := .Values.image -}}
{{- $repository := required "image.repository is needed: this chart was built without an image. Set it to a repository that the cluster can pull from, such as registry.example/stead" $image.repository -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $repository $image.digest }}
{{- else -}}
{{ printf "%s:%s" $repository ($image.tag | default .Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{- /* Whether the cluster has the final form of ValidatingAdmissionPolicy, since Kubernetes 1.30. Without a cluster, Helm knows
groups and versions but no kinds: then the version of Kubernetes decides. */ -}}
{{- define "stead.hasPolicies" -}}
{{- $kinds := .Capabilities.APIVersions.Has "apps/v1/Deployment" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if and (or $served (not $kinds)) (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) -}}true{{- end -}}
{{- end -}}

{{- /* "foreign" if the cluster has a CRD of this name that is not Stead's. Called with (list $ NAME). */ -}}
{{- define "stead.foreignDefinition" -}}
{{- $live := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (index . 1) -}}
{{- if $live -}}
{{- $labels := $live.metadata.labels | default dict -}}
{{- if ne (get $labels "app.kubernetes.io/part-of") "stead" -}}foreign{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Whether this chart installs and upgrades a CRD: never one that belongs to someone else. Called with (list $ NAME). */ -}}
{{- define "stead.managesDefinition" -}}
{{- $mode := (index . 0).Values.crds.openstack -}}
{{- if ne $mode "skip" -}}
{{- if not (include "stead.foreignDefinition" .) -}}
true
{{- else if eq $mode "install" -}}
{{- fail (printf "crds.openstack is install, but the CRD %s belongs to someone else (it has no label app.kubernetes.io/part-of=stead). Use auto or skip: the operator then only reports on its objects" (index . 1)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Labels of the hook's objects. */ -}}
{{- define "stead.hookLabels" -}}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/name: stead-uninstall
app.kubernetes.io/part-of: stead
helm.sh/chart: {{ include "stead.chart" . }}
{{- end -}}

{{- /* Annotations of the hook's objects. Called with (list WEIGHT MORE-DELETE-POLICIES). */ -}}
{{- define "stead.hookAnnotations" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ index . 0 | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded{{ index . 1 }}
{{- end -}}
