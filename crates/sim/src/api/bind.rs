//! Binding of a pod to a node (`BindingREST` of `pkg/registry/core/pod/storage`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};

use super::{ApiServer, Request, admission, uid_precondition};
use crate::error::ApiError;
use crate::object::{SimKey, SimObject};
use crate::pods;
use crate::store::Change;

impl ApiServer {
    pub(super) fn bind(
        &mut self,
        request: &Request<'_>,
        key: &SimKey,
        uid: &str,
        node: &str,
    ) -> Result<Change, ApiError> {
        let Some(found) = self.store.at::<Pod>(key) else { return Err(ApiError::NotFound(key.clone())) };
        if !uid.is_empty() && found.metadata.uid.as_deref() != Some(uid) {
            return Err(uid_precondition(key, Some(uid), found.metadata.uid.as_deref()));
        }
        if let Some(message) = refusal(found, &key.name) {
            return Err(ApiError::ConflictOn { key: key.clone(), subject: "pods/binding".into(), message });
        }
        let mut pod = Pod::clone(found);
        let spec = pods::spec_mut(&mut pod);
        spec.node_name = Some(node.to_owned());
        if request.settings.since(35) {
            pods::status_mut(&mut pod).nominated_node_name = None;
            let labels = self.store.get::<Node>("", node).map(|node| admission::topology_labels(node));
            for (label, value) in labels.into_iter().flatten() {
                pod.metadata.labels.get_or_insert_default().insert(label, value);
            }
        }
        let scheduled = PodCondition { type_: "PodScheduled".into(), status: "True".into(), ..PodCondition::default() };
        pods::set_condition(&mut pod, scheduled, request.now);
        // A binding is no change of what is wanted: the generation stays.
        Ok(self.commit(&mut SimObject::Pod(Arc::new(pod))))
    }
}

/// Why a pod cannot be bound.
fn refusal(pod: &Pod, name: &str) -> Option<String> {
    if pods::is_terminating(pod) {
        return Some(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pods::node_of(pod) {
        return Some(format!("pod {name} is already assigned to node \"{node}\""));
    }
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty()).then(|| format!("pod {name} has non-empty .spec.schedulingGates"))
}
