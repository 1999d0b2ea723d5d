//! The cluster at the end of a run, as far as it tells why a pod is not Ready.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_model::{Objects, PodView, claim_of, controller_of};
use stead_sim::{ObjectKind, SimKey, Store};

use crate::line::is_connected;
use crate::run::Run;

impl Run {
    /// The objects that a pod depends on, as they are at the end: the pods of its workload and the controllers of these, its
    /// volumes with all that use them, and the nodes of all of them.
    pub fn end_of(&self, pod: PodView<'_>) -> Objects {
        let store = self.end.store();
        let mut wanted = Wanted { store, keys: BTreeSet::new() };
        wanted.add_workload(pod);
        let pods: Vec<SimKey> = wanted.keys.iter().filter(|key| key.kind == ObjectKind::Pod).cloned().collect();
        pods.iter().for_each(|key| wanted.add_volumes(key));
        wanted.add_nodes();
        let all = [ObjectKind::CSIDriver, ObjectKind::StorageClass];
        let all = all.into_iter().flat_map(|kind| store.of_kind(kind).map(|(key, _)| key.clone()));
        wanted.keys.extend(all);
        let mut objects =
            Objects::from_items(wanted.keys.iter().filter_map(|key| store.object(key)).map(|object| object.to_json()));
        objects.set_version(self.end.settings().version);
        objects
    }

    /// Whether the kubelet of a node is heard of at the end.
    pub fn is_connected(&self, node: &str) -> bool {
        is_connected(&self.end, node)
    }

    /// Whether there is a Node object at the end.
    pub fn has_node(&self, node: &str) -> bool {
        self.end.store().object(&SimKey::node(node)).is_some()
    }
}

/// The keys of objects that are wanted.
struct Wanted<'a> {
    store: &'a Store,
    keys: BTreeSet<SimKey>,
}

impl Wanted<'_> {
    /// A pod, its controllers and their other pods.
    fn add_workload(&mut self, pod: PodView<'_>) {
        let (store, namespace) = (self.store, pod.namespace());
        self.keys.insert(SimKey::pod(namespace, pod.name()));
        let Some(owner) = pod.controller() else { return };
        let set = || store.get::<ReplicaSet>(namespace, &owner.name).filter(|_| owner.kind == "ReplicaSet");
        let deployment = set().and_then(|set| controller_of(&set.metadata)).map(|owner| owner.uid.clone());
        let siblings = deployment.iter().flat_map(|uid| store.owned_by(uid)).map(|(key, _)| key);
        let owners: BTreeSet<SimKey> = siblings.cloned().collect();
        let mut uids: Vec<String> = owners.iter().filter_map(|key| Some(store.object(key)?.uid().to_owned())).collect();
        uids.push(owner.uid.clone());
        for uid in &uids {
            self.keys.extend(store.owned_by(uid).map(|(key, _)| key.clone()));
        }
        self.keys.extend(owners);
        let kinds = [
            ObjectKind::ReplicaSet,
            ObjectKind::StatefulSet,
            ObjectKind::DaemonSet,
            ObjectKind::Job,
            ObjectKind::Deployment,
        ];
        let controllers = kinds.into_iter().flat_map(|kind| store.of_kind_in(kind, namespace));
        let ours = controllers.filter(|(_, object)| {
            uids.contains(&object.uid().to_owned()) || deployment.as_deref() == Some(object.uid())
        });
        self.keys.extend(ours.map(|(key, _)| key.clone()));
    }

    /// The claims and volumes of a pod, their attachments and the other pods that use them.
    fn add_volumes(&mut self, key: &SimKey) {
        let store = self.store;
        let Some(pod) = store.at::<Pod>(key) else { return };
        let used = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        for (claim, _) in used.filter_map(|volume| claim_of(volume, &key.name)) {
            self.keys.extend(store.pods_using(&key.namespace, &claim).cloned());
            let found = store.get::<PersistentVolumeClaim>(&key.namespace, &claim);
            self.keys.insert(SimKey::new(ObjectKind::PersistentVolumeClaim, &key.namespace, &claim));
            let Some(volume) = found.and_then(|claim| claim.spec.as_ref()?.volume_name.as_deref()) else { continue };
            self.keys.insert(SimKey::new(ObjectKind::PersistentVolume, "", volume));
            self.keys.extend(store.attachments_of(volume).cloned());
        }
    }

    /// The nodes of pods and attachments.
    fn add_nodes(&mut self) {
        let node = |key: &SimKey| match key.kind {
            ObjectKind::Pod => self.store.at::<Pod>(key)?.spec.as_ref()?.node_name.clone(),
            ObjectKind::VolumeAttachment => Some(self.store.at::<VolumeAttachment>(key)?.spec.node_name.clone()),
            _ => None,
        };
        let nodes: Vec<SimKey> = self.keys.iter().filter_map(node).map(|name| SimKey::node(&name)).collect();
        self.keys.extend(nodes);
    }
}
