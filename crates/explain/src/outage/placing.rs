//! Where a pod that is made anew goes, by the scheduler's own rules, in the cluster as it would then be.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use stead_model::{
    OUT_OF_SERVICE, ObjectKey, Objects, PodController, PodView, PodVolume, SHUTDOWN, UNREACHABLE, pod_volumes,
};
use stead_placement::{Cluster, Pod, evaluate};

use super::course::Course;
use super::jobs;
use super::node::health;
use super::way::{Miss, Outcome, Way};
use crate::explanation::some;

impl Course<'_> {
    /// A pod that has no node yet: it goes where placement says. `old` is the pod whose place it takes.
    pub(super) fn placed(&self, pod: PodView, old: PodView, made: Timestamp, mut out: Outcome) -> Outcome {
        let own = old.node().is_none();
        let same_name = own
            || !matches!(
                PodController::of(self.objects, old),
                PodController::ReplicaSet { .. } | PodController::Job { .. }
            );
        let template = template(pod.raw(), same_name);
        if let Some(miss) = self.unread(pod) {
            return out.missed(miss);
        }
        // What a pod takes, or a claim that one pod alone may use, is free when it is gone.
        let tries = self.gone.iter().map(|(_, gone)| *gone).chain(self.stages.moments());
        let tries: BTreeSet<Timestamp> = tries.filter(|at| *at > made).chain([made]).collect();
        let mut message = None;
        for at in tries {
            let mut cluster = self.stages.at(at).clone();
            if same_name {
                cluster.take_object(old.key());
            }
            for (gone, _) in self.gone.iter().filter(|(_, gone)| *gone <= at) {
                cluster.take_object(gone);
            }
            match self.fitting(&cluster, &template).and_then(|fitting| self.as_chosen(old, fitting)) {
                Ok((best, mut nodes)) => {
                    let lost: Vec<String> = best.iter().filter(|n| !self.alive.contains(n.as_str())).cloned().collect();
                    if lost.len() == best.len() {
                        return self.stranded(pod, old, at, &lost, out);
                    }
                    if !lost.is_empty() {
                        out.doubt = Some(format!(
                            "the scheduler chooses one of {} equally good nodes, possibly {}, which is unreachable: the pod would \
                             not start there",
                            best.len(),
                            some(&lost)
                        ));
                    }
                    // Whether the node is back for the scheduler by then is a matter of moments.
                    let back = Some(self.stages.last()).filter(|_| self.way == Way::NodeReturns);
                    let (_, others) = back.and_then(|c| self.fitting(c, &template).ok()).unwrap_or_default();
                    nodes.extend(others.into_iter().filter(|n| !nodes.contains(n)).collect::<Vec<_>>());
                    nodes.retain(|n| self.alive.contains(n.as_str()));
                    out.step("it is scheduled", at);
                    let made = alone(template);
                    let Some(made) = made.pods().next() else {
                        return out.missed(Miss::Unknown(format!("the replacement of {} cannot be read", pod.key())));
                    };
                    return self.started(made, at, Outcome { nodes, ..out });
                }
                Err(Miss::Never(why)) => message = message.or(Some(why)),
                Err(unknown) => return out.missed(unknown),
            }
        }
        out.never(message.unwrap_or_else(|| "no node can run it".into()))
    }

    /// A pod that the scheduler puts on one of these nodes, of which nothing is heard: it never starts there.
    fn stranded(&self, pod: PodView, old: PodView, at: Timestamp, lost: &[String], mut out: Outcome) -> Outcome {
        let why = |then: &str| format!("it is scheduled to {}, which is unreachable{then}", some(lost));
        // Where nobody has found that out yet, it is evicted like all others there, and another is made. A StatefulSet makes
        // none while its object is there, and no kubelet confirms that it has ended.
        let job = match PodController::of(self.objects, old) {
            PodController::ReplicaSet { .. } => None,
            PodController::Job { job } if !jobs::waits_for_end(job) => Some(job),
            _ => return out.never(why("")),
        };
        let evicted = |node: &String| {
            let soon = self.found(node).is_some_and(|found| at < found);
            health(self.objects, node).filter(|_| soon).and_then(|n| self.evicted(&n, pod))
        };
        let evicted: Vec<Timestamp> = lost.iter().filter_map(evicted).collect();
        let evicted = match (evicted.as_slice(), lost) {
            ([], _) => return out.never(why("")),
            ([at], [_]) => *at,
            _ => return out.missed(Miss::Unknown(why(", and when it is evicted there depends on the node"))),
        };
        if pod_volumes(self.objects, pod).iter().any(PodVolume::is_exclusive) {
            let then = ", and uses its volume there until it is evicted: when that is released is unknown";
            return out.missed(Miss::Unknown(why(then)));
        }
        out.step(why(""), at);
        out.step("it is evicted there", evicted);
        let made = match job {
            None => Some(evicted),
            Some(job) => jobs::retry(job, jobs::failures(job, old).saturating_add(1), evicted),
        };
        let Some(made) = made else { return out.never(jobs::TOO_OFTEN) };
        out.step("another is created", made);
        self.placed(pod, old, made, out)
    }

    /// What is to be known of a pod's volumes and was not read. Where none of a kind is there, they were not read.
    pub(super) fn unread(&self, pod: PodView) -> Option<Miss> {
        let volumes = pod_volumes(self.objects, pod);
        let none = |kind: &str| self.objects.has_none(kind);
        let hangs = |v: &PodVolume| v.is_exclusive() && self.may_hang(pod, v);
        let what = match () {
            () if volumes.is_empty() => return None,
            () if none("PersistentVolumeClaim") => "persistentvolumeclaims",
            () if none("PersistentVolume") && volumes.iter().any(|v| v.volume.is_some()) => "persistentvolumes",
            () if none("VolumeAttachment") && volumes.iter().any(hangs) => "volumeattachments",
            () => return None,
        };
        Some(Miss::Unknown(format!("{what} were not read: where its volumes are is unknown")))
    }

    /// Whether a volume may be attached to another node than the pod's, as far as Nodes tell; of one that is not there, that
    /// it has a pod with the volume tells as much.
    fn may_hang(&self, pod: PodView, volume: &PodVolume) -> bool {
        let said = self.objects.nodes().any(|node| Some(node.name()) != pod.node() && volume.is_on(node));
        let has = |p: PodView| pod_volumes(self.objects, p).iter().any(|v| v.volume == volume.volume);
        let gone = |n: &str| Some(n) != pod.node() && health(self.objects, n).is_none();
        let mut pods = self.objects.pods_with(|pod| pod.node().is_some_and(gone));
        said || pods.any(|p| !p.has_ended() && has(p))
    }

    /// Only the node that a plan has chosen for the replacement of a pod, if there is such a plan.
    fn as_chosen(&self, old: PodView, fitting: (Vec<String>, Vec<String>)) -> Result<(Vec<String>, Vec<String>), Miss> {
        match self.chosen.get(old.key()) {
            None => Ok(fitting),
            Some(node) if fitting.1.contains(node) => Ok((vec![node.clone()], vec![node.clone()])),
            Some(node) => Err(Miss::Never(format!("{node} cannot run it"))),
        }
    }

    /// The nodes that the scheduler takes one of, and all that fit, the best first; or what it says.
    fn fitting(&self, cluster: &Cluster, template: &Value) -> Result<(Vec<String>, Vec<String>), Miss> {
        let pod = Pod::from_raw(template, cluster.version()).map_err(|e| Miss::Unknown(e.to_string()))?;
        let verdict = evaluate(cluster, &pod).map_err(|e| Miss::Unknown(e.to_string()))?;
        if let Some(error) = verdict.error {
            return Err(Miss::Unknown(format!("kube-scheduler cannot decide: {error}")));
        }
        let mut best: Vec<String> = verdict.best.iter().map(ToString::to_string).collect();
        let mut fitting: Vec<(i64, String)> = verdict.scores.iter().map(|(n, s)| (-s.total, n.to_string())).collect();
        fitting.sort();
        if fitting.is_empty() {
            fitting.extend(verdict.nominees.iter().map(|n| (0, n.node.to_string())));
            best = fitting.iter().map(|(_, node)| node.clone()).collect();
        }
        if fitting.is_empty() {
            return Err(Miss::Never(format!("no node can run it: {}", verdict.message.unwrap_or_default())));
        }
        Ok((best, fitting.into_iter().map(|(_, node)| node).collect()))
    }
}

/// A pod that is not among the objects of the cluster.
pub(super) fn alone(pod: Value) -> Objects {
    let mut out = Objects::default();
    if let Some(key) = ObjectKey::of_kind("Pod", &pod) {
        out.insert(key, pod);
    }
    out
}

/// A pod's object as its controller would recreate it.
pub(super) fn template(pod: &Value, same_name: bool) -> Value {
    let mut out = pod.clone();
    for (part, field) in [
        ("metadata", "deletionTimestamp"),
        ("metadata", "deletionGracePeriodSeconds"),
        ("metadata", "finalizers"),
        ("metadata", "uid"),
        ("spec", "nodeName"),
    ] {
        if let Some(object) = out[part].as_object_mut() {
            object.remove(field);
        }
    }
    out["status"] = json!({ "phase": "Pending" });
    if !same_name {
        let name = format!("{}-next", pod["metadata"]["name"].as_str().unwrap_or_default());
        out["metadata"]["name"] = name.into();
        // Such a claim is made with the pod, and has no volume yet.
        if let Some(volumes) = out["spec"]["volumes"].as_array_mut() {
            volumes.retain(|v| v.get("ephemeral").is_none());
        }
    }
    out
}

pub(super) fn with_taint(node: &Value, key: &str) -> Value {
    let mut out = node.clone();
    let taint = json!({ "key": key, "effect": if key == OUT_OF_SERVICE { "NoExecute" } else { "NoSchedule" } });
    match out["spec"]["taints"].as_array_mut() {
        Some(taints) => taints.push(taint),
        None => out["spec"]["taints"] = json!([taint]),
    }
    out
}

/// A node that is back: the node controller and the cloud take their taints away.
pub(super) fn without_taints(node: &Value) -> Value {
    let mut out = node.clone();
    if let Some(taints) = out["spec"]["taints"].as_array_mut() {
        taints.retain(|t| {
            let key = t["key"].as_str().unwrap_or_default();
            key != UNREACHABLE && key != "node.kubernetes.io/not-ready" && key != SHUTDOWN
        });
    }
    out
}
