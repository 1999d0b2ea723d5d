//! The fast path compared with the reference path: the same feasible and best nodes, pod by pod.
//!
//! A seed determines clusters, pods and events. A failing seed is printed; to repeat it:
//! `STEAD_SEED=17 cargo test -p stead-placement --test fast`.
#![expect(clippy::disallowed_methods, reason = "a seed can be given from outside")]

mod limits;
mod objects;
mod rng;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node as RawNode, Pod as RawPod};
use objects::Objects;
use rng::Rng;
use stead_model::KubernetesVersion;
use stead_placement::{Cluster, Node, Pod, PodKey, Snapshot, evaluate};

/// A cluster and the objects that it was built from.
#[derive(Clone)]
struct World {
    cluster: Cluster,
    nodes: BTreeMap<String, RawNode>,
    pods: BTreeMap<(String, String), RawPod>,
    /// Objects that do not change.
    rest: Snapshot,
}

fn key(pod: &RawPod) -> (String, String) {
    (pod.metadata.namespace.clone().unwrap_or_default(), pod.metadata.name.clone().unwrap_or_default())
}

impl World {
    fn new(objects: &mut Objects, version: KubernetesVersion) -> World {
        let rest = objects.surroundings();
        let cluster = Cluster::from_snapshot(&rest, version).expect("valid objects");
        let mut world = World { cluster, nodes: BTreeMap::new(), pods: BTreeMap::new(), rest };
        for _ in 0..objects.rng.between(0, 14) {
            world.set_node(objects.node());
        }
        for _ in 0..objects.rng.between(0, 30) {
            let pod = objects.bound_pod(&world.nodes);
            world.set_pod(pod);
        }
        world
    }

    fn set_node(&mut self, node: RawNode) {
        self.cluster.set_node(Node::compile(&node).expect("a valid node"));
        self.nodes.insert(node.metadata.name.clone().unwrap_or_default(), node);
    }

    fn set_pod(&mut self, pod: RawPod) {
        self.cluster.set_pod(Pod::compile(&pod, self.cluster.version()).expect("a valid pod"));
        self.pods.insert(key(&pod), pod);
    }

    fn remove_pod(&mut self, key: &(String, String)) {
        self.pods.remove(key);
        self.cluster.remove_pod(&PodKey::new(&key.0, &key.1)).expect("the pod is there");
    }

    /// Places a pod with both paths, compares the results, and assumes the pod on a node.
    fn place(&mut self, mut raw: RawPod, seed: u64) -> Result<(), String> {
        let pod = Pod::compile(&raw, self.cluster.version()).expect("a valid pod");
        let reference = evaluate(&self.cluster, &pod).expect("nothing unmodelled");
        let fast = self.cluster.place(&pod).expect("nothing unmodelled");
        let mut feasible: Vec<_> = fast.feasible().collect();
        feasible.sort();
        if !feasible.iter().copied().eq(reference.feasible()) || fast.fitting() != feasible.len() {
            let rejected: Vec<_> = reference.rejected.iter().map(|(n, r)| (n, &r.reasons)).collect();
            let reference: Vec<_> = reference.feasible().collect();
            return Err(format!("fit: fast {feasible:?}, reference {reference:?}\nrejected {rejected:?}\npod {raw:?}"));
        }
        if !fast.best().eq(&reference.best) || fast.choose(seed) != reference.choose(seed) {
            let best: Vec<_> = fast.best().collect();
            return Err(format!(
                "best: fast {best:?}, reference {:?}\n{:#?}\npod {raw:?}",
                reference.best, reference.scores
            ));
        }
        if let Some(node) = fast.choose(seed).cloned() {
            self.cluster.assume(&pod, &node).expect("the node is there");
            raw.spec.get_or_insert_default().node_name = Some(node.to_string());
            raw.status = None;
            self.pods.insert(key(&raw), raw);
        }
        Ok(())
    }

    /// The changed cluster equals one that is built from the same objects.
    fn check_against_rebuilt(&self, pod: &RawPod) -> Result<(), String> {
        let snapshot = Snapshot {
            nodes: self.nodes.values().cloned().collect(),
            pods: self.pods.values().cloned().collect(),
            ..self.rest.clone()
        };
        let version = self.cluster.version();
        let rebuilt = Cluster::from_snapshot(&snapshot, version).expect("valid objects");
        let pod = Pod::compile(pod, version).expect("a valid pod");
        let (ours, theirs) = (evaluate(&self.cluster, &pod), evaluate(&rebuilt, &pod));
        let same = ours.as_ref().map(|v| (&v.scores, &v.rejected)) == theirs.as_ref().map(|v| (&v.scores, &v.rejected));
        if same { Ok(()) } else { Err(format!("rebuilt: {theirs:?}\nkept: {ours:?}")) }
    }

    /// Applies a random event.
    fn step(&mut self, objects: &mut Objects) -> Result<(), String> {
        match objects.rng.below(24) {
            0 => self.set_node(objects.node()),
            1 => {
                if let Some(mut node) = objects.rng.pick_from(self.nodes.values()).cloned() {
                    objects.change_node(&mut node);
                    self.set_node(node);
                }
            }
            2 if objects.rng.chance(30) => {
                if let Some(name) = objects.rng.pick_from(self.nodes.keys()).cloned() {
                    self.nodes.remove(&name);
                    self.cluster.remove_node(&name).expect("the node is there");
                }
            }
            3 => {
                if let Some(key) = objects.rng.pick_from(self.pods.keys()).cloned() {
                    self.remove_pod(&key);
                }
            }
            5 => {
                if let Some(mut pod) = objects.rng.pick_from(self.pods.values()).cloned() {
                    objects.terminate(&mut pod);
                    self.set_pod(pod);
                }
            }
            6 => {
                let pod = objects.bound_pod(&self.nodes);
                self.set_pod(pod);
            }
            7 if objects.promises => {
                let pod = objects.nominated_pod(&self.nodes);
                self.set_pod(pod);
            }
            8 if objects.rng.chance(50) => self.check_against_rebuilt(&objects.pod())?,
            _ => self.place(objects.pod(), objects.rng.next())?,
        }
        Ok(())
    }
}

/// The newest version for half of the seeds, and each of the others in turn.
fn version(seed: u64) -> KubernetesVersion {
    let mut older = KubernetesVersion::all().filter(|version| *version != KubernetesVersion::NEWEST);
    if seed.is_multiple_of(2) { None } else { older.nth((seed / 2 % 7) as usize) }.unwrap_or_default()
}

fn play(seed: u64) -> Result<(), String> {
    let mut objects = Objects::new(Rng::new(seed));
    let mut worlds = vec![World::new(&mut objects, version(seed))];
    for step in 0..60 {
        // Forks change independently: a change to one must not affect the other.
        if worlds.len() < 3 && objects.rng.chance(5) {
            let fork = worlds[0].clone();
            worlds.push(fork);
        }
        let at = objects.rng.below(worlds.len() as u64) as usize;
        worlds[at].step(&mut objects).map_err(|e| format!("step {step}, fork {at}: {e}"))?;
    }
    for world in &worlds {
        world.check_against_rebuilt(&objects.pod())?;
    }
    Ok(())
}

#[test]
fn agrees_with_the_reference_path() {
    let seeds = match std::env::var("STEAD_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..600,
    };
    for seed in seeds {
        match std::panic::catch_unwind(|| play(seed)) {
            Ok(Ok(())) => {}
            Ok(Err(difference)) => panic!("STEAD_SEED={seed}: {difference}"),
            Err(_) => panic!("STEAD_SEED={seed}: a panic, as told above"),
        }
    }
}
