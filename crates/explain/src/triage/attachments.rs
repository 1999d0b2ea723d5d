//! Attachments that a driver reports an error about, where no stuck pod or volume tells of it.

use stead_model::ObjectKey;

use super::StuckCause;
use super::evidence::Evidence;
use super::roots::{Root, Roots};

/// Assigns the attachments with an error whose driver and volume are under no cause yet.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    for (volume, attachment) in evidence.all_attachments() {
        let Some(status) = &attachment.status else { continue };
        let failed = status.detach_error.as_ref().or(status.attach_error.as_ref().filter(|_| !status.attached));
        let Some(error) = failed else { continue };
        let name = attachment.metadata.name.as_deref().unwrap_or_default();
        let root = Root::new(StuckCause::DriverFailing, ObjectKey::cluster("CSIDriver", &attachment.spec.attacher));
        let is_known = roots.contains(&root) || roots.of(&ObjectKey::cluster("PersistentVolume", volume)).is_some();
        let on_faulty_node = evidence.fault_of(&attachment.spec.node_name).is_some();
        if !is_known && !on_faulty_node {
            let message = error.message.as_deref().unwrap_or_default();
            roots.assign(&ObjectKey::cluster("VolumeAttachment", name), root, message);
        }
    }
}
