//! Binding of a pod to a node (`BindingREST` of `pkg/registry/core/pod/storage`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};

use super::{ApiServer, Request, whole_seconds};
use crate::error::ApiError;
use crate::object::{SimKey, SimObject};
use crate::store::Change;

/// The node labels that a bound pod gets, from 1.35 on.
const COPIED_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

impl ApiServer {
    pub(super) fn bind(
        &mut self,
        request: &Request<'_>,
        key: &SimKey,
        uid: &str,
        node: &str,
    ) -> Result<Change, ApiError> {
        let Some(found) = self.store.at::<Pod>(key) else { return Err(ApiError::NotFound(key.clone())) };
        let conflict = |message: String| Err(ApiError::Conflict { key: key.clone(), message });
        if found.metadata.uid.as_deref() != Some(uid) {
            let found = found.metadata.uid.as_deref().unwrap_or_default();
            return conflict(format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"));
        }
        if found.metadata.deletion_timestamp.is_some() {
            return conflict(format!("pod {} is being deleted, cannot be assigned to a host", key.name));
        }
        let mut pod = Pod::clone(found);
        let spec = pod.spec.get_or_insert_default();
        if let Some(other) = spec.node_name.as_deref().filter(|name| !name.is_empty()) {
            return conflict(format!("pod {} is already assigned to node \"{other}\"", key.name));
        }
        if spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
            return conflict(format!("pod {} has non-empty .spec.schedulingGates", key.name));
        }
        spec.node_name = Some(node.to_owned());
        let status = pod.status.get_or_insert_default();
        set_scheduled(status.conditions.get_or_insert_default(), request);
        if request.settings.since(35) {
            status.nominated_node_name = None;
            let labels = self.store.get::<Node>("", node).and_then(|node| node.metadata.labels.clone());
            let copied = labels.into_iter().flatten().filter(|(label, _)| COPIED_LABELS.contains(&label.as_str()));
            for (label, value) in copied {
                pod.metadata.labels.get_or_insert_default().insert(label, value);
            }
        }
        Ok(self.commit(SimObject::Pod(Arc::new(pod))))
    }
}

fn set_scheduled(conditions: &mut Vec<PodCondition>, request: &Request<'_>) {
    let scheduled = PodCondition {
        type_: "PodScheduled".into(),
        status: "True".into(),
        last_transition_time: Some(whole_seconds(request.now)),
        ..PodCondition::default()
    };
    match conditions.iter_mut().find(|condition| condition.type_ == scheduled.type_) {
        Some(condition) => *condition = scheduled,
        None => conditions.push(scheduled),
    }
}
