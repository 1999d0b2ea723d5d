//! The operator's workload.

use serde_json::{Value, json};

use crate::manifest::{Manifest, Part};

/// The name of the operator's objects.
pub(crate) const NAME: &str = "stead-operator";

/// The name of the operator's Deployment.
pub const DEPLOYMENT: &str = NAME;

/// The port for probes and metrics.
const PORT: u16 = 8080;

/// What a Topology without an affinity does to the default anti-affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AntiAffinity {
    /// It is kept.
    Keep,
    /// It is removed, as in the released OpenStack operators.
    Replace,
}

/// The options of an installation. The default image is the one that a release was built with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The operator's namespace.
    pub namespace: String,
    /// The only namespaces that the operator works in; empty for all.
    pub namespaces: Vec<String>,
    /// The operator's image.
    pub image: String,
    /// The number of operator pods; one of them leads.
    pub replicas: u32,
    /// What a Topology does to the default anti-affinity.
    pub default_anti_affinity: AntiAffinity,
    /// The image of Glance, for objects that name none.
    pub glance_image: String,
    /// The DNS domain of the cluster; empty for the operator's default.
    pub cluster_domain: String,
    /// Whether the cluster has ValidatingAdmissionPolicies, which Kubernetes has from 1.30 on. Without them,
    /// [`crate::UNCHECKED`] is not checked.
    pub admission_policies: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            namespace: "stead-system".to_owned(),
            namespaces: Vec::new(),
            image: option_env!("STEAD_IMAGE")
                .map_or_else(|| format!("stead:{}", env!("CARGO_PKG_VERSION")), str::to_owned),
            replicas: 2,
            default_anti_affinity: AntiAffinity::Keep,
            glance_image: String::new(),
            cluster_domain: String::new(),
            admission_policies: true,
        }
    }
}

/// The operator's namespace.
pub(crate) fn namespace(options: &Options) -> Manifest {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": options.namespace,
            "labels": {"pod-security.kubernetes.io/enforce": "restricted"},
        },
    });
    Manifest::new(Part::Operator, "namespaces", object)
}

/// The Deployment, its Service and its disruption budget.
pub(crate) fn objects(options: &Options) -> Vec<Manifest> {
    let metadata = json!({"name": NAME, "namespace": options.namespace, "labels": labels()});
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": labels(),
            "ports": [{"name": "metrics", "port": PORT, "targetPort": "http", "protocol": "TCP"}],
        },
    });
    // A drain may always evict one pod: with two, the other one takes over; with one, it starts on another node.
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels()}},
    });
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": options.replicas,
            "selector": {"matchLabels": labels()},
            "template": {"metadata": {"labels": labels()}, "spec": pod(options)},
        },
    });
    vec![
        Manifest::new(Part::Operator, "services", service),
        Manifest::new(Part::Operator, "poddisruptionbudgets", budget),
        Manifest::new(Part::Operator, "deployments", deployment),
    ]
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "stead"})
}

/// The operator's arguments. Options that are not set are left to the operator's defaults.
fn arguments(options: &Options) -> Vec<String> {
    let anti_affinity = match options.default_anti_affinity {
        AntiAffinity::Keep => "keep",
        AntiAffinity::Replace => "replace",
    };
    let mut arguments = vec!["operator".to_owned(), format!("--default-anti-affinity={anti_affinity}")];
    if !options.namespaces.is_empty() {
        arguments.push(format!("--namespaces={}", options.namespaces.join(",")));
    }
    for (flag, value) in [("--glance-image", &options.glance_image), ("--cluster-domain", &options.cluster_domain)] {
        if !value.is_empty() {
            arguments.push(format!("{flag}={value}"));
        }
    }
    arguments.push("--log-format=json".to_owned());
    arguments
}

fn pod(options: &Options) -> Value {
    let probe = |path: &str, period: u32| json!({"httpGet": {"path": path, "port": "http"}, "periodSeconds": period});
    json!({
        "serviceAccountName": NAME,
        "automountServiceAccountToken": true,
        // No user id: OpenShift assigns one per namespace, elsewhere the image's user is used.
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 30,
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels()},
        }],
        "containers": [{
            "name": "operator",
            "image": options.image,
            "imagePullPolicy": "IfNotPresent",
            "args": arguments(options),
            "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
            "livenessProbe": probe("/healthz", 10),
            "readinessProbe": probe("/readyz", 5),
            "resources": {
                "requests": {"cpu": "50m", "memory": "64Mi"},
                "limits": {"cpu": "1", "memory": "512Mi"},
            },
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        }],
    })
}
