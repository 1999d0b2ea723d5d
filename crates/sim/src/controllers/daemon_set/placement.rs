//! Which nodes a DaemonSet should run on (`NodeShouldRunDaemonPod`), and the pod that it creates for one.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};
use stead_semantics::{RequiredNodeAffinity, find_untolerated};

use super::super::ownership::labels;
use super::super::revisions::HASH_LABEL;
use crate::api::daemon_set_strategy::template_generation;
use crate::object::SimObject;
use crate::pods::{from_template, node_of};

/// The label of daemon pods with the generation of their template.
const GENERATION_LABEL: &str = "pod-template-generation";

/// Whether a node should have a daemon pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeVerdict {
    /// A pod is created if there is none.
    pub(super) should_run: bool,
    /// A pod that is there may stay.
    pub(super) should_continue: bool,
}

/// What a DaemonSet asks of a node.
pub(super) struct Placement {
    node_name: Option<String>,
    affinity: Option<RequiredNodeAffinity>,
    tolerations: Vec<Toleration>,
}

impl Placement {
    /// What the template of a DaemonSet asks of a node.
    pub(super) fn of(set: &DaemonSet) -> Placement {
        let none = PodSpec::default();
        let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).unwrap_or(&none);
        Placement {
            node_name: spec.node_name.clone().filter(|name| !name.is_empty()),
            affinity: RequiredNodeAffinity::of(spec).ok().filter(|affinity| !affinity.is_none()),
            tolerations: tolerations(spec),
        }
    }

    /// The verdict on a node.
    pub(super) fn verdict(&self, node: &Node) -> NodeVerdict {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let fits = self.node_name.as_deref().is_none_or(|wanted| wanted == name)
            && self.affinity.as_ref().is_none_or(|affinity| affinity.matches(name, labels(&node.metadata)));
        if !fits {
            return NodeVerdict { should_run: false, should_continue: false };
        }
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let tolerated = |effects: fn(&Taint) -> bool| find_untolerated(taints, &self.tolerations, effects).is_none();
        NodeVerdict {
            should_run: tolerated(|taint| matches!(taint.effect.as_str(), "NoExecute" | "NoSchedule")),
            should_continue: tolerated(|taint| taint.effect == "NoExecute"),
        }
    }
}

/// The tolerations of a daemon pod (`AddOrUpdateDaemonPodTolerations`).
fn tolerations(spec: &PodSpec) -> Vec<Toleration> {
    let mut tolerations = spec.tolerations.clone().unwrap_or_default();
    let network = spec.host_network == Some(true);
    for (key, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ]
    .into_iter()
    .chain(network.then_some(("network-unavailable", "NoSchedule")))
    {
        let added = Toleration {
            key: Some(format!("node.kubernetes.io/{key}")),
            operator: Some("Exists".into()),
            effect: Some(effect.into()),
            ..Toleration::default()
        };
        let is_same = |other: &Toleration| {
            let value = other.value.as_deref().unwrap_or_default();
            (&other.key, &other.effect, &other.operator, value) == (&added.key, &added.effect, &added.operator, "")
        };
        if tolerations.iter().any(is_same) {
            // One with a time limit loses it.
            tolerations.iter_mut().filter(|other| is_same(other)).for_each(|other| *other = added.clone());
        } else {
            tolerations.push(added);
        }
    }
    tolerations
}

/// The daemon pods of a set, without their node.
pub(super) struct PodTemplate {
    pod: Pod,
}

impl PodTemplate {
    /// The pod of a set's template with this hash (`CreatePodTemplate`).
    pub(super) fn of(set: &DaemonSet, owner: &SimObject, hash: &str) -> PodTemplate {
        let mut template = set.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
        let spec = template.spec.get_or_insert_default();
        spec.tolerations = Some(tolerations(spec));
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        if let Some(generation) = template_generation(set) {
            labels.insert(GENERATION_LABEL.into(), generation.to_string());
        }
        labels.insert(HASH_LABEL.into(), hash.into());
        PodTemplate { pod: from_template(&template, owner) }
    }

    /// The pod for a node: the scheduler binds it there (`ReplaceDaemonSetPodNodeNameNodeAffinity`).
    pub(super) fn for_node(&self, node: &str) -> Pod {
        let mut pod = self.pod.clone();
        let affinity: &mut Affinity = pod.spec.get_or_insert_default().affinity.get_or_insert_default();
        let required = &mut affinity.node_affinity.get_or_insert_default().required_during_scheduling_ignored_during_execution;
        let name = NodeSelectorRequirement {
            key: "metadata.name".into(),
            operator: "In".into(),
            values: Some(vec![node.into()]),
        };
        *required = Some(NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm { match_fields: Some(vec![name]), match_expressions: None }],
        });
        pod
    }
}

/// The node that a daemon pod is for (`GetTargetNodeName`).
pub(super) fn target_node(pod: &Pod) -> Option<&str> {
    node_of(pod).or_else(|| {
        let affinity = pod.spec.as_ref()?.affinity.as_ref()?.node_affinity.as_ref()?;
        let terms = &affinity.required_during_scheduling_ignored_during_execution.as_ref()?.node_selector_terms;
        let mut fields = terms.iter().flat_map(|term| term.match_fields.iter().flatten());
        let name = fields.find(|field| field.key == "metadata.name" && field.operator == "In")?;
        match name.values.as_deref() {
            Some([name]) => Some(name.as_str()),
            _ => None,
        }
    })
}

/// Whether a pod has the present template (`IsPodUpdated`).
pub(super) fn is_updated(pod: &Pod, hash: &str, generation: Option<&str>) -> bool {
    let labels = labels(&pod.metadata);
    let has = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
    (!hash.is_empty() && has(HASH_LABEL, hash)) || generation.is_some_and(|generation| has(GENERATION_LABEL, generation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn set(template: Value) -> DaemonSet {
        serde_json::from_value(json!({ "metadata": { "name": "d", "namespace": "n", "uid": "u" },
            "spec": { "selector": {}, "template": { "spec": template } } }))
        .expect("a DaemonSet")
    }

    #[test]
    fn nodes_that_should_run_a_pod() {
        let affinity = |value: &str| {
            let term = json!({ "matchExpressions": [{ "key": "type", "operator": "In", "values": [value] }] });
            let required = json!({ "nodeSelectorTerms": [term] });
            json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } } })
        };
        let taint = |key: &str, effect: &str| json!([{ "key": key, "effect": effect }]);
        let tolerates = |key: &str| json!({ "tolerations": [{ "key": key, "operator": "Exists" }] });
        let (both, neither, stays) = ((true, true), (false, false), (false, true));
        for (template, taints, expected) in [
            (json!({}), json!([]), both),
            (json!({ "nodeName": "other" }), json!([]), neither),
            (json!({ "nodeName": "a" }), json!([]), both),
            (json!({ "nodeSelector": { "type": "test" } }), json!([]), neither),
            (json!({ "nodeSelector": { "type": "production" } }), json!([]), both),
            (affinity("test"), json!([]), neither),
            (affinity("production"), json!([]), both),
            (json!({}), taint("node.kubernetes.io/unschedulable", "NoSchedule"), both),
            (json!({}), taint("node.kubernetes.io/not-ready", "NoExecute"), both),
            (json!({}), taint("node.kubernetes.io/not-ready", "NoSchedule"), stays),
            (json!({}), taint("node.kubernetes.io/unreachable", "NoSchedule"), stays),
            (json!({}), taint("node.kubernetes.io/out-of-service", "NoExecute"), neither),
            (json!({}), taint("node.kubernetes.io/network-unavailable", "NoSchedule"), stays),
            (json!({ "hostNetwork": true }), taint("node.kubernetes.io/network-unavailable", "NoSchedule"), both),
            (json!({}), taint("mine", "PreferNoSchedule"), both),
            (json!({}), taint("mine", "NoSchedule"), stays),
            (json!({}), taint("mine", "NoExecute"), neither),
            (tolerates("mine"), taint("mine", "NoExecute"), both),
        ] {
            let node: Node = serde_json::from_value(json!({ "metadata": { "name": "a", "labels": { "type": "production" } },
                "spec": { "taints": taints } }))
            .expect("a Node");
            let verdict = Placement::of(&set(template.clone())).verdict(&node);
            assert_eq!((verdict.should_run, verdict.should_continue), expected, "{template} {taints}");
        }
    }

    #[test]
    fn a_daemon_pod_is_for_one_node_and_tolerates_its_problems() {
        let term = json!({ "matchExpressions": [{ "key": "type", "operator": "Exists" }] });
        let template = json!({
            "affinity": { "podAntiAffinity": {}, "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } },
            "tolerations": [{ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 30 }] });
        let set = set(template);
        let pod = PodTemplate::of(&set, &set.clone().into(), "hash").for_node("a");
        let pod = serde_json::to_value(&pod).expect("a pod");
        assert_eq!(
            pod["spec"]["affinity"],
            json!({ "podAntiAffinity": {}, "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["a"] }] }] } } })
        );
        let tolerations: Vec<String> = pod["spec"]["tolerations"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|it| format!("{} {} {}", it["key"], it["effect"], it["tolerationSeconds"]).replace('"', ""))
            .collect();
        assert_eq!(
            tolerations,
            [
                "node.kubernetes.io/unreachable NoExecute null",
                "node.kubernetes.io/not-ready NoExecute null",
                "node.kubernetes.io/disk-pressure NoSchedule null",
                "node.kubernetes.io/memory-pressure NoSchedule null",
                "node.kubernetes.io/pid-pressure NoSchedule null",
                "node.kubernetes.io/unschedulable NoSchedule null",
            ]
        );
        assert_eq!(pod["metadata"]["labels"], json!({ "controller-revision-hash": "hash" }));
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        assert_eq!(target_node(&pod), Some("a"));
    }
}
