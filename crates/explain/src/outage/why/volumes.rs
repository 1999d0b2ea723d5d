//! The volumes that a pod waits for: where they are, who holds them there, and until when.

use super::Why;
use crate::explanation::some;
use crate::outage::detaching::{held_name, holders, released_before};
use crate::outage::events;
use crate::outage::forecast::{Scene, is_lost};
use crate::outage::pod::PodSeen;
use crate::outage::risk::may_be_mounted;
use crate::outage::volumes::{Attachment, HeldVolume, volumes_of};
use crate::outage::words::{moment, span, when};
use stead_model::ObjectKey;

impl Why<'_> {
    /// Volumes that can be used only where nobody answers.
    pub(crate) fn out_of_reach(&self, pod: PodSeen) -> Vec<String> {
        let mut out = Vec::new();
        for volume in volumes_of(self.objects, pod.namespace(), pod.0).iter().filter(|v| !v.only.is_empty()) {
            let there: Vec<String> = volume.nodes(self.objects).into_iter().map(str::to_owned).collect();
            if there.iter().all(|n| is_lost(self.objects, self.clock, n)) {
                let place: Vec<String> = volume.only.iter().map(|(k, v)| format!("{k}={}", v.join(" or "))).collect();
                let who = if there.is_empty() {
                    "there is no such node".to_owned()
                } else {
                    format!("nothing is heard of the nodes there: {}", some(&there))
                };
                let (name, place) = (held_name(volume), place.join(", "));
                out.push(format!("volume {name} can be used with {place} only, and {who}"));
            }
        }
        out
    }

    /// What is with a volume that a pod waits for.
    pub(super) fn volume(&self, pod: PodSeen, volume: &HeldVolume, scene: &Scene) -> Vec<String> {
        let mut out = Vec::new();
        let claim = &volume.claim;
        let Some(name) = &volume.volume else {
            let key = ObjectKey::new("PersistentVolumeClaim", pod.namespace(), claim);
            out.push(match self.objects.raw(&key) {
                None if !self.kinds.contains("PersistentVolumeClaim") => format!("claim {claim} was not read"),
                None => format!("claim {claim} is not there"),
                Some(c) => {
                    let said = events::about(self.objects, "PersistentVolumeClaim", pod.namespace(), claim, None);
                    let said = said.last().map(|s| format!("; {} says {:?}", s.by, s.message)).unwrap_or_default();
                    let phase = c["status"]["phase"].as_str().unwrap_or("Pending");
                    format!("claim {claim} is {phase}, not bound to a volume{said}")
                }
            });
            return out;
        };
        let here = volume.attachments.iter().find(|a| Some(a.node.as_str()) == pod.node());
        if let Some(error) = here.and_then(|a| a.attach_error.as_ref()) {
            out.push(format!(
                "volume {name} (claim {claim}) cannot be attached to {}: its driver says {error:?}",
                pod.node().unwrap_or_default()
            ));
            if error.contains("attached to a different instance") && volume.attachments.len() == 1 {
                out.push(
                    "Kubernetes knows of no other attachment: the storage itself still has it elsewhere, and only \
                     there can it be taken away (Cinder: openstack server remove volume SERVER VOLUME)"
                        .to_owned(),
                );
            }
        }
        if !volume.attached || volume.shared || here.is_some_and(|a| a.attached) {
            return out;
        }
        for held in volume.attachments.iter().filter(|a| Some(a.node.as_str()) != pod.node()) {
            let node = held.node.as_str();
            out.push(format!("volume {name} (claim {claim}) is attached to {node}, and can be on one node at a time"));
            if let Some(error) = &held.detach_error {
                out.push(format!("detaching it from {node} fails: its driver says {error:?}"));
            }
            let by: Vec<PodSeen> = holders(self.objects, volume, node).filter(|h| h.key() != pod.key()).collect();
            for holder in &by {
                let state = match holder.due() {
                    Some(due) if due < self.clock.now && !is_lost(self.objects, self.clock, node) => {
                        format!("Terminating; its time to end is over since {}", when(due, self.clock.now))
                    }
                    Some(_) => "Terminating".to_owned(),
                    None => self.standing(*holder),
                };
                out.push(format!("pod {} holds it there ({state})", holder.name()));
            }
            if is_lost(self.objects, self.clock, node) {
                out.extend(self.node(node));
            }
            out.extend(self.timer(pod, volume, held, &by));
        }
        if !scene.locked.is_empty() {
            let deployment = scene.deployment.as_deref().unwrap_or_default();
            out.push(format!(
                "the rolling update of Deployment {deployment} has locked itself: the old pod is kept until this one is \
                 Ready, and this one waits for the old one's volume"
            ));
        }
        out
    }

    /// Whether the timer of the forced detach runs.
    fn timer(&self, pod: PodSeen, volume: &HeldVolume, held: &Attachment, by: &[PodSeen]) -> Vec<String> {
        let (now, timers, node) = (self.clock.now, &self.clock.timers, held.node.as_str());
        if let Some(since) = &held.leaving {
            let since = since.parse().map_or_else(|_| since.clone(), |at| when(at, now));
            return vec![format!(
                "it is being detached from {node} since {since}: its driver has to say that it is done"
            )];
        }
        let lost = is_lost(self.objects, self.clock, node);
        let Some(wait) = timers.force_detach else {
            return vec![
                "volumes are not detached by force in this cluster (--disable-force-detach-on-timeout)".into(),
            ];
        };
        let long = span(wait);
        if by.iter().any(|h| h.needs_volumes()) {
            if !lost {
                return Vec::new();
            }
            return vec![format!(
                "the {long} after which Kubernetes detaches by force do not run: they begin when the object of {} is \
                 gone, not before",
                by.iter().map(|h| h.name()).collect::<Vec<_>>().join(", ")
            )];
        }
        if !lost {
            return vec![format!("no pod holds it there any more: {node} has to say that it is unmounted")];
        }
        if !may_be_mounted(self.objects, volume, node) {
            return vec![format!("{node} did not say that it is mounted: it is detached as soon as that is seen")];
        }
        let since = timers.begun(released_before(self.objects, self.clock, pod));
        vec![format!(
            "no pod holds it there any more, so the {long} after which it is detached by force run since about {}, until \
             {}; the timer is in the memory of kube-controller-manager and begins anew with it",
            moment(since),
            when(since + wait, now)
        )]
    }
}
