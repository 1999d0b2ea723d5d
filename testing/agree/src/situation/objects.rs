//! The objects of a situation.

use serde_json::{Value, json};

use super::workload::{Management, Placement, Storage, Workload, WorkloadKind};
use super::{NAMESPACE, Situation, ZONE};

/// The objects that workloads need.
pub(super) fn base(_situation: &Situation) -> Vec<Value> {
    let mut objects = vec![json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } })];
    for (name, value) in [("high", 1000), ("low", -10)] {
        objects.push(json!({ "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": { "name": name }, "value": value }));
    }
    for storage in Storage::ALL {
        let Some(class) = storage.class() else { continue };
        let mode = if storage == Storage::Shared { "Immediate" } else { "WaitForFirstConsumer" };
        objects.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": class },
            "provisioner": class, "volumeBindingMode": mode, "reclaimPolicy": "Delete" }));
    }
    objects
}

fn claim_spec(storage: Storage) -> Option<Value> {
    let mode = if storage == Storage::Shared { "ReadWriteMany" } else { "ReadWriteOnce" };
    Some(json!({ "accessModes": [mode], "storageClassName": storage.class()?,
        "resources": { "requests": { "storage": "1Gi" } } }))
}

/// A workload with its claim and its budget.
pub(super) fn workload(workload: &Workload) -> Vec<Value> {
    let mut objects = Vec::new();
    let metadata = json!({ "name": workload.name, "namespace": NAMESPACE });
    if let Some(spec) = claim_spec(workload.storage).filter(|_| !has_claim_templates(workload)) {
        objects
            .push(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec }));
    }
    if let Some(allowed) = workload.budget {
        objects.push(budget(&workload.name, &workload.name, allowed));
    }
    objects.push(controller(workload, metadata));
    objects
}

/// A disruption budget for a workload.
pub(super) fn budget(name: &str, workload: &str, allowed: u64) -> Value {
    json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "maxUnavailable": allowed, "selector": { "matchLabels": { "app": workload } } } })
}

fn has_claim_templates(workload: &Workload) -> bool {
    matches!(workload.kind, WorkloadKind::StatefulSet { .. })
}

fn controller(workload: &Workload, metadata: Value) -> Value {
    let (labels, template) = (json!({ "matchLabels": { "app": workload.name } }), template(workload));
    let object = |api: &str, kind: &str, spec: Value| json!({ "apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec });
    let (replicas, min_ready) = (workload.replicas, workload.min_ready);
    match workload.kind {
        WorkloadKind::Deployment { recreate } => {
            let strategy = if recreate { "Recreate" } else { "RollingUpdate" };
            let spec = json!({ "replicas": replicas, "selector": labels, "template": template,
                "minReadySeconds": min_ready, "strategy": { "type": strategy } });
            object("apps/v1", "Deployment", spec)
        }
        WorkloadKind::StatefulSet { management, partition } => {
            let policy = if management == Management::Ordered { "OrderedReady" } else { "Parallel" };
            let templates: Vec<Value> = claim_spec(workload.storage)
                .map(|spec| json!({ "metadata": { "name": "data" }, "spec": spec }))
                .into_iter()
                .collect();
            let spec = json!({ "replicas": replicas, "selector": labels, "template": template, "serviceName": workload.name,
                "minReadySeconds": min_ready, "podManagementPolicy": policy, "volumeClaimTemplates": templates,
                "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } } });
            object("apps/v1", "StatefulSet", spec)
        }
        WorkloadKind::DaemonSet => {
            let spec = json!({ "selector": labels, "template": template, "minReadySeconds": min_ready });
            object("apps/v1", "DaemonSet", spec)
        }
        WorkloadKind::Job { indexed } => object("batch/v1", "Job", job_spec(workload, indexed, template)),
        WorkloadKind::CronJob => {
            let spec = json!({ "schedule": "* * * * *", "successfulJobsHistoryLimit": 1,
                "jobTemplate": { "spec": job_spec(workload, false, template) } });
            object("batch/v1", "CronJob", spec)
        }
        WorkloadKind::Bare => {
            let mut pod = template;
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["metadata"]["name"] = metadata["name"].clone();
            pod["metadata"]["namespace"] = metadata["namespace"].clone();
            pod
        }
    }
}

fn job_spec(workload: &Workload, indexed: bool, template: Value) -> Value {
    let mode = if indexed { "Indexed" } else { "NonIndexed" };
    json!({ "completions": workload.replicas, "parallelism": workload.replicas.min(3), "completionMode": mode,
        "backoffLimit": 2, "template": template })
}

fn template(workload: &Workload) -> Value {
    let name = &workload.name;
    let mut spec =
        json!({ "terminationGracePeriodSeconds": 10, "containers": [{ "name": "main", "image": "image:1" }] });
    if workload.cpu > 0 {
        spec["containers"][0]["resources"] = json!({ "requests": { "cpu": format!("{}m", workload.cpu) } });
    }
    if let Some(class) = workload.priority {
        spec["priorityClassName"] = json!(class);
    }
    if let Some(seconds) = workload.toleration {
        let toleration = |key: &str| {
            json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": seconds })
        };
        spec["tolerations"] = json!([toleration("unreachable"), toleration("not-ready")]);
    }
    if matches!(workload.kind, WorkloadKind::Job { .. } | WorkloadKind::CronJob) {
        spec["restartPolicy"] = json!("Never");
    }
    if workload.storage != Storage::None {
        spec["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
        if !has_claim_templates(workload) {
            spec["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": name } }]);
        }
    }
    place(workload, &mut spec);
    json!({ "metadata": { "labels": { "app": name } }, "spec": spec })
}

fn place(workload: &Workload, spec: &mut Value) {
    let selector = json!({ "matchLabels": { "app": workload.name } });
    let spread = |key: &str, required: bool| {
        let otherwise = if required { "DoNotSchedule" } else { "ScheduleAnyway" };
        json!([{ "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": otherwise, "labelSelector": selector }])
    };
    match workload.placement {
        Placement::Free => {}
        Placement::SpreadZones { required } => spec["topologySpreadConstraints"] = spread(ZONE, required),
        Placement::SpreadNodes { required } => {
            spec["topologySpreadConstraints"] = spread("kubernetes.io/hostname", required);
        }
        Placement::Apart { required } => {
            let term = json!({ "labelSelector": selector, "topologyKey": "kubernetes.io/hostname" });
            spec["affinity"]["podAntiAffinity"] = match required {
                true => json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] }),
                false => {
                    json!({ "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 100, "podAffinityTerm": term }] })
                }
            };
        }
        Placement::Zone => {
            let zone = json!([{ "key": ZONE, "operator": "In", "values": ["zone-0"] }]);
            spec["affinity"]["nodeAffinity"] = json!({ "requiredDuringSchedulingIgnoredDuringExecution":
                { "nodeSelectorTerms": [{ "matchExpressions": zone }] } });
        }
    }
}
