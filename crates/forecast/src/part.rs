//! The part of a cluster that takes part in what happens next.
//!
//! Most pods of a large cluster are Ready on nodes that are heard of, and stay there whatever happens elsewhere: the
//! scheduler has to know them, nobody else. The others are in trouble, or have to do with pods that are: they belong to
//! the same workloads, or use the same claims.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::ReplicaSet;
use stead_model::{ObjectKey, Objects, PodOutline, PodView, controller_of};

/// The pods, workloads and claims that take part.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pods: BTreeSet<ObjectKey>,
    workloads: BTreeSet<ObjectKey>,
    claims: BTreeSet<ObjectKey>,
}

impl Part {
    /// The pods in trouble and these pods, with what belongs to them.
    pub(crate) fn of(objects: &Objects, silent: &BTreeSet<String>, about: &[PodView<'_>]) -> Part {
        let mut part = Part::default();
        let nodes: BTreeSet<&str> = objects.keys("Node").map(|key| key.name.as_str()).collect();
        let is_asked = |key: &ObjectKey| about.iter().any(|pod| pod.key() == key);
        for object in objects.of_kind("Pod") {
            let (key, pod) = (object.key(), object.outline());
            let asked = is_asked(key);
            if !asked && !is_in_trouble(pod, &nodes, silent) {
                continue;
            }
            // Other pods of a DaemonSet are on other nodes, and stay there.
            let owner = pod.controller().filter(|(kind, _)| asked || *kind != "DaemonSet");
            part.workloads.extend(owner.map(|(kind, name)| ObjectKey::new(kind, &key.namespace, name)));
            part.pods.insert(key.clone());
        }
        part.add_rollouts(objects);
        part.add_pods(objects, |part, key, pod| {
            let owner = pod.controller().map(|(kind, name)| ObjectKey::new(kind, &key.namespace, name));
            owner.is_some_and(|owner| part.workloads.contains(&owner))
        });
        part.add_pods(objects, |part, key, pod| {
            pod.claims().any(|claim| part.claims.contains(&claim_key(&key.namespace, claim)))
        });
        part
    }

    /// Whether a pod takes part.
    pub(crate) fn has_pod(&self, key: &ObjectKey) -> bool {
        self.pods.contains(key)
    }

    /// Whether a workload takes part.
    pub(crate) fn has_workload(&self, key: &ObjectKey) -> bool {
        self.workloads.contains(key)
    }

    /// Whether a claim is used by a pod that takes part, or belongs to one of a StatefulSet's pods, which may not be there.
    pub(crate) fn has_claim(&self, namespace: &str, name: &str) -> bool {
        let of_set = || {
            let (claim, ordinal) = name.rsplit_once('-')?;
            ordinal.parse::<u32>().ok()?;
            let sets = self.workloads.iter().filter(|set| set.kind == "StatefulSet" && set.namespace == namespace);
            Some(sets.into_iter().any(|set| claim.strip_suffix(&set.name).is_some_and(|rest| rest.ends_with('-'))))
        };
        self.claims.contains(&claim_key(namespace, name)) || of_set().unwrap_or_default()
    }

    /// The Deployments of ReplicaSets, and all ReplicaSets of these.
    fn add_rollouts(&mut self, objects: &Objects) {
        let above = |set: &ReplicaSet, key: &ObjectKey| {
            let owner = controller_of(&set.metadata).filter(|owner| owner.kind == "Deployment")?;
            Some(ObjectKey::new("Deployment", &key.namespace, &owner.name))
        };
        let own = self.workloads.iter().filter(|key| key.kind == "ReplicaSet");
        let own = own.filter_map(|key| above(objects.find::<ReplicaSet>(&key.namespace, &key.name)?, key));
        let deployments: BTreeSet<ObjectKey> = own.collect();
        for namespace in deployments.iter().map(|key| key.namespace.as_str()).collect::<BTreeSet<&str>>() {
            let sets = objects.all_in::<ReplicaSet>(namespace);
            let ours = sets.filter(|(key, set)| above(set, key).is_some_and(|owner| deployments.contains(&owner)));
            self.workloads.extend(ours.map(|(key, _)| key.clone()));
        }
        self.workloads.extend(deployments);
    }

    /// Adds the pods for which a check holds, and the claims of all pods that take part.
    fn add_pods(&mut self, objects: &Objects, check: impl Fn(&Part, &ObjectKey, &PodOutline) -> bool) {
        let mut found = Vec::new();
        for object in objects.of_kind("Pod") {
            if self.pods.contains(object.key()) || check(self, object.key(), object.outline()) {
                let claims = object.outline().claims().map(|claim| claim_key(&object.key().namespace, claim));
                found.push((object.key().clone(), claims.collect::<Vec<_>>()));
            }
        }
        for (pod, claims) in found {
            self.pods.insert(pod);
            self.claims.extend(claims);
        }
    }
}

fn claim_key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new("PersistentVolumeClaim", namespace, name)
}

/// Whether a pod may not stay as it is: it has no node, or one that is not heard of; it is not Ready, or being deleted.
fn is_in_trouble(pod: &PodOutline, nodes: &BTreeSet<&str>, silent: &BTreeSet<String>) -> bool {
    let has_ended = matches!(pod.phase(), Some("Succeeded" | "Failed"));
    let heard = pod.node().is_some_and(|node| nodes.contains(node) && !silent.contains(node));
    !heard || pod.is_terminating() || (!pod.is_ready() && !has_ended)
}
