//! What a Deployment makes while it is being updated, when the ReplicaSet of an old pod wants no more of them.

use jiff::Timestamp;
use serde_json::Value;

use super::course::Course;
use super::makers::{Maker, deployment, same_workload};
use super::pod::PodSeen;

impl Course<'_> {
    /// When the Deployment above a pod makes another, and which; or why it never does.
    pub(super) fn rolled_out(&self, pod: PodSeen) -> Result<(Timestamp, Value), String> {
        let (name, mut made) = (pod.name(), self.now());
        let above = deployment(self.objects, pod).and_then(|(_, object)| object);
        let pods = self.objects.raw_of_kind("Pod").map(|(_, p)| PodSeen(p));
        let pods: Vec<PodSeen> = pods.filter(|p| !p.ended() && same_workload(self.objects, *p, pod)).collect();
        let count = pods.iter().filter(|p| p.due().is_none() && p.key() != pod.key()).count() as u64;
        let Some(above) = above.filter(|d| count < d["spec"]["replicas"].as_u64().unwrap_or(1)) else {
            return Err(format!("pod {name} is not made anew: its ReplicaSet wants no more pods"));
        };
        // A rolling update does not ask whether old pods have ended; Recreate does (oldPodsRunning in
        // pkg/controller/deployment).
        let waits = above["spec"]["strategy"]["type"] == "Recreate";
        let is_old = |p: &PodSeen| match Maker::of(self.objects, *p) {
            Maker::Replicas { set: Some(set) } => set["spec"]["replicas"] == 0,
            _ => false,
        };
        for old in pods.into_iter().filter(|p| waits && is_old(p)) {
            let fate = self.fate(old);
            let why = || {
                let why = self.why_it_stays(old, fate, Maker::Nobody);
                format!("its Deployment makes the next pod only when all old ones have ended, and {why}")
            };
            made = made.max(fate.ended.ok_or_else(why)?);
        }
        Ok((made, by_template(pod, &above["spec"]["template"])))
    }
}

/// A pod as a Deployment makes it now, in the place of one that may be of an older template.
fn by_template(pod: PodSeen, template: &Value) -> Value {
    let mut out = pod.0.clone();
    if template["spec"]["containers"].is_array() {
        let mut spec = template["spec"].clone();
        // This one is not in templates: Kubernetes fills it in.
        spec["priority"] = out["spec"]["priority"].take();
        out["spec"] = spec;
        out["metadata"]["labels"] = template["metadata"]["labels"].clone();
    }
    out
}
