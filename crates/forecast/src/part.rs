//! The part of a cluster that takes part in what happens next.
//!
//! Most pods of a large cluster are on nodes that are heard of, and stay there whatever happens elsewhere: the scheduler has
//! to know them, nobody else. The others have no node yet, have lost it, or are being deleted: they take room or make it. They
//! are taken with what belongs to them: the same workloads, and pods that use the same claims.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::ReplicaSet;
use stead_model::{ObjectKey, Objects, PodOutline, PodView, controller_of};

/// So many other pods are taken at most: those of the same nodes first, then those that make room, then those that wait for it.
const MOST_OTHERS: usize = 500;

/// The pods, workloads and claims that take part.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pods: BTreeSet<ObjectKey>,
    workloads: BTreeSet<ObjectKey>,
    claims: BTreeSet<ObjectKey>,
}

/// Names that are looked up for each pod, by namespace.
type Names<'a> = BTreeMap<&'a str, BTreeSet<(&'a str, &'a str)>>;

fn by_namespace(keys: &BTreeSet<ObjectKey>) -> Names<'_> {
    let mut names = Names::new();
    for key in keys {
        names.entry(&key.namespace).or_default().insert((&key.kind, &key.name));
    }
    names
}

impl Part {
    /// These pods and those that change places, with what belongs to them.
    pub(crate) fn of(objects: &Objects, silent: &BTreeSet<String>, about: &[PodView<'_>]) -> Part {
        let mut part = Part::default();
        let nodes: BTreeSet<&str> = objects.keys("Node").map(|key| key.name.as_str()).collect();
        let asked: BTreeSet<&ObjectKey> = about.iter().map(|pod| pod.key()).collect();
        let own_nodes: BTreeSet<&str> = about.iter().filter_map(|pod| pod.node()).collect();
        let mut others: Vec<(u8, &ObjectKey)> = Vec::new();
        for object in objects.of_kind("Pod").filter(|object| !asked.contains(object.key())) {
            let pod = object.outline();
            let rank = match pod.node() {
                Some(node) if silent.contains(node) || !nodes.contains(node) => 3 * u8::from(!own_nodes.contains(node)),
                Some(_) if pod.is_terminating() => 1,
                Some(_) => continue,
                None => 2,
            };
            others.push((rank, object.key()));
        }
        if others.len() > MOST_OTHERS {
            others.sort_by_key(|(rank, _)| *rank);
            others.truncate(MOST_OTHERS);
        }
        for key in others.iter().map(|(_, key)| *key).chain(asked.iter().copied()) {
            let Some(pod) = objects.object(key).map(|object| object.outline()) else { continue };
            // Other pods of a DaemonSet are on other nodes, and stay there.
            let owner = pod.controller().filter(|(kind, _)| asked.contains(key) || *kind != "DaemonSet");
            part.workloads.extend(owner.map(|(kind, name)| ObjectKey::new(kind, &key.namespace, name)));
            part.pods.insert(key.clone());
        }
        part.add_rollouts(objects);
        let workloads = by_namespace(&part.workloads);
        let found = found_pods(objects, &part.pods, |key, pod| {
            let names = workloads.get(key.namespace.as_str());
            names.is_some_and(|names| pod.controller().is_some_and(|owner| names.contains(&owner)))
        });
        part.add_pods(found);
        let claims = by_namespace(&part.claims);
        let found = found_pods(objects, &part.pods, |key, pod| {
            let names = claims.get(key.namespace.as_str());
            names.is_some_and(|names| pod.claims().any(|claim| names.contains(&("PersistentVolumeClaim", claim))))
        });
        part.add_pods(found);
        part
    }

    /// The pods that take part.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &ObjectKey> {
        self.pods.iter()
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

    fn add_pods(&mut self, found: Vec<(ObjectKey, Vec<ObjectKey>)>) {
        for (pod, claims) in found {
            self.pods.insert(pod);
            self.claims.extend(claims);
        }
    }
}

/// These pods and those for which a check holds, with their claims.
fn found_pods(
    objects: &Objects,
    pods: &BTreeSet<ObjectKey>,
    check: impl Fn(&ObjectKey, &PodOutline) -> bool,
) -> Vec<(ObjectKey, Vec<ObjectKey>)> {
    let found =
        objects.of_kind("Pod").filter(|object| check(object.key(), object.outline()) || pods.contains(object.key()));
    let claims =
        |key: &ObjectKey, pod: &PodOutline| pod.claims().map(|claim| claim_key(&key.namespace, claim)).collect();
    found.map(|object| (object.key().clone(), claims(object.key(), object.outline()))).collect()
}

fn claim_key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new("PersistentVolumeClaim", namespace, name)
}
