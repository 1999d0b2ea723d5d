//! A node with our taint whose record somebody has deleted.

use stead_model::NodeHealth;

use crate::annotation::{self, RecoveryAnnotation};
use crate::guard::Guard;
use crate::next_step::{NextStep, Wait};
use crate::progress;
use crate::returned::still_mounted;
use crate::sign_of_life::is_back;
use crate::view::ClusterView;

/// Removes the taint of a node that shows signs of life again, as soon as that is safe.
pub(crate) fn remove_taint(view: &ClusterView<'_>, node: &NodeHealth<'_>, annotation: &RecoveryAnnotation) -> NextStep {
    let wait = |how: String| NextStep::wait(vec![Wait { what: format!("node {}", node.name()), how }]);
    let remove = || {
        annotation::clean_up(node, &annotation.record, view.guards)
            .map_or_else(|| NextStep::wait(Vec::new()), NextStep::write)
    };
    let known = !annotation.boot_id.is_empty();
    let restarted = node.boot_id().is_some_and(|boot_id| known && boot_id != annotation.boot_id);
    if annotation.ended.is_some() || restarted {
        return remove();
    }
    let record = &annotation.record;
    if !is_back(node, view.now) {
        return wait(format!("its record {record} was deleted; the taint is removed when the node is back"));
    }
    let Some(running) = view.running else {
        return wait(format!("its record {record} was deleted: asking its kubelet which pods it runs"))
            .asking_running();
    };
    let left = progress::running_without_object(view.objects, node.name(), running);
    if !left.is_empty() {
        return wait(format!("pods that were released still run there: UID {}", left.join(", "))).asking_running();
    }
    let volumes = progress::released_but_in_use(view.objects, node, None);
    if volumes.is_empty() || !view.guards.hold(Guard::VolumesInUse) {
        return remove();
    }
    wait(still_mounted(&volumes)).asking_running()
}
