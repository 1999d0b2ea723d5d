//! What is to be done about the pods of a node, and what is not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use stead_explain::outage::{HeldVolume, NodeStanding, OUT_OF_SERVICE, volumes_of};
use stead_model::{ModelError, ObjectKey, Objects};
use stead_placement::{Cluster, Node, Pod, PodKey, evaluate};

use crate::limits::{BEST_NODES, LISTED_ENDED_PODS};
use crate::mark;
use crate::owners;
use crate::pods::{PodSeen, bears};
use crate::policy::Policy;
use crate::record::{CondemnedPod, Evidence, LeftAlone, Plan, Shield, Target};
use crate::shield;

/// How the taints begin by which Kubernetes itself says how a node is.
const OF_KUBERNETES: &str = "node.kubernetes.io/";

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is no such node.
    #[error("node {0}: not found")]
    NoSuchNode(String),
    /// The cluster cannot be understood.
    #[error(transparent)]
    Object(#[from] ModelError),
    /// A pod would be lost whose successor finds no place.
    #[error(
        "pod {pod}: it is Terminating, which the taint would end at once, and its successor would find no place: {why}; \
         make room first, or allow it (allowPending)"
    )]
    NoPlace {
        /// The pod.
        pod: String,
        /// Why no node takes its successor.
        why: String,
    },
    /// The evidence does not say that something has ended which the taint would end.
    #[error("{what}: the evidence ({kind}) does not prove that it has ended, and it cannot be kept from the taint")]
    NotProven {
        /// What.
        what: String,
        /// The kind of the evidence.
        kind: String,
    },
}

/// What a recovery of the node would do: every pod that is there is either condemned or left alone.
pub fn plan(objects: &Objects, node: &str, policy: &Policy) -> Result<Plan, PlanError> {
    let standing = NodeStanding::find(objects, node).ok_or_else(|| PlanError::NoSuchNode(node.into()))?;
    let (taken, promised) = (BTreeSet::new(), BTreeMap::new());
    Planner { objects, node: &standing, policy, fork: None, taken, promised }.plan()
}

struct Planner<'a> {
    objects: &'a Objects,
    node: &'a NodeStanding,
    policy: &'a Policy,
    /// The cluster as it would be, from its first use on.
    fork: Option<Cluster>,
    /// The pods that already stand in for others.
    taken: BTreeSet<&'a str>,
    /// How many pods a controller, by its uid, would make anew by this plan.
    promised: BTreeMap<&'a str, i64>,
}

impl<'a> Planner<'a> {
    fn plan(mut self) -> Result<Plan, PlanError> {
        let objects = self.objects;
        let mut plan = Plan::default();
        let mut candidates = Vec::new();
        let mut ended: usize = 0;
        let hostile = shield::hostile(self.node);
        for pod in PodSeen::on(objects, &self.node.name) {
            match of_the_node(pod) {
                Some(why) => {
                    let mut left = alone(pod, why, None);
                    // A DaemonSet asks its own template whether a pod may stay on a node (NodeShouldRunDaemonPod in
                    // pkg/controller/daemon), so that no toleration of the pod's keeps it. With it goes what it has attached.
                    if !left.passing && bears(pod.tolerations(), &hostile).is_some() {
                        left.why += "; it ends with the taint, and is made anew when that is gone";
                        let volumes = volumes_of(objects, pod.namespace(), pod.value);
                        left.passing = !volumes.iter().any(|v| v.attached);
                    }
                    ended += usize::from(pod.has_ended());
                    if !pod.has_ended() || ended <= LISTED_ENDED_PODS {
                        plan.left_alone.push(left);
                    }
                }
                None => candidates.push(pod),
            }
        }
        if let Some(more) = ended.checked_sub(LISTED_ENDED_PODS).filter(|more| *more > 0) {
            let what = format!("{more} more pods");
            plan.left_alone.push(LeftAlone {
                what,
                why: "they have ended".into(),
                passing: true,
                ..LeftAlone::default()
            });
        }
        candidates.sort_by_key(|pod| (urgency(*pod), pod.namespace(), pod.name()));
        for pod in candidates {
            let volumes = volumes_of(objects, pod.namespace(), pod.value);
            let tolerates = bears(pod.tolerations(), &[mark::taint()]).is_none();
            let stays = match (self.bound_to_it(&volumes), tolerates, self.policy.include_tolerating) {
                (Some(why), _, _) => Some(why),
                (None, true, false) => Some(format!("it tolerates {OUT_OF_SERVICE}")),
                (None, true, true) if !volumes.is_empty() => {
                    Some(format!("it tolerates {OUT_OF_SERVICE}, so that its successor could be put on this very node"))
                }
                _ => None,
            };
            let (target, feasible) = match stays {
                Some(why) => (Target::Nowhere(why), 0),
                None => self.target(pod)?,
            };
            if let Target::Nowhere(why) = &target {
                if pod.terminating().is_none() {
                    plan.left_alone.push(alone(pod, why.clone(), shield::needed(pod, &hostile)));
                    continue;
                }
                if !self.policy.allow_pending {
                    return Err(PlanError::NoPlace { pod: pod_name(pod), why: why.clone() });
                }
            }
            plan.pods.push(CondemnedPod { feasible_nodes: feasible, ..condemned(pod, &volumes, target, tolerates) });
        }
        self.volumes(&mut plan);
        let foreign =
            self.node.taints.iter().filter(|t| mark::Mark::of(self.node).is_none() || t["key"] != OUT_OF_SERVICE);
        for taint in foreign.filter(|t| t["key"] == OUT_OF_SERVICE || !of_kubernetes(t)) {
            let key = taint["key"].as_str().unwrap_or_default();
            let why = if key == OUT_OF_SERVICE {
                "somebody else has put it there: it is made use of, and stays"
            } else {
                "it is not ours"
            };
            plan.left_alone.push(LeftAlone { what: format!("taint {key}"), why: why.into(), ..LeftAlone::default() });
        }
        Ok(plan)
    }

    /// Why a pod cannot leave the node, whatever the others have to offer.
    fn bound_to_it(&self, volumes: &[HeldVolume]) -> Option<String> {
        let local = volumes.iter().find(|v| v.is_local())?;
        let volume = local.volume.as_deref().unwrap_or("none");
        Some(format!("claim {}: its volume {volume} is on this node and nowhere else", local.claim))
    }

    /// Where the pod's replacement would go, with the pods before it placed, and how many nodes can run it.
    fn target(&mut self, pod: PodSeen<'a>) -> Result<(Target, usize), PlanError> {
        let objects = self.objects;
        let Some(owner) = pod.controller() else { return Ok((Target::Gone, 0)) };
        let is_other = |other: &PodSeen<'_>| {
            other.terminating().is_none()
                && !other.has_ended()
                && other.node() != Some(&self.node.name)
                && other.controller().is_some_and(|o| o["uid"] == owner["uid"])
        };
        let others: Vec<PodSeen<'a>> = PodSeen::all(objects).filter(is_other).collect();
        let promised = self.promised.entry(owner["uid"].as_str().unwrap_or_default()).or_default();
        let there = i64::try_from(others.len()).unwrap_or(i64::MAX).saturating_add(*promised);
        let enough = makes_no_more(objects, pod, owner, there);
        // What was made in its place waits, as a rule; where nothing more is made, it may be ready by now.
        let free = |other: &&PodSeen<'a>| pod.terminating().is_some() && !self.taken.contains(other.uid());
        let waiting = others.iter().filter(free).find(|other| !other.is_ready());
        let ready = || others.iter().filter(free).find(|other| enough && was_made_after(**other, pod));
        let key = match waiting.or_else(ready) {
            Some(other) => {
                self.taken.insert(other.uid());
                if let Some(node) = other.node() {
                    return Ok((Target::Nodes(vec![node.into()]), 1));
                }
                other.key()
            }
            None if enough => return Ok((Target::Gone, 0)),
            None => {
                *promised += 1;
                pod.key()
            }
        };
        let compiled = Pod::from_objects(objects, &key)?;
        let away = PodKey::new(pod.namespace(), pod.name());
        let node = self.node.name.clone();
        let fork = self.fork()?;
        fork.remove_pod(&away);
        fork.remove_pod(&compiled.key);
        Ok(place(fork, &compiled, &node))
    }

    /// The cluster, with the node out of service.
    fn fork(&mut self) -> Result<&mut Cluster, PlanError> {
        if self.fork.is_none() {
            let mut cluster = Cluster::from_objects(self.objects, None);
            let found = self.objects.raw(&ObjectKey::new("Node", "", &self.node.name)).unwrap_or(&Value::Null);
            let mut out = found.clone();
            // What others have put there may go at any moment.
            let lasts =
                |t: &&Value| t["key"].as_str().is_some_and(|k| k.starts_with(OF_KUBERNETES) && k != OUT_OF_SERVICE);
            out["spec"]["taints"] = self.node.taints.iter().filter(lasts).cloned().collect();
            if let Some(taints) = out["spec"]["taints"].as_array_mut() {
                taints.push(json!(mark::taint()));
            }
            let read = serde_json::from_value(out).ok().map(|node| Node::compile(&node));
            if let Some(node) = read.transpose().map_err(ModelError::from)? {
                cluster.set_node(node);
            }
            self.fork = Some(cluster);
        }
        Ok(self.fork.as_mut().expect("it was made above"))
    }

    /// What of the volumes is freed: those of condemned pods, but for what a pod that stays has too, and those that no pod
    /// of the node has.
    fn volumes(&self, plan: &mut Plan) {
        let condemned: BTreeSet<&str> = plan.pods.iter().map(|p| p.uid.as_str()).collect();
        let here = PodSeen::on(self.objects, &self.node.name).filter(|p| !condemned.contains(p.uid()));
        let stays = here.filter(|p| !p.has_ended() && p.terminating().is_none());
        let held = stays.flat_map(|p| volumes_of(self.objects, p.namespace(), p.value));
        let kept: BTreeSet<String> = held.filter_map(|v| v.volume).collect();
        plan.pods.iter_mut().for_each(|p| p.volumes.retain(|v| !kept.contains(v)));
        let attachments = self.objects.raw_of_kind("VolumeAttachment").map(|(_, a)| &a["spec"]);
        let here = attachments.filter(|a| a["nodeName"] == *self.node.name);
        let all: BTreeSet<&str> = here.filter_map(|a| a["source"]["persistentVolumeName"].as_str()).collect();
        let freed: BTreeSet<&str> = plan.pods.iter().flat_map(|p| &p.volumes).map(String::as_str).collect();
        let orphans = all.into_iter().filter(|v| !freed.contains(v) && !kept.contains(*v));
        plan.volumes = orphans.map(str::to_owned).collect();
    }
}

/// Whether a controller makes no pod in the place of this one, `there` others being there or on their way.
fn makes_no_more(objects: &Objects, pod: PodSeen<'_>, owner: &Value, there: i64) -> bool {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let Some(set) = objects.raw(&ObjectKey::new(text("kind"), pod.namespace(), text("name"))) else { return false };
    match text("kind") {
        "StatefulSet" => !owners::has_number(set, pod.name()),
        // One that wants none is of an older version of its Deployment, which makes the next pod by another.
        "ReplicaSet" if owners::replicas(set) == 0 && set["metadata"]["ownerReferences"].is_array() => false,
        "ReplicaSet" | "ReplicationController" => there >= owners::replicas(set),
        _ => false,
    }
}

/// Whether a pod was made after the deletion of another had begun.
fn was_made_after(pod: PodSeen<'_>, other: PodSeen<'_>) -> bool {
    pod.created().zip(other.terminating_since()).is_none_or(|(made, deleted)| made >= deleted)
}

/// Why a pod is none of a recovery's business.
fn of_the_node(pod: PodSeen<'_>) -> Option<String> {
    let owner = pod.controller();
    if pod.is_mirror() || owner.is_some_and(|o| o["kind"] == "Node") {
        Some("its kubelet has it from a file: it ends and starts with the machine".into())
    } else if let Some(owner) = owner.filter(|o| o["kind"] == "DaemonSet") {
        let set = owner["name"].as_str().unwrap_or_default();
        Some(format!("DaemonSet {set} looks after it: it belongs to the node"))
    } else if pod.has_ended() {
        Some("it has ended".into())
    } else {
        None
    }
}

/// Places a pod as the scheduler would, for the pods that come after it; also says how many nodes can run it.
fn place(fork: &mut Cluster, pod: &Pod, away_from: &str) -> (Target, usize) {
    let verdict = match evaluate(fork, pod) {
        Ok(verdict) => verdict,
        Err(unmodelled) => return (Target::Nowhere(unmodelled.to_string()), 0),
    };
    let mut fitting: Vec<_> = verdict.scores.iter().collect();
    let feasible = fitting.len();
    if fitting.iter().any(|(node, _)| ***node == *away_from) {
        let why = "it bears all taints that this node would have, so that its successor could be put on this very node";
        return (Target::Nowhere(why.into()), 0);
    }
    fitting.sort_by_key(|(node, scores)| (-scores.total, (*node).clone()));
    let nodes: Vec<String> = fitting.iter().take(BEST_NODES).map(|(node, _)| node.to_string()).collect();
    match nodes.first() {
        Some(best) => {
            // The node is one of the cluster's: it has just been judged.
            let _ = fork.assume(pod, best);
            (Target::Nodes(nodes), feasible)
        }
        None => {
            let why = verdict.message.or_else(|| verdict.error.map(|e| e.to_string()));
            (Target::Nowhere(why.unwrap_or_else(|| "no node can run it".into())), 0)
        }
    }
}

/// What comes first: what others need to get their volumes, then what matters more.
fn urgency(pod: PodSeen<'_>) -> (bool, i64) {
    let spec = &pod.value["spec"];
    let critical = spec["priorityClassName"].as_str().is_some_and(|c| c.starts_with("system-"));
    let mut containers = spec["containers"].as_array().into_iter().flatten();
    let attaches = containers.any(|c| {
        let words = [&c["name"], &c["image"]].map(|w| w.as_str().unwrap_or_default());
        words.iter().any(|w| w.contains("csi-attacher") || w.contains("csi-provisioner"))
    });
    (!(critical || attaches), -spec["priority"].as_i64().unwrap_or(0))
}

fn condemned(pod: PodSeen<'_>, volumes: &[HeldVolume], target: Target, tolerates: bool) -> CondemnedPod {
    let owner = pod.controller().map(|owner| {
        let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("kind"), text("name"))
    });
    CondemnedPod {
        namespace: pod.namespace().into(),
        name: pod.name().into(),
        uid: pod.uid().into(),
        owner,
        volumes: volumes.iter().filter(|v| v.attached).filter_map(|v| v.volume.clone()).collect(),
        terminating: pod.terminating().is_some(),
        target,
        feasible_nodes: 0,
        tolerates,
        taken: false,
    }
}

fn pod_name(pod: PodSeen<'_>) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

fn alone(pod: PodSeen<'_>, why: String, shield: Option<Shield>) -> LeftAlone {
    let (what, uid) = (format!("pod {}", pod_name(pod)), Some(pod.uid().into()));
    LeftAlone { what, why, uid, shield, passing: pod.has_ended() || pod.is_mirror() }
}

/// Whether it is one of the taints by which Kubernetes or its cloud says how a node is.
fn of_kubernetes(taint: &Value) -> bool {
    let key = taint["key"].as_str().unwrap_or_default();
    key.starts_with(OF_KUBERNETES) || key.starts_with("node.cloudprovider.kubernetes.io/")
}

/// A plan that is made anew after one of the same life: what was taken from the node stays taken. The volumes of those that
/// were taken are the node's, and listed there, unless another pod has them by now. While the first is still being carried
/// out (`under_way`), who has a shield keeps it to the end.
pub(crate) fn continued(
    mut plan: Plan,
    before: &Plan,
    taken: impl Iterator<Item = CondemnedPod>,
    under_way: bool,
) -> Plan {
    plan.pods.extend(taken.map(|pod| CondemnedPod { taken: true, volumes: Vec::new(), ..pod }));
    for known in before.left_alone.iter().filter(|known| known.uid.is_some() && known.shield.is_some()) {
        let is_it = |p: &CondemnedPod| under_way && Some(&p.uid) == known.uid.as_ref() && !p.terminating;
        let condemned = plan.pods.iter().position(is_it);
        if let Some(pod) = condemned.map(|at| plan.pods.remove(at)) {
            for other in &mut plan.pods {
                other.volumes.retain(|v| !pod.volumes.contains(v));
            }
            plan.left_alone.push(known.clone());
        } else if let Some(left) = plan.left_alone.iter_mut().find(|left| left.uid == known.uid) {
            let after = left.shield.take().or(known.shield.clone()).map(|shield| shield.after).unwrap_or_default();
            left.shield = known.shield.clone().map(|shield| Shield { after, ..shield });
            left.why.clone_from(&known.why);
        }
    }
    plan
}

/// The plan, for a recovery whose evidence is for some pods only: the others stay, or nothing is done at all.
pub(crate) fn within(
    objects: &Objects,
    node: &NodeStanding,
    plan: Plan,
    evidence: &Evidence,
) -> Result<Plan, PlanError> {
    if evidence.pods.is_none() {
        return Ok(plan);
    }
    let unproven = |what: String| PlanError::NotProven { what, kind: format!("{:?}", evidence.kind) };
    let hostile = shield::hostile(node);
    let (proven, others): (Vec<_>, Vec<_>) = plan.pods.into_iter().partition(|p| evidence.covers(&p.uid));
    let mut plan = Plan { pods: proven, ..plan };
    for pod in PodSeen::on(objects, &node.name) {
        let what = format!("pod {}", pod_name(pod));
        if others.iter().any(|p| p.uid == pod.uid()) {
            if pod.terminating().is_some() {
                return Err(unproven(what));
            }
            let why = format!("the evidence ({:?}) does not prove that it has ended", evidence.kind);
            plan.left_alone.push(alone(pod, why, shield::needed(pod, &hostile)));
        }
        // What belongs to the node goes with the taint, and nobody can keep it.
        let kept = plan.left_alone.iter().any(|l| l.uid.as_deref() == Some(pod.uid()) && l.shield.is_none());
        let bears_it = bears(pod.tolerations(), &hostile).is_none();
        let holds = || volumes_of(objects, pod.namespace(), pod.value).iter().any(|v| v.attached);
        if kept && !bears_it && !pod.has_ended() && holds() {
            return Err(unproven(what));
        }
    }
    let kept: BTreeSet<String> = others.iter().flat_map(|p| p.volumes.clone()).collect();
    plan.pods.iter_mut().for_each(|p| p.volumes.retain(|v| !kept.contains(v)));
    match plan.volumes.first() {
        Some(volume) => Err(unproven(format!("whatever has volume {volume}"))),
        None => Ok(plan),
    }
}
