//! The defaults of pods and of templates of pods, and the status of a new pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, DownwardAPIVolumeFile, EnvVar, EphemeralContainer, HTTPGetAction, Lifecycle,
    ObjectFieldSelector, Pod, PodAffinityTerm, PodCondition, PodSpec, PodStatus, Probe, ResourceFieldSelector,
    ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use stead_semantics::quantity;

use super::storage::claim_spec;
use super::{canonical, set, set_number};
use crate::api::{Request, whole_seconds};

/// Sets the defaults of a pod.
pub(super) fn pod(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    self::spec(spec);
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        requests_from_limits(container.resources.get_or_insert_default());
    }
    pod_level_requests(spec);
    spec.enable_service_links.get_or_insert(true);
    if spec.host_network == Some(true) {
        let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
        for port in containers.flat_map(|container| container.ports.iter_mut().flatten()) {
            if port.host_port.unwrap_or(0) == 0 {
                port.host_port = Some(port.container_port);
            }
        }
    }
}

/// Sets the defaults of the spec of a pod or of a template.
pub(super) fn spec(spec: &mut PodSpec) {
    set(&mut spec.dns_policy, "ClusterFirst");
    set(&mut spec.restart_policy, "Always");
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(30);
    set(&mut spec.scheduler_name, "default-scheduler");
    // The two names of the service account are one field inside the API server; the newer name counts.
    let account = spec.service_account_name.as_ref().filter(|name| !name.is_empty());
    match account.or(spec.service_account.as_ref()).cloned() {
        Some(name) if !name.is_empty() => {
            spec.service_account = Some(name.clone());
            spec.service_account_name = Some(name);
        }
        _ => {}
    }
    spec.volumes.iter_mut().flatten().for_each(volume);
    spec.init_containers.iter_mut().flatten().chain(&mut spec.containers).for_each(container);
    spec.ephemeral_containers.iter_mut().flatten().for_each(ephemeral_container);
    canonical(&mut spec.overhead);
    if let Some(resources) = &mut spec.resources {
        canonical(&mut resources.requests);
        canonical(&mut resources.limits);
    }
}

fn container(container: &mut Container) {
    if container.image_pull_policy.as_ref().is_none_or(String::is_empty) {
        container.image_pull_policy = Some(pull_policy(container.image.as_deref().unwrap_or_default()).into());
    }
    set(&mut container.termination_message_path, "/dev/termination-log");
    set(&mut container.termination_message_policy, "File");
    container.ports.iter_mut().flatten().for_each(port);
    container.env.iter_mut().flatten().for_each(variable);
    let resources = container.resources.get_or_insert_default();
    canonical(&mut resources.requests);
    canonical(&mut resources.limits);
    for one in [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe] {
        one.iter_mut().for_each(probe);
    }
    container.lifecycle.iter_mut().for_each(hooks);
}

fn ephemeral_container(container: &mut EphemeralContainer) {
    if container.image_pull_policy.as_ref().is_none_or(String::is_empty) {
        container.image_pull_policy = Some(pull_policy(container.image.as_deref().unwrap_or_default()).into());
    }
    set(&mut container.termination_message_path, "/dev/termination-log");
    set(&mut container.termination_message_policy, "File");
    container.resources.get_or_insert_default();
    container.env.iter_mut().flatten().for_each(variable);
}

/// An image with the tag `latest`, or without tag and digest, is always pulled.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, false), |(name, _)| (name, true));
    // A colon before the last slash belongs to the port of a registry.
    let tag = name.rsplit_once('/').map_or(name, |(_, last)| last).split_once(':').map(|(_, tag)| tag);
    match tag {
        // A name that cannot be parsed has no tag.
        _ if image.is_empty() => "IfNotPresent",
        Some("latest") => "Always",
        None if !digest => "Always",
        _ => "IfNotPresent",
    }
}

fn port(port: &mut ContainerPort) {
    set(&mut port.protocol, "TCP");
}

fn variable(variable: &mut EnvVar) {
    let Some(source) = &mut variable.value_from else { return };
    source.field_ref.iter_mut().for_each(field_ref);
    source.resource_field_ref.iter_mut().for_each(resource_ref);
    if let Some(file) = &mut source.file_key_ref {
        file.optional.get_or_insert(false);
    }
}

fn field_ref(selector: &mut ObjectFieldSelector) {
    set(&mut selector.api_version, "v1");
}

fn resource_ref(selector: &mut ResourceFieldSelector) {
    selector.divisor.get_or_insert_with(|| Quantity("0".into()));
}

fn probe(probe: &mut Probe) {
    set_number(&mut probe.timeout_seconds, 1);
    set_number(&mut probe.period_seconds, 10);
    set_number(&mut probe.success_threshold, 1);
    set_number(&mut probe.failure_threshold, 3);
    probe.http_get.iter_mut().for_each(http_get);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn http_get(action: &mut HTTPGetAction) {
    set(&mut action.path, "/");
    set(&mut action.scheme, "HTTP");
}

fn hooks(lifecycle: &mut Lifecycle) {
    for handler in [&mut lifecycle.post_start, &mut lifecycle.pre_stop] {
        handler.iter_mut().flat_map(|handler| &mut handler.http_get).for_each(http_get);
    }
}

fn volume(volume: &mut Volume) {
    const READABLE: i32 = 0o644;
    if has_no_source(volume) {
        volume.empty_dir = Some(Default::default());
    }
    if let Some(source) = &mut volume.host_path {
        source.type_.get_or_insert_default();
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(READABLE);
    }
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(READABLE);
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(READABLE);
        source.items.iter_mut().flatten().for_each(downward_file);
    }
    if let Some(source) = &mut volume.projected {
        source.default_mode.get_or_insert(READABLE);
        for source in source.sources.iter_mut().flatten() {
            let items = source.downward_api.iter_mut().flat_map(|api| api.items.iter_mut().flatten());
            items.for_each(downward_file);
            if let Some(token) = &mut source.service_account_token {
                token.expiration_seconds.get_or_insert(3600);
            }
        }
    }
    if let Some(source) = &mut volume.iscsi {
        set(&mut source.iscsi_interface, "default");
    }
    if let Some(source) = &mut volume.rbd {
        set(&mut source.pool, "rbd");
        set(&mut source.user, "admin");
        set(&mut source.keyring, "/etc/ceph/keyring");
    }
    if let Some(source) = &mut volume.image
        && source.pull_policy.as_ref().is_none_or(String::is_empty)
    {
        source.pull_policy = Some(pull_policy(source.reference.as_deref().unwrap_or_default()).into());
    }
    if let Some(template) = volume.ephemeral.as_mut().and_then(|source| source.volume_claim_template.as_mut()) {
        claim_spec(&mut template.spec);
    }
}

fn downward_file(file: &mut DownwardAPIVolumeFile) {
    file.field_ref.iter_mut().for_each(field_ref);
    file.resource_field_ref.iter_mut().for_each(resource_ref);
}

/// Whether a volume says nothing but its name: it is then an emptyDir.
fn has_no_source(volume: &Volume) -> bool {
    // The usual sources first.
    if volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.persistent_volume_claim.is_some()
        || volume.empty_dir.is_some()
        || volume.projected.is_some()
        || volume.host_path.is_some()
    {
        return false;
    }
    *volume == Volume { name: volume.name.clone(), ..Volume::default() }
}

fn requests_from_limits(resources: &mut ResourceRequirements) {
    let Some(limits) = resources.limits.as_ref().filter(|limits| !limits.is_empty()) else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, value) in limits {
        if !requests.contains_key(name) {
            requests.insert(name.clone(), value.clone());
        }
    }
}

/// A pod with limits of its own requests what its containers request, else its limits.
fn pod_level_requests(spec: &mut PodSpec) {
    let Some(limits) = spec.resources.as_ref().and_then(|resources| resources.limits.clone()) else { return };
    if limits.is_empty() {
        return;
    }
    let is_pod_level = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    let mut defaults = aggregated_requests(spec);
    defaults.retain(|name, _| matches!(name.as_str(), "cpu" | "memory"));
    for (name, value) in limits {
        if is_pod_level(&name) {
            defaults.entry(name).or_insert(value);
        }
    }
    let requests = spec.resources.get_or_insert_default().requests.get_or_insert_default();
    for (name, value) in defaults {
        requests.entry(name).or_insert(value);
    }
}

/// What all containers of a pod request together (`AggregateContainerRequests`).
fn aggregated_requests(spec: &PodSpec) -> BTreeMap<String, Quantity> {
    fn parsed(container: &Container) -> Vec<(String, quantity::Quantity)> {
        let requests = container.resources.iter().flat_map(|resources| resources.requests.iter().flatten());
        let requests =
            requests.filter_map(|(name, value)| Some((name.clone(), quantity::Quantity::parse(&value.0).ok()?)));
        requests.collect()
    }
    fn add(sums: &mut BTreeMap<String, quantity::Quantity>, requests: Vec<(String, quantity::Quantity)>) {
        for (name, value) in requests {
            let sum = sums.get(&name).map_or(value.clone(), |sum| sum.add(&value));
            sums.insert(name, sum);
        }
    }
    let mut sums = BTreeMap::new();
    spec.containers.iter().for_each(|container| add(&mut sums, parsed(container)));
    // Sidecars go on; another init container runs beside the sidecars that were started before it.
    let (mut sidecars, mut peaks) = (BTreeMap::new(), BTreeMap::<String, quantity::Quantity>::new());
    for container in spec.init_containers.iter().flatten() {
        let requests = if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sums, parsed(container));
            add(&mut sidecars, parsed(container));
            sidecars.clone()
        } else {
            let mut beside = sidecars.clone();
            add(&mut beside, parsed(container));
            beside
        };
        for (name, value) in requests {
            let peak = peaks.get(&name).filter(|peak| **peak > value).cloned().unwrap_or(value);
            peaks.insert(name, peak);
        }
    }
    for (name, peak) in peaks {
        if sums.get(&name).is_none_or(|sum| *sum < peak) {
            sums.insert(name, peak);
        }
    }
    sums.into_iter().map(|(name, sum)| (name, Quantity(sum.to_string()))).collect()
}

/// The status of a new pod, and the selectors that depend on its labels (`podStrategy.PrepareForCreate`).
pub(in crate::api) fn prepare(pod: &mut Pod, request: &Request<'_>) {
    let spec = pod.spec.get_or_insert_default();
    let labels = pod.metadata.labels.as_ref();
    merge_label_keys(spec, labels, request);
    let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    let condition = gated.then(|| PodCondition {
        type_: "PodScheduled".into(),
        status: "False".into(),
        reason: Some("SchedulingGated".into()),
        message: Some("Scheduling is blocked due to non-empty scheduling gates".into()),
        last_transition_time: Some(whole_seconds(request.now)),
        ..PodCondition::default()
    });
    pod.status = Some(PodStatus {
        phase: Some("Pending".into()),
        qos_class: Some(qos_class(spec).into()),
        conditions: condition.map(|condition| vec![condition]),
        ..PodStatus::default()
    });
}

/// Adds the pod's own values of `matchLabelKeys` and `mismatchLabelKeys` to selectors: those of affinity since 1.31,
/// those of topology spread since 1.34.
fn merge_label_keys(spec: &mut PodSpec, labels: Option<&BTreeMap<String, String>>, request: &Request<'_>) {
    let Some(labels) = labels else { return };
    let merge = |selector: &mut Option<LabelSelector>, keys: Option<&Vec<String>>, operator: &str| {
        let Some(selector) = selector else { return };
        for (key, value) in keys.into_iter().flatten().filter_map(|key| labels.get_key_value(key)) {
            selector.match_expressions.get_or_insert_default().push(LabelSelectorRequirement {
                key: key.clone(),
                operator: operator.to_owned(),
                values: Some(vec![value.clone()]),
            });
        }
    };
    let merge_term = |term: &mut PodAffinityTerm| {
        merge(&mut term.label_selector, term.match_label_keys.as_ref(), "In");
        merge(&mut term.label_selector, term.mismatch_label_keys.as_ref(), "NotIn");
    };
    if request.settings.since(31)
        && let Some(affinity) = &mut spec.affinity
    {
        if let Some(affinity) = &mut affinity.pod_affinity {
            let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
            preferred.for_each(|term| merge_term(&mut term.pod_affinity_term));
            affinity.required_during_scheduling_ignored_during_execution.iter_mut().flatten().for_each(merge_term);
        }
        if let Some(affinity) = &mut affinity.pod_anti_affinity {
            let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter_mut().flatten();
            preferred.for_each(|term| merge_term(&mut term.pod_affinity_term));
            affinity.required_during_scheduling_ignored_during_execution.iter_mut().flatten().for_each(merge_term);
        }
    }
    if request.settings.since(34) {
        for constraint in spec.topology_spread_constraints.iter_mut().flatten() {
            merge(&mut constraint.label_selector, constraint.match_label_keys.as_ref(), "In");
        }
    }
}

/// The QoS class (`ComputePodQOS`).
fn qos_class(spec: &PodSpec) -> &'static str {
    let amounts = |list: Option<&BTreeMap<String, Quantity>>| -> BTreeMap<&'static str, quantity::Quantity> {
        let amount = |name: &'static str| {
            let parsed = quantity::Quantity::parse(&list?.get(name)?.0).ok()?;
            (parsed.signum() > 0).then_some((name, parsed))
        };
        ["cpu", "memory"].into_iter().filter_map(amount).collect()
    };
    let add = |sums: &mut BTreeMap<&'static str, quantity::Quantity>,
               more: BTreeMap<&'static str, quantity::Quantity>| {
        for (name, value) in more {
            let sum = sums.get(name).map_or(value.clone(), |sum| sum.add(&value));
            sums.insert(name, sum);
        }
    };
    let (mut requests, mut limits, mut guaranteed) = (BTreeMap::new(), BTreeMap::new(), true);
    if let Some(resources) = &spec.resources {
        add(&mut requests, amounts(resources.requests.as_ref()));
        let own = amounts(resources.limits.as_ref());
        guaranteed = resources.limits.as_ref().is_none_or(BTreeMap::is_empty) || own.len() == 2;
        add(&mut limits, own);
    } else {
        for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
            let resources = container.resources.as_ref();
            add(&mut requests, amounts(resources.and_then(|resources| resources.requests.as_ref())));
            let own = amounts(resources.and_then(|resources| resources.limits.as_ref()));
            guaranteed &= own.len() == 2;
            add(&mut limits, own);
        }
    }
    match (requests.is_empty() && limits.is_empty(), guaranteed && requests == limits) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod_of(spec: Value) -> Pod {
        serde_json::from_value(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p" }, "spec": spec }))
            .expect("a pod")
    }

    fn defaulted(spec: Value) -> Value {
        let mut pod = pod_of(spec);
        self::pod(&mut pod);
        let once = pod.clone();
        self::pod(&mut pod);
        assert_eq!(once, pod, "defaults change nothing the second time");
        serde_json::to_value(pod.spec).expect("JSON")
    }

    #[test]
    fn image_pull_policy() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.29", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
            ("registry:5000/nginx:1", "IfNotPresent"),
            ("nginx@sha256:abc", "IfNotPresent"),
            ("nginx:latest@sha256:abc", "Always"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }

    #[test]
    fn a_bare_pod_gets_every_default() {
        let spec = defaulted(json!({
            "containers": [{ "name": "c", "image": "i:1",
                "ports": [{ "containerPort": 80 }],
                "readinessProbe": { "httpGet": { "port": 80 } },
                "resources": { "limits": { "cpu": "1000m", "memory": "1Gi" }, "requests": { "cpu": "0.5" } },
                "env": [{ "name": "N", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }] }],
            "volumes": [{ "name": "tmp" }, { "name": "cm", "configMap": { "name": "x" } }],
        }));
        assert_eq!(
            spec,
            json!({
                "containers": [{ "name": "c", "image": "i:1", "imagePullPolicy": "IfNotPresent",
                    "ports": [{ "containerPort": 80, "protocol": "TCP" }],
                    "readinessProbe": { "httpGet": { "port": 80, "path": "/", "scheme": "HTTP" },
                        "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3 },
                    "resources": { "limits": { "cpu": "1", "memory": "1Gi" },
                        "requests": { "cpu": "500m", "memory": "1Gi" } },
                    "env": [{ "name": "N",
                        "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } } }],
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File" }],
                "volumes": [{ "name": "tmp", "emptyDir": {} },
                    { "name": "cm", "configMap": { "name": "x", "defaultMode": 420 } }],
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {},
                "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler", "enableServiceLinks": true,
            })
        );
    }

    #[test]
    fn host_ports_of_the_host_network() {
        let container = json!({ "name": "c", "ports": [{ "containerPort": 80 }] });
        for (host_network, port) in [(true, json!(80)), (false, Value::Null)] {
            let spec = defaulted(json!({ "hostNetwork": host_network, "containers": [container] }));
            assert_eq!(spec["containers"][0]["ports"][0]["hostPort"], port);
        }
    }

    #[test]
    fn quality_of_service() {
        let of = |requests: Value, limits: Value| json!({ "name": "c", "resources": { "requests": requests, "limits": limits } });
        let full = json!({ "cpu": "1", "memory": "1Gi" });
        for (spec, expected) in [
            (json!({ "containers": [{ "name": "c" }] }), "BestEffort"),
            (json!({ "containers": [of(json!({ "cpu": "0" }), json!({}))] }), "BestEffort"),
            (json!({ "containers": [of(json!({ "example.com/gpu": "1" }), json!({}))] }), "BestEffort"),
            (json!({ "containers": [of(full.clone(), full.clone())] }), "Guaranteed"),
            (json!({ "containers": [of(json!({}), full.clone())] }), "Guaranteed"),
            (json!({ "containers": [of(full.clone(), full.clone()), { "name": "d" }] }), "Burstable"),
            (json!({ "containers": [of(json!({ "cpu": "1" }), json!({ "cpu": "1" }))] }), "Burstable"),
            (json!({ "containers": [of(json!({ "cpu": "500m" }), full.clone())] }), "Burstable"),
            (json!({ "containers": [{ "name": "c" }], "resources": { "limits": full.clone() } }), "Guaranteed"),
            (json!({ "containers": [{ "name": "c" }], "resources": { "requests": full } }), "Burstable"),
        ] {
            let mut pod = pod_of(spec.clone());
            self::pod(&mut pod);
            assert_eq!(qos_class(&pod.spec.expect("a spec")), expected, "{spec}");
        }
    }
}
