//! When a pod's volumes can be used on its node: its claims are bound, and what has to be attached is attached.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod, Volume};
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;

use super::world::World;

impl World {
    /// Waits until the pod's claims are bound, and what has to be attached is attached to this node. They are in use
    /// there from now on, until [`World::release_volumes`], and nobody detaches what is in use.
    pub async fn volumes_are_there(&self, node: &str, pod: &Pod) {
        let mut changed = self.changed();
        loop {
            changed.mark_unchanged();
            let volumes = self.attachable(pod);
            if let Some(volumes) = &volumes {
                self.take_volumes(node, &pod.uid().unwrap_or_default(), volumes);
            }
            let there = match &volumes {
                Some(volumes) => self.are_there(node, volumes).await,
                None => Ok(false),
            };
            // What failed is tried again soon, even if nothing is new.
            let patience = match there {
                Ok(true) => return,
                Ok(false) => Duration::MAX,
                Err(_) => Duration::from_millis(300),
            };
            if let Ok(Err(_)) = tokio::time::timeout(patience, changed.changed()).await {
                return;
            }
        }
    }

    /// Whether volumes are attached to a node that has said that it uses them. The order is that of a kubelet: it is
    /// asked when that has been said, and not of what was seen before.
    async fn are_there(&self, node: &str, volumes: &[String]) -> kube::Result<bool> {
        if volumes.is_empty() {
            return Ok(true);
        }
        let seen = self.node(node).is_some_and(|seen| are_attached(&seen, volumes));
        if !seen || !self.in_use.are_told(node, volumes) {
            return Ok(false);
        }
        self.awake(node).await;
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(api.get_opt(node).await?.is_some_and(|now| are_attached(&now, volumes) && are_in_use(&now, volumes)))
    }

    /// The PersistentVolume behind a pod's volume; none while its claim is unbound, or if it has none.
    pub fn volume_of(&self, pod: &Pod, volume: &Volume) -> Option<Arc<PersistentVolume>> {
        self.volume_of_claim(&pod.namespace().unwrap_or_default(), &claim_name(pod, volume)?)
    }

    /// The PersistentVolume of a claim; none while it is unbound.
    pub fn volume_of_claim(&self, namespace: &str, claim: &str) -> Option<Arc<PersistentVolume>> {
        let claim = self.claims.get(&ObjectRef::new(claim).within(namespace))?;
        if claim.status.as_ref()?.phase.as_deref() != Some("Bound") {
            return None;
        }
        self.volumes.get(&ObjectRef::new(claim.spec.as_ref()?.volume_name.as_ref()?))
    }

    /// The pod's volumes that have to be attached, by the names that kubelet has for them; none while a claim is
    /// unbound.
    fn attachable(&self, pod: &Pod) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            if claim_name(pod, volume).is_none() {
                continue;
            }
            names.extend(self.attached_as(&*self.volume_of(pod, volume)?));
        }
        Some(names)
    }

    /// The name that a kubelet has for a volume; none if it is of a kind that is not attached.
    fn attached_as(&self, volume: &PersistentVolume) -> Option<String> {
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        let attach = self.spec.driver(&csi.driver).is_some_and(|driver| driver.attach);
        attach.then(|| format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle))
    }

    /// Whether a volume is a disk, which is taken from whoever has it mounted when it is detached.
    pub fn is_disk(&self, volume: &PersistentVolume) -> bool {
        let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
        csi.and_then(|csi| self.spec.driver(&csi.driver)).is_some_and(|driver| driver.attach && driver.disk)
    }
}

fn are_attached(node: &Node, volumes: &[String]) -> bool {
    let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_deref()).unwrap_or_default();
    volumes.iter().all(|volume| attached.iter().any(|a| a.name == *volume))
}

fn are_in_use(node: &Node, volumes: &[String]) -> bool {
    let in_use = node.status.as_ref().and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
    volumes.iter().all(|volume| in_use.contains(volume))
}

fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(format!("{}-{}", pod.name_any(), volume.name)),
        (None, None) => None,
    }
}
