//! What a pod's object says of its life.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::jobs::TRACKING;
use super::timers::LOST;
use super::times::{deletion, time};
use stead_model::ObjectKey;

/// Finalizers that a controller takes away by itself as soon as a pod is being deleted.
const BY_THEMSELVES: [&str; 3] = [TRACKING, "foregroundDeletion", "orphan"];

/// A pod as it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PodSeen<'a>(pub(crate) &'a Value);

impl<'a> PodSeen<'a> {
    pub(crate) fn name(self) -> &'a str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn namespace(self) -> &'a str {
        self.0["metadata"]["namespace"].as_str().unwrap_or("default")
    }

    pub(crate) fn key(self) -> ObjectKey {
        ObjectKey::new("Pod", self.namespace(), self.name())
    }

    pub(crate) fn node(self) -> Option<&'a str> {
        self.0["spec"]["nodeName"].as_str().filter(|n| !n.is_empty())
    }

    pub(crate) fn phase(self) -> &'a str {
        self.0["status"]["phase"].as_str().unwrap_or("Pending")
    }

    /// Whether it has ended.
    pub(crate) fn ended(self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// When it has ended, as far as its containers tell, or else when its deletion was asked for.
    pub(crate) fn ended_at(self) -> Option<Timestamp> {
        let finished = self.containers().filter_map(|c| time(&c["state"]["terminated"]["finishedAt"])).max();
        finished.map(|at| at + LOST).or(self.deleted()).filter(|_| self.ended())
    }

    pub(crate) fn created(self) -> Option<Timestamp> {
        time(&self.0["metadata"]["creationTimestamp"])
    }

    /// When its deletion was asked for.
    pub(crate) fn deleted(self) -> Option<Timestamp> {
        deletion(&self.0["metadata"]).map(|(asked, _)| asked)
    }

    /// When it should have ended.
    pub(crate) fn due(self) -> Option<Timestamp> {
        deletion(&self.0["metadata"]).map(|(_, due)| due)
    }

    /// Finalizers that keep its object until somebody takes them away.
    pub(crate) fn finalizers(self) -> impl Iterator<Item = &'a str> {
        let all = self.0["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.filter(|f| !BY_THEMSELVES.contains(f))
    }

    /// A condition, if it is there.
    pub(crate) fn condition(self, sort: &str) -> Option<&'a Value> {
        self.0["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == sort)
    }

    /// Since when a condition is true.
    pub(crate) fn since(self, sort: &str) -> Option<Timestamp> {
        self.condition(sort).filter(|c| c["status"] == "True").and_then(|c| time(&c["lastTransitionTime"]))
    }

    pub(crate) fn ready(self) -> bool {
        self.condition("Ready").is_some_and(|c| c["status"] == "True")
    }

    /// The statuses of its containers, those that come before the others first.
    pub(crate) fn containers(self) -> impl Iterator<Item = &'a Value> {
        let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
        lists.into_iter().flat_map(move |list| self.0["status"][list].as_array().into_iter().flatten())
    }

    /// Whether the attach-detach controller takes its volumes for needed. It does while a container runs, as far as
    /// is known; and of a pod that is not being deleted, always (IsPodTerminated in pkg/volume/util).
    pub(crate) fn needs_volumes(self) -> bool {
        let running = |c: &Value| c["state"].get("terminated").is_none() && c["state"].get("waiting").is_none();
        !self.ended() && (self.due().is_none() || self.containers().any(running))
    }

    /// The controller: kind and name.
    pub(crate) fn owner(self) -> Option<(&'a str, &'a str)> {
        let mut owners = self.0["metadata"]["ownerReferences"].as_array()?.iter();
        let owner = owners.find(|o| o["controller"] == true)?;
        Some((owner["kind"].as_str()?, owner["name"].as_str()?))
    }

    /// Whether both have the same controller.
    pub(crate) fn is_sibling(self, other: PodSeen) -> bool {
        self.namespace() == other.namespace() && self.owner().is_some() && self.owner() == other.owner()
    }

    /// The number at the end of the name of a StatefulSet's pod.
    pub(crate) fn ordinal(self) -> Option<u64> {
        self.name().rsplit_once('-')?.1.parse().ok()
    }

    /// From its start, or from when its last volume was asked for, to containers that run.
    pub(crate) fn started_in(self, attached: Option<Timestamp>) -> Option<SignedDuration> {
        let began = time(&self.0["status"]["startTime"])?.max(attached.unwrap_or(Timestamp::MIN));
        let ran = self.containers().filter_map(started).max()?;
        (ran >= began).then(|| ran.duration_since(began))
    }

    /// From containers that run to containers that are ready. The node controller takes Ready away from the pods of a
    /// silent node, but not ContainersReady: that tells how it was.
    pub(crate) fn ready_in(self) -> Option<SignedDuration> {
        let ran = self.containers().filter_map(started).max()?;
        Some(self.since("ContainersReady")?.duration_since(ran).max(SignedDuration::ZERO))
    }
}

/// When a container was started that runs, or did.
fn started(container: &Value) -> Option<Timestamp> {
    let state = &container["state"];
    time(&state["running"]["startedAt"]).or_else(|| time(&state["terminated"]["startedAt"]))
}
