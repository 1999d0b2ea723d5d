//! Where a pod that is made anew goes, by the scheduler's own rules, in the cluster as it would then be.

use jiff::Timestamp;
use serde_json::{Value, json};
use stead_placement::{Cluster, evaluate};

use super::course::Course;
use super::makers::Maker;
use super::node::{OUT_OF_SERVICE, SHUTDOWN, UNREACHABLE};
use super::pod::PodSeen;
use super::way::Outcome;
use crate::objects;

impl Course<'_> {
    /// A pod that has no node yet: it goes where placement says. `old` is the pod whose place it takes.
    pub(super) fn placed(&self, pod: PodSeen, old: PodSeen, made: Timestamp, mut out: Outcome) -> Outcome {
        let own = old.node().is_none();
        let same_name = own || !matches!(Maker::of(self.objects, old), Maker::Replicas { .. } | Maker::Job(_));
        let template = template(pod.0, same_name);
        // The node controller looks, and takes its taints from a node that is back.
        let looks = self.now() + self.clock.timers.kubelet_return + self.clock.timers.node_monitor_period / 2;
        let back = self.later.as_ref().map(|later| (later, looks));
        let then = |at| back.filter(|(_, back)| *back <= at).map_or(&self.cluster, |(later, _)| later);
        let mut tries: Vec<(&Cluster, Timestamp)> = vec![(then(made), made)];
        // What the old pod takes, or a claim that one pod alone may use, is free when it is gone.
        tries.extend(self.fate(old).gone.filter(|gone| *gone > made && !own).map(|gone| (then(gone), gone)));
        let last = tries.last().map_or(made, |(_, at)| *at);
        tries.extend(back.map(|(later, back)| (later, last.max(back))));
        let mut message = None;
        for (cluster, at) in tries {
            let mut cluster = cluster.clone();
            if same_name {
                objects::take(&mut cluster, &old.key());
            }
            for (gone, _) in self.gone.iter().filter(|(_, gone)| *gone <= at) {
                objects::take(&mut cluster, gone);
            }
            match self.fitting(&cluster, &template) {
                Ok(mut nodes) => {
                    // Whether the node is back for the scheduler by then is a matter of moments.
                    let others = self.later.as_ref().and_then(|later| self.fitting(later, &template).ok());
                    nodes.extend(
                        others.unwrap_or_default().into_iter().filter(|n| !nodes.contains(n)).collect::<Vec<_>>(),
                    );
                    out.step("it is scheduled", at);
                    return self.started(PodSeen(&template), at, Outcome { nodes, ..out });
                }
                Err(why) => message = message.or(Some(why)),
            }
        }
        out.never(message.unwrap_or_else(|| "no node takes it".into()))
    }

    /// The nodes that take a pod, the best first; or what the scheduler says.
    fn fitting(&self, cluster: &Cluster, template: &Value) -> Result<Vec<String>, String> {
        let pod = objects::compile_pod(template).map_err(|e| e.to_string())?;
        let verdict = evaluate(cluster, &pod).map_err(|e| e.to_string())?;
        if let Some(error) = verdict.error {
            return Err(error);
        }
        let mut fitting: Vec<(i64, String)> = verdict.scores.iter().map(|(n, s)| (-s.total, n.to_string())).collect();
        fitting.sort();
        if fitting.is_empty() {
            fitting.extend(verdict.nominees.iter().map(|n| (0, n.node.to_string())));
        }
        if fitting.is_empty() {
            return Err(format!("no node takes it: {}", verdict.message.unwrap_or_default()));
        }
        Ok(fitting.into_iter().map(|(_, node)| node).collect())
    }
}

/// A pod's object as its controller would make it anew.
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
