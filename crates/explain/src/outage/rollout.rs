//! What a Deployment makes while it is being updated, when the ReplicaSet of an old pod wants no more of them.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::Value;
use stead_model::{ObjectKey, Objects, PodController, PodView, deployment_of};

use super::course::Course;
use super::placing::alone;

impl Course<'_> {
    /// When the Deployment above a pod makes another, and which; or why it never does.
    pub(super) fn rolled_out(&self, pod: PodView) -> Result<(Timestamp, Objects), String> {
        let (name, mut made) = (pod.name(), self.now());
        let above = deployment_of(self.objects, pod).and_then(|(_, object)| object);
        let pods: Vec<PodView> = self.objects.pods_of_same_workload(pod).filter(|p| !p.has_ended()).collect();
        let count = pods.iter().filter(|p| !p.is_terminating() && p.key() != pod.key()).count() as u64;
        let Some(above) = above.filter(|d| count < wanted(d)) else {
            return Err(format!("pod {name} will not be recreated: its ReplicaSet wants no more pods"));
        };
        // A rolling update does not ask whether old pods have ended; Recreate does (oldPodsRunning in
        // pkg/controller/deployment).
        let waits = is_recreate(above);
        let is_old = |p: &PodView| match PodController::of(self.objects, *p) {
            PodController::ReplicaSet { set: Some(set) } => set.replicas() == Some(0),
            _ => false,
        };
        for old in pods.into_iter().filter(|p| waits && is_old(p)) {
            let fate = self.fate(old);
            let why = || {
                let why = self.why_it_stays(old, fate, PodController::None);
                format!("its Deployment creates the next pod only when all old ones have ended, and {why}")
            };
            made = made.max(fate.ended.ok_or_else(why)?);
        }
        let key =
            ObjectKey::namespaced("Deployment", pod.namespace(), above.metadata.name.as_deref().unwrap_or_default());
        let raw = self.objects.raw(&key).unwrap_or(&Value::Null);
        Ok((made, alone(by_template(pod, &raw["spec"]["template"]))))
    }
}

fn wanted(deployment: &Deployment) -> u64 {
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    u64::try_from(replicas).unwrap_or_default()
}

/// Whether a Deployment ends old pods before it starts new ones.
pub(super) fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.is_some_and(|strategy| strategy.type_.as_deref() == Some("Recreate"))
}

/// A pod as a Deployment makes it now, in the place of one that may be of an older template.
fn by_template(pod: PodView, template: &Value) -> Value {
    let mut out = pod.raw().clone();
    if template["spec"]["containers"].is_array() {
        let mut spec = template["spec"].clone();
        // This one is not in templates: Kubernetes fills it in.
        spec["priority"] = out["spec"]["priority"].take();
        out["spec"] = spec;
        out["metadata"]["labels"] = template["metadata"]["labels"].clone();
    }
    out
}
