//! Pods.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition, PodSpec, PodStatus, Toleration, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use crate::error::ModelError;
use crate::key::ObjectKey;
use crate::objects::{ObjectRef, Objects};
use crate::outline::PodOutline;
use crate::owner::{controller_of, same_controller};
use crate::stateful_set::parent_name_and_ordinal;
use crate::times::{self, Deletion, near};

/// Finalizers that a controller removes by itself as soon as the pod is being deleted.
const REMOVED_BY_CONTROLLERS: [&str; 3] = [JOB_TRACKING, "foregroundDeletion", "orphan"];

/// The finalizer of pods that the job controller has not counted yet.
const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// The annotation of a mirror pod: a static pod that a kubelet runs from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod.
#[derive(Debug, Clone, Copy)]
pub struct PodView<'a> {
    object: ObjectRef<'a>,
    pod: &'a Pod,
}

impl Objects {
    /// The pod of this key; an error where it is malformed.
    pub fn pod(&self, key: &ObjectKey) -> Result<Option<PodView<'_>>, ModelError> {
        self.object(key).map(PodView::of).transpose()
    }

    /// All pods, malformed ones left out. In a large cluster, ask for fewer.
    pub fn pods(&self) -> impl Iterator<Item = PodView<'_>> {
        self.of_kind("Pod").filter_map(|object| PodView::of(object).ok())
    }

    /// The pods of a namespace, malformed ones left out.
    pub fn pods_in<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = PodView<'a>> {
        self.of_kind_in("Pod", namespace).filter_map(|object| PodView::of(object).ok())
    }

    /// The pods that have this node, malformed ones left out.
    pub fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = PodView<'a>> {
        self.pods_with(move |pod| pod.node() == Some(node))
    }

    /// The pods for which a check of their outline holds: only these are parsed.
    pub fn pods_with<'a>(&'a self, check: impl Fn(&PodOutline) -> bool + 'a) -> impl Iterator<Item = PodView<'a>> {
        let pods = self.of_kind("Pod").filter(move |object| check(object.outline()));
        pods.filter_map(|object| PodView::of(object).ok())
    }

    /// The pods for which a check of their outline holds: only these are parsed.
    pub fn pods_where<'a>(&'a self, check: impl Fn(&PodOutline) -> bool + 'a) -> impl Iterator<Item = PodView<'a>> {
        let pods = self.of_kind("Pod").filter(move |object| check(object.outline()));
        pods.filter_map(|object| PodView::of(object).ok())
    }

    /// The pods that an object controls, malformed ones left out.
    pub fn pods_controlled_by<'a>(&'a self, owner: &'a ObjectKey) -> impl Iterator<Item = PodView<'a>> {
        let controller = (owner.kind.as_str(), owner.name.as_str());
        let pods = self.of_kind_in("Pod", &owner.namespace);
        let pods = pods.filter(move |object| object.outline().controller() == Some(controller));
        pods.filter_map(|object| PodView::of(object).ok())
    }
}

impl<'a> PodView<'a> {
    pub(crate) fn of(object: ObjectRef<'a>) -> Result<PodView<'a>, ModelError> {
        Ok(PodView { object, pod: object.typed()? })
    }

    /// Its key.
    pub fn key(self) -> &'a ObjectKey {
        self.object.key()
    }

    /// Its Kubernetes type.
    pub fn typed(self) -> &'a Pod {
        self.pod
    }

    /// Its JSON: for patches, and for data that is passed through.
    pub fn raw(self) -> &'a Value {
        self.object.raw()
    }

    /// Its name.
    pub fn name(self) -> &'a str {
        &self.key().name
    }

    /// Its namespace.
    pub fn namespace(self) -> &'a str {
        &self.key().namespace
    }

    /// Namespace and name, such as `default/web-0`.
    pub fn full_name(self) -> String {
        format!("{}/{}", self.namespace(), self.name())
    }

    /// Its UID.
    pub fn uid(self) -> Option<&'a str> {
        self.pod.metadata.uid.as_deref()
    }

    /// The version of this object.
    pub fn resource_version(self) -> &'a str {
        self.pod.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// Its metadata.
    pub fn metadata(self) -> &'a ObjectMeta {
        &self.pod.metadata
    }

    /// Its spec.
    pub fn spec(self) -> Option<&'a PodSpec> {
        self.pod.spec.as_ref()
    }

    /// Its status.
    pub fn status(self) -> Option<&'a PodStatus> {
        self.pod.status.as_ref()
    }

    /// The node that it was scheduled to.
    pub fn node(self) -> Option<&'a str> {
        self.spec()?.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// Its phase.
    pub fn phase(self) -> &'a str {
        self.status().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
    }

    /// Whether it has succeeded or failed.
    pub fn has_ended(self) -> bool {
        matches!(self.phase(), "Succeeded" | "Failed")
    }

    /// When it was created.
    pub fn created(self) -> Option<Timestamp> {
        times::created(&self.pod.metadata)
    }

    /// Its deletion, where that was requested.
    pub fn deletion(self) -> Option<Deletion> {
        times::deletion(&self.pod.metadata)
    }

    /// When its deletion was requested.
    pub fn deletion_requested(self) -> Option<Timestamp> {
        self.deletion().map(|deletion| deletion.requested)
    }

    /// When the grace period of its deletion ends.
    pub fn deletion_due(self) -> Option<Timestamp> {
        self.deletion().map(|deletion| deletion.due)
    }

    /// Whether its deletion was requested.
    pub fn is_terminating(self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Its finalizers.
    pub fn finalizers(self) -> impl Iterator<Item = &'a str> {
        self.pod.metadata.finalizers.iter().flatten().map(String::as_str)
    }

    /// The finalizers that keep its object until somebody removes them: those of controllers go by themselves.
    pub fn blocking_finalizers(self) -> impl Iterator<Item = &'a str> {
        self.finalizers().filter(|finalizer| !REMOVED_BY_CONTROLLERS.contains(finalizer))
    }

    /// Whether the job controller has not counted it yet.
    pub fn is_tracked_by_job(self) -> bool {
        self.finalizers().any(|finalizer| finalizer == JOB_TRACKING)
    }

    /// A condition.
    pub fn condition(self, kind: &str) -> Option<&'a PodCondition> {
        self.status()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
    }

    /// Since when a condition has a status.
    pub fn condition_since(self, kind: &str, status: &str) -> Option<Timestamp> {
        let condition = self.condition(kind).filter(|condition| condition.status == status)?;
        near(condition.last_transition_time.as_ref()?.0)
    }

    /// Whether it is Ready.
    pub fn is_ready(self) -> bool {
        self.condition("Ready").is_some_and(|condition| condition.status == "True")
    }

    /// The statuses of its init containers, containers and ephemeral containers, in this order.
    pub fn container_statuses(self) -> impl Iterator<Item = &'a ContainerStatus> {
        let lists = self.status().map(|status| {
            [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses]
        });
        lists.into_iter().flatten().flatten().flatten()
    }

    /// Whether a container runs, or may run: it has no known other state.
    pub fn has_running_container(self) -> bool {
        self.container_statuses().any(|container| {
            let state = container.state.as_ref();
            state.is_none_or(|state| state.terminated.is_none() && state.waiting.is_none())
        })
    }

    /// Whether the attach-detach controller keeps its volumes attached: always for a pod that is not being deleted, and
    /// while a container may run (`IsPodTerminated` in `pkg/volume/util`).
    pub fn needs_volumes(self) -> bool {
        !self.has_ended() && (!self.is_terminating() || self.has_running_container())
    }

    /// The owner that controls it.
    pub fn controller(self) -> Option<&'a OwnerReference> {
        controller_of(&self.pod.metadata)
    }

    /// Whether both pods have the same controller.
    pub fn is_sibling(self, other: PodView<'_>) -> bool {
        self.namespace() == other.namespace() && same_controller(&self.pod.metadata, &other.pod.metadata)
    }

    /// Its ordinal, where it has a StatefulSet pod's name.
    pub fn ordinal(self) -> Option<u32> {
        parent_name_and_ordinal(self.name()).map(|(_, ordinal)| ordinal)
    }

    /// Its tolerations.
    pub fn tolerations(self) -> &'a [Toleration] {
        self.spec().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default()
    }

    /// Its volumes.
    pub fn volumes(self) -> &'a [Volume] {
        self.spec().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default()
    }

    /// Its priority.
    pub fn priority(self) -> i32 {
        self.spec().and_then(|spec| spec.priority).unwrap_or_default()
    }

    /// The value of an annotation.
    pub fn annotation(self, key: &str) -> Option<&'a str> {
        self.pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The UID that the kubelet itself has for a static pod; none where this is not the mirror of one.
    pub fn mirrored_uid(self) -> Option<&'a str> {
        self.annotation(MIRROR)
    }

    /// Whether it is the mirror of a static pod.
    pub fn is_mirror(self) -> bool {
        self.mirrored_uid().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn objects(pods: impl IntoIterator<Item = Value>) -> Objects {
        Objects::from_items(pods.into_iter().map(|mut pod| {
            pod["apiVersion"] = "v1".into();
            pod["kind"] = "Pod".into();
            pod
        }))
    }

    #[test]
    fn is_pod_terminated() {
        let running = json!([{ "name": "c", "state": { "running": {} } }]);
        let unknown = json!([{ "name": "c" }]);
        let waiting = json!([{ "name": "c", "state": { "waiting": {} } }]);
        let ended = json!([{ "name": "c", "state": { "terminated": { "exitCode": 0 } } }]);
        let due = json!("2026-01-01T00:00:00Z");
        for (deleted, phase, containers, needs) in [
            (json!(null), "Running", &running, true),
            (json!(null), "Running", &ended, true),
            (json!(null), "Succeeded", &ended, false),
            (json!(null), "Failed", &running, false),
            (due.clone(), "Running", &running, true),
            (due.clone(), "Running", &unknown, true),
            (due.clone(), "Running", &waiting, false),
            (due.clone(), "Running", &ended, false),
            (due.clone(), "Pending", &json!([]), false),
        ] {
            let objects = objects([json!({ "metadata": { "name": "p", "deletionTimestamp": deleted },
                "status": { "phase": phase, "containerStatuses": containers } })]);
            let pod = objects.pods().next().expect("a pod");
            assert_eq!(pod.needs_volumes(), needs, "{deleted} {phase} {containers}");
        }
    }

    #[test]
    fn pods_are_found_by_node_and_by_controller() {
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u",
            "controller": true }]);
        let objects = objects([
            json!({ "metadata": { "name": "web-0", "namespace": "n", "ownerReferences": owner }, "spec": { "nodeName": "a" } }),
            json!({ "metadata": { "name": "web-1", "namespace": "n", "ownerReferences": owner }, "spec": { "nodeName": "" } }),
            json!({ "metadata": { "name": "web-0", "namespace": "m", "ownerReferences": owner }, "spec": { "nodeName": "a" } }),
            json!({ "metadata": { "name": "other", "namespace": "n" }, "spec": {} }),
        ]);
        let names = |pods: Vec<PodView<'_>>| pods.into_iter().map(PodView::full_name).collect::<Vec<_>>();
        assert_eq!(names(objects.pods_on("a").collect()), ["m/web-0", "n/web-0"]);
        let set = ObjectKey::namespaced("StatefulSet", "n", "web");
        assert_eq!(names(objects.pods_controlled_by(&set).collect()), ["n/web-0", "n/web-1"]);
        let nodes: Vec<Option<&str>> = objects.pods_in("n").map(PodView::node).collect();
        assert_eq!(nodes, [None, Some("a"), None]);
        let pod =
            |name: &str| objects.pod(&ObjectKey::pod("n", name)).expect("it is well formed").expect("it is there");
        assert!(pod("web-0").is_sibling(pod("web-1")) && !pod("other").is_sibling(pod("other")));
        assert_eq!((pod("web-1").ordinal(), pod("other").ordinal()), (Some(1), None));
    }

    #[test]
    fn finalizers_of_controllers_do_not_block() {
        let objects = objects([json!({ "metadata": { "name": "p",
            "finalizers": ["orphan", "batch.kubernetes.io/job-tracking", "example.org/backup"] } })]);
        let pod = objects.pods().next().expect("a pod");
        assert_eq!(pod.blocking_finalizers().collect::<Vec<_>>(), ["example.org/backup"]);
        assert!(pod.is_tracked_by_job());
    }
}
