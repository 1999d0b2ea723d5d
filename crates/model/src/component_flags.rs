//! Flags of kube-controller-manager and of kubelets, where a cluster's own objects show them.
//!
//! Three places are read: the containers of static pods (kubeadm and others), the annotation in which k3s and RKE2 keep
//! the arguments of a node, and the operator configuration of OpenShift.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use crate::key::ObjectKey;
use crate::objects::Objects;
use crate::openshift::{KubeControllerManagerConfig, NODE_CONFIG, NodeConfig};

/// A component whose flags are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// kube-controller-manager.
    ControllerManager,
    /// The kubelets.
    Kubelet,
}

/// A flag that a component runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentFlag {
    /// The component.
    pub component: Component,
    /// The name, without dashes.
    pub name: String,
    /// The value; `true` for a flag without one.
    pub value: String,
    /// Where it was found, such as `pod kube-system/kube-controller-manager-a`.
    pub source: String,
}

/// The container and the command of kube-controller-manager.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Annotations with the arguments of a node, as a JSON list.
const NODE_ARGUMENTS: [&str; 2] = ["k3s.io/node-args", "rke2.io/node-args"];

/// The flags that the cluster's objects show. A later one takes precedence over an earlier one.
pub fn component_flags(objects: &Objects) -> Vec<ComponentFlag> {
    let mut flags = of_static_pods(objects);
    flags.extend(of_node_arguments(objects));
    flags.extend(of_openshift(objects));
    flags
}

/// The flags of the leading kube-controller-manager; of the first one where the leader is not known.
fn of_static_pods(objects: &Objects) -> Vec<ComponentFlag> {
    let runs_it = |pod: &Value| {
        let mut containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        containers.any(|container| container["name"] == CONTROLLER_MANAGER)
    };
    let pods = objects.of_kind_in("Pod", "kube-system").filter(|object| runs_it(object.raw()));
    let pods: Vec<(&ObjectKey, &Pod)> = pods.filter_map(|object| Some((object.key(), object.typed().ok()?))).collect();
    let leader = leader(objects);
    let leads = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.zip(leader.as_deref()).is_some_and(|(node, leader)| node == leader)
    };
    let Some((key, pod)) = pods.iter().find(|(_, pod)| leads(pod)).or(pods.first()) else { return Vec::new() };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let words = containers.filter(|container| container.name == CONTROLLER_MANAGER).flat_map(|container| {
        let arguments = container.command.iter().chain(&container.args).flatten();
        // Some images start it through a shell, with the whole command in one argument.
        arguments.flat_map(|argument| argument.split_whitespace())
    });
    parse(words, Component::ControllerManager, &key.to_string())
}

/// The node of the leading kube-controller-manager: its identity in the Lease is `NODE_UUID`.
fn leader(objects: &Objects) -> Option<String> {
    let lease = objects.find::<Lease>("kube-system", CONTROLLER_MANAGER)?;
    let (node, _) = lease.spec.as_ref()?.holder_identity.as_deref()?.rsplit_once('_')?;
    Some(node.to_owned())
}

/// The flags in a command line: `--name=value`, `--name value` or `--name`.
fn parse<'a>(words: impl Iterator<Item = &'a str>, component: Component, source: &str) -> Vec<ComponentFlag> {
    let mut flags = Vec::new();
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else { continue };
        let (name, value) = match flag.split_once('=') {
            Some(split) => split,
            None => (flag, words.next_if(|next| !next.starts_with('-')).unwrap_or("true")),
        };
        let (name, value, source) = (name.to_owned(), value.to_owned(), source.to_owned());
        flags.push(ComponentFlag { component, name, value, source });
    }
    flags
}

/// The flags that k3s and RKE2 pass on to components.
fn of_node_arguments(objects: &Objects) -> Vec<ComponentFlag> {
    let mut flags = Vec::new();
    for node in objects.nodes() {
        for annotation in NODE_ARGUMENTS {
            let Some(arguments) = node.annotation(annotation) else { continue };
            let Ok(arguments) = serde_json::from_str::<Vec<String>>(arguments) else { continue };
            let source = format!("annotation {annotation} of node {}", node.name());
            let passed = parse(arguments.iter().map(String::as_str), Component::Kubelet, &source);
            flags.extend(passed.into_iter().filter_map(|flag| {
                let component = match flag.name.as_str() {
                    "kube-controller-manager-arg" | "kube-controller-arg" => Component::ControllerManager,
                    "kubelet-arg" => Component::Kubelet,
                    _ => return None,
                };
                let (name, value) = flag.value.split_once('=')?;
                Some(ComponentFlag { component, name: name.to_owned(), value: value.to_owned(), source: flag.source })
            }));
        }
    }
    flags
}

/// The flags that OpenShift's operators set.
fn of_openshift(objects: &Objects) -> Vec<ComponentFlag> {
    let mut flags = Vec::new();
    let node_config = objects.object(&ObjectKey::cluster(NODE_CONFIG, "cluster"));
    if let Some(profile) = node_config.and_then(|object| NodeConfig::read(object.raw()).ok()?.worker_latency_profile())
    {
        let source = format!("worker latency profile {} of nodes.config.openshift.io/cluster", profile.name);
        for (component, name, value) in [
            (Component::ControllerManager, "node-monitor-grace-period", profile.node_monitor_grace_period),
            (Component::Kubelet, "node-status-update-frequency", profile.node_status_update_frequency),
        ] {
            let (name, value, source) = (name.to_owned(), value.to_owned(), source.clone());
            flags.push(ComponentFlag { component, name, value, source });
        }
    }
    let config = objects.object(&ObjectKey::cluster("KubeControllerManager", "cluster"));
    if let Some(config) = config.and_then(|object| KubeControllerManagerConfig::read(object.raw()).ok()) {
        let source = "kubecontrollermanagers.operator.openshift.io/cluster";
        flags.extend(config.arguments().map(|(name, value)| ComponentFlag {
            component: Component::ControllerManager,
            name: name.to_owned(),
            value: value.to_owned(),
            source: source.to_owned(),
        }));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(items: Vec<Value>, expected: &[(&str, &str, &str)]) {
        let flags = component_flags(&Objects::from_items(items));
        let found: Vec<(&str, &str, &str)> =
            flags.iter().map(|flag| (flag.name.as_str(), flag.value.as_str(), flag.source.as_str())).collect();
        assert_eq!(found, expected);
    }

    fn controller_manager(node: &str, command: Value) -> Value {
        json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("kube-controller-manager-{node}"), "namespace": "kube-system" },
            "spec": { "nodeName": node, "containers": [{ "name": "kube-controller-manager", "command": command }] } })
    }

    #[test]
    fn flags_of_static_pods_are_those_of_the_leader() {
        let a = controller_manager("a", json!(["kube-controller-manager", "--node-monitor-grace-period=20s"]));
        let b = controller_manager(
            "b_1",
            json!([
                "kube-controller-manager",
                "--node-monitor-grace-period",
                "30s",
                "--disable-force-detach-on-timeout"
            ]),
        );
        let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "kube-controller-manager", "namespace": "kube-system" },
            "spec": { "holderIdentity": "b_1_1f6f1b1c" } });
        let from_a = "pod kube-system/kube-controller-manager-a";
        let from_b = "pod kube-system/kube-controller-manager-b_1";
        check(vec![a.clone(), b.clone()], &[("node-monitor-grace-period", "20s", from_a)]);
        check(
            vec![a, b, lease],
            &[("node-monitor-grace-period", "30s", from_b), ("disable-force-detach-on-timeout", "true", from_b)],
        );
    }

    #[test]
    fn k3s_keeps_the_flags_in_an_annotation_of_the_node() {
        let arguments = r#"["server","--kube-controller-manager-arg","node-monitor-grace-period=20s",
            "--kubelet-arg=node-status-update-frequency=4s","--disable","traefik"]"#;
        let node = json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "a", "annotations": { "k3s.io/node-args": arguments } } });
        let source = "annotation k3s.io/node-args of node a";
        check(
            vec![node],
            &[("node-monitor-grace-period", "20s", source), ("node-status-update-frequency", "4s", source)],
        );
    }

    #[test]
    fn openshift_sets_them_by_profile_and_by_hand() {
        let node = json!({ "apiVersion": "config.openshift.io/v1", "kind": "Node", "metadata": { "name": "cluster" },
            "spec": { "workerLatencyProfile": "MediumUpdateAverageReaction" } });
        let profile = "worker latency profile MediumUpdateAverageReaction of nodes.config.openshift.io/cluster";
        let by_profile =
            [("node-monitor-grace-period", "2m", profile), ("node-status-update-frequency", "20s", profile)];
        check(vec![node.clone()], &by_profile);
        let manager = json!({ "apiVersion": "operator.openshift.io/v1", "kind": "KubeControllerManager",
            "metadata": { "name": "cluster" }, "spec": {
                "observedConfig": { "extendedArguments": { "node-monitor-grace-period": ["2m0s"] } },
                "unsupportedConfigOverrides": { "extendedArguments": { "node-eviction-rate": ["0.2"] } } } });
        let operator = "kubecontrollermanagers.operator.openshift.io/cluster";
        let by_hand = [("node-monitor-grace-period", "2m0s", operator), ("node-eviction-rate", "0.2", operator)];
        check(vec![node, manager], &[&by_profile[..], &by_hand[..]].concat());
    }

    #[test]
    fn an_object_of_another_shape_sets_nothing() {
        let manager = json!({ "apiVersion": "operator.openshift.io/v1", "kind": "KubeControllerManager",
            "metadata": { "name": "cluster" }, "spec": { "observedConfig": "text" } });
        check(vec![manager, controller_manager("a", json!(7))], &[]);
    }
}
