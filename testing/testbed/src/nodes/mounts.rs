//! Waits for a pod's volumes: its claims are bound, and attachable volumes are attached to its node.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod, Volume};
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::reflector::ObjectRef;

use super::world::World;

impl World {
    /// Waits until the pod's claims are bound and its attachable volumes are attached to this node. The volumes are
    /// reported as in use until [`World::release_volumes`], so that they are not detached.
    pub async fn wait_for_volumes(&self, node: &str, pod: &Pod) {
        let mut changed = self.changed();
        loop {
            changed.mark_unchanged();
            let volumes = self.attachable(pod);
            if let Some(volumes) = &volumes {
                self.use_volumes(node, &pod.uid().unwrap_or_default(), volumes);
            }
            let usable = match &volumes {
                Some(volumes) => self.are_usable(node, volumes).await,
                None => Ok(false),
            };
            // A failure is retried soon, even without a change.
            let timeout = match usable {
                Ok(true) => return,
                Ok(false) => Duration::MAX,
                Err(_) => Duration::from_millis(300),
            };
            if let Ok(Err(_)) = tokio::time::timeout(timeout, changed.changed()).await {
                return;
            }
        }
    }

    /// Whether volumes are attached to a node that has reported them as in use. Like a kubelet, it reads the Node again
    /// after the report, not from the cache.
    async fn are_usable(&self, node: &str, volumes: &[String]) -> kube::Result<bool> {
        if volumes.is_empty() {
            return Ok(true);
        }
        let attached = self.node(node).is_some_and(|node| are_attached(&node, volumes));
        if !attached || !self.in_use.are_reported(node, volumes) {
            return Ok(false);
        }
        self.wait_until_reachable(node).await;
        let api: Api<Node> = Api::all(self.client.clone());
        Ok(api.get_opt(node).await?.is_some_and(|now| are_attached(&now, volumes) && are_in_use(&now, volumes)))
    }

    /// Returns the PersistentVolume of a pod's volume; none if it has no claim, or while its claim is unbound.
    pub fn volume_of(&self, pod: &Pod, volume: &Volume) -> Option<Arc<PersistentVolume>> {
        self.volume_of_claim(&pod.namespace().unwrap_or_default(), &claim_name(pod, volume)?)
    }

    /// Returns the PersistentVolume of a claim; none while it is unbound.
    pub fn volume_of_claim(&self, namespace: &str, claim: &str) -> Option<Arc<PersistentVolume>> {
        let claim = self.claims.get(&ObjectRef::new(claim).within(namespace))?;
        if claim.status.as_ref()?.phase.as_deref() != Some("Bound") {
            return None;
        }
        self.volumes.get(&ObjectRef::new(claim.spec.as_ref()?.volume_name.as_ref()?))
    }

    /// Returns the kubelet's names of the pod's attachable volumes; none while a claim is unbound.
    fn attachable(&self, pod: &Pod) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            if claim_name(pod, volume).is_none() {
                continue;
            }
            names.extend(self.attachable_name(&*self.volume_of(pod, volume)?));
        }
        Some(names)
    }

    /// Returns the kubelet's name of a volume; none if it is not attachable.
    fn attachable_name(&self, volume: &PersistentVolume) -> Option<String> {
        let csi = volume.spec.as_ref()?.csi.as_ref()?;
        let attach = self.spec.driver(&csi.driver).is_some_and(|driver| driver.attach);
        attach.then(|| format!("kubernetes.io/csi/{}^{}", csi.driver, csi.volume_handle))
    }

    /// Whether a volume is a disk: processes lose access to it when it is detached.
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
