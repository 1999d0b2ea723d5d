//! The volumes that a pod waits for: where they are attached, who uses them there, and until when.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use stead_model::{ObjectKey, PodView, PodVolume, VolumeAttachmentView, pod_volumes};

use super::OutageExplainer;
use crate::explanation::some;
use crate::outage::forecast::{Scene, is_lost};
use crate::outage::holders::holders;
use crate::outage::risk::may_be_mounted;
use crate::outage::time_text::{moment, span, when};

impl OutageExplainer<'_> {
    /// Volumes that can be used on unreachable nodes only.
    pub(crate) fn out_of_reach(&self, pod: PodView) -> Vec<String> {
        let mut out = Vec::new();
        for volume in pod_volumes(self.objects, pod).iter().filter(|v| !v.node_affinity.is_empty()) {
            let there: Vec<String> = volume.nodes(self.objects).into_iter().map(str::to_owned).collect();
            if there.iter().all(|n| is_lost(self.objects, self.clock, n)) {
                let place: Vec<String> =
                    volume.node_affinity.iter().map(|(k, v)| format!("{k}={}", v.join(" or "))).collect();
                let who = if there.is_empty() {
                    "no such node exists".to_owned()
                } else {
                    format!("these nodes are unreachable: {}", some(&there))
                };
                let place = place.join(", ");
                out.push(format!("volume {} can be used only on nodes with {place}, and {who}", volume.name()));
            }
        }
        out
    }

    /// The state of a volume that a pod waits for.
    pub(super) fn volume(&self, pod: PodView, volume: &PodVolume, scene: &Scene) -> Vec<String> {
        let mut out = Vec::new();
        let claim = &volume.claim;
        let Some(name) = &volume.volume else {
            let key = ObjectKey::namespaced("PersistentVolumeClaim", pod.namespace(), claim);
            out.push(match self.objects.find::<PersistentVolumeClaim>(pod.namespace(), claim) {
                None if !self.kinds.contains("PersistentVolumeClaim") => format!("claim {claim} was not read"),
                None => format!("claim {claim} does not exist"),
                Some(object) => {
                    let events = self.objects.events_about(&key, None);
                    let last =
                        events.last().map(|event| format!("; {} reports {:?}", event.reported_by, event.message));
                    let phase = object.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
                    format!("claim {claim} is {phase}, not bound to a volume{}", last.unwrap_or_default())
                }
            });
            return out;
        };
        let here = volume.attachments.iter().find(|a| Some(a.node.as_str()) == pod.node());
        if let Some(error) = here.and_then(|a| a.attach_error.as_ref()) {
            out.push(format!(
                "volume {name} (claim {claim}) cannot be attached to {}: its driver reports {error:?}",
                pod.node().unwrap_or_default()
            ));
            if error.contains("attached to a different instance") && volume.attachments.len() == 1 {
                out.push(
                    "Kubernetes has no other attachment of it: it is still attached in the storage system, and has to be \
                     detached there (Cinder: openstack server remove volume SERVER VOLUME)"
                        .to_owned(),
                );
            }
        }
        if !volume.is_exclusive() || here.is_some_and(|a| a.attached) {
            return out;
        }
        for held in volume.attachments.iter().filter(|a| Some(a.node.as_str()) != pod.node()) {
            let node = held.node.as_str();
            out.push(format!(
                "volume {name} (claim {claim}) is attached to {node}, and only one node at a time can use it"
            ));
            if let Some(error) = &held.detach_error {
                out.push(format!("detaching it from {node} fails: its driver reports {error:?}"));
            }
            let by: Vec<PodView> = holders(self.objects, volume, node).filter(|h| h.key() != pod.key()).collect();
            for holder in &by {
                let state = match holder.deletion_due() {
                    Some(due) if due < self.clock.now && !is_lost(self.objects, self.clock, node) => {
                        format!("Terminating; its grace period ended at {}", when(due, self.clock.now))
                    }
                    Some(_) => "Terminating".to_owned(),
                    None => self.state(*holder),
                };
                out.push(format!("pod {} uses it there ({state})", holder.name()));
            }
            if is_lost(self.objects, self.clock, node) {
                out.extend(self.node(node));
            }
            out.extend(self.timer(volume, held, &by));
        }
        if !scene.locked.is_empty() {
            let deployment = scene.deployment.as_deref().unwrap_or_default();
            out.push(format!(
                "circular wait in the rolling update of Deployment {deployment}: the old pod is kept until this one is Ready, \
                 and this one waits for the old one's volume"
            ));
        }
        out
    }

    /// Whether the timer of the forced detach is running.
    fn timer(&self, volume: &PodVolume, held: &VolumeAttachmentView, by: &[PodView]) -> Vec<String> {
        let (now, timers, node) = (self.clock.now, &self.clock.timers, held.node.as_str());
        if let Some(since) = held.detaching_since {
            return vec![format!(
                "it is being detached from {node} since {}: its driver has to report that it is detached",
                when(since, now)
            )];
        }
        let lost = is_lost(self.objects, self.clock, node);
        let Some(wait) = timers.force_detach else {
            return vec!["this cluster does not force-detach volumes (--disable-force-detach-on-timeout)".into()];
        };
        let long = span(wait);
        if by.iter().any(|h| h.needs_volumes()) {
            if !lost {
                return Vec::new();
            }
            return vec![format!(
                "the {long} timer after which Kubernetes force-detaches it is not running: it starts when the object of {} \
                 is gone",
                by.iter().map(|h| h.name()).collect::<Vec<_>>().join(", ")
            )];
        }
        if !lost {
            return vec![format!(
                "no pod uses it there any more: the kubelet of {node} has to report that it is unmounted"
            )];
        }
        if !may_be_mounted(self.objects, volume, node) {
            return vec![format!(
                "{node} does not report it as mounted: it is detached as soon as the controller sees that"
            )];
        }
        let attachment = (volume.name().to_owned(), node.to_owned());
        let Some(until) = self.future.and_then(|future| future.undisturbed.detaching.get(&attachment)).copied() else {
            return Vec::new();
        };
        vec![format!(
            "no pod uses it there any more: the {long} timer after which it is force-detached runs since about {}, until {}; \
             it is kept in the memory of kube-controller-manager and starts again when that restarts",
            moment(until - wait),
            when(until, now)
        )]
    }
}
