//! The stand-ins' view of the cluster, and their shared state.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};
use kube::api::Api;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::JobEnd;
use super::cloud::Instance;
use super::disks::Disks;
use super::in_use::InUse;
use super::pods::Kubelets;
use crate::ClusterSpec;

/// The cached objects of the cluster, and the state of the stand-in nodes.
pub struct World {
    pub(super) client: Client,
    pub(super) spec: ClusterSpec,
    /// By node, the address of its kubelet, if it has one.
    pub(super) kubelets: BTreeMap<String, SocketAddr>,
    /// The storage behind attachable volumes.
    pub disks: Disks,
    pub(super) claims: Store<PersistentVolumeClaim>,
    pub(super) volumes: Store<PersistentVolume>,
    pub(super) classes: Store<StorageClass>,
    pub(super) attachments: Store<VolumeAttachment>,
    nodes: Store<Node>,
    changed: watch::Sender<()>,
    /// By node, whether it is reachable.
    reachable: BTreeMap<String, watch::Sender<bool>>,
    /// The attachable volumes in use on each node.
    pub(super) in_use: InUse,
    jobs: watch::Sender<JobEnd>,
    addresses: AtomicU32,
    /// How often each node was rebooted.
    boots: Mutex<BTreeMap<String, u32>>,
    /// The states of machines in the cloud; the default is running.
    instances: Mutex<BTreeMap<String, Instance>>,
}

impl World {
    pub(super) fn new(
        client: Client,
        spec: ClusterSpec,
        kubelets: Arc<dyn Kubelets>,
        tasks: &mut JoinSet<()>,
    ) -> World {
        let changed = watch::Sender::new(());
        let found = spec.nodes.iter().filter_map(|node| Some((node.name.clone(), kubelets.address(&node.name)?)));
        World {
            claims: observe(Api::all(client.clone()), &changed, tasks),
            volumes: observe(Api::all(client.clone()), &changed, tasks),
            classes: observe(Api::all(client.clone()), &changed, tasks),
            attachments: observe(Api::all(client.clone()), &changed, tasks),
            nodes: observe(Api::all(client.clone()), &changed, tasks),
            reachable: spec.nodes.iter().map(|node| (node.name.clone(), watch::Sender::new(true))).collect(),
            in_use: InUse::default(),
            jobs: watch::Sender::new(JobEnd::Succeed),
            addresses: AtomicU32::new(0),
            boots: Mutex::default(),
            instances: Mutex::default(),
            kubelets: found.collect(),
            disks: Disks::new(changed.clone(), kubelets),
            changed,
            client,
            spec,
        }
    }

    /// Waits until all caches are filled.
    pub(super) async fn ready(&self) -> Result<()> {
        let limit = Duration::from_secs(900);
        tokio::time::timeout(limit, self.caches_filled())
            .await
            .with_context(|| format!("caches not filled after {limit:?}"))?
    }

    async fn caches_filled(&self) -> Result<()> {
        self.claims.wait_until_ready().await.context("watching claims")?;
        self.volumes.wait_until_ready().await.context("watching volumes")?;
        self.classes.wait_until_ready().await.context("watching storage classes")?;
        self.attachments.wait_until_ready().await.context("watching volume attachments")?;
        self.nodes.wait_until_ready().await.context("watching nodes")
    }

    /// A client with the administrator's permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Signals every change of the cached objects and the shared state.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The names of the stand-in nodes.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.reachable.keys().map(String::as_str)
    }

    /// Returns a cached Node.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(&ObjectRef::new(name))
    }

    /// Sets whether a node is reachable.
    pub fn set_reachable(&self, node: &str, value: bool) -> Result<()> {
        let reachable = self.reachable.get(node).with_context(|| format!("stand-in node {node} does not exist"))?;
        reachable.send_replace(value);
        Ok(())
    }

    /// Whether a node is a stand-in and reachable.
    pub fn is_reachable(&self, node: &str) -> bool {
        self.reachable.get(node).is_some_and(|reachable| *reachable.borrow())
    }

    /// Waits until a node is reachable; forever if it is not a stand-in.
    pub async fn wait_until_reachable(&self, node: &str) {
        match self.reachable.get(node) {
            // It cannot fail: the sender lives as long as this value.
            Some(reachable) => drop(reachable.subscribe().wait_for(|value| *value).await),
            None => std::future::pending().await,
        }
    }

    /// Returns the address of a stand-in node.
    pub fn node_address(&self, node: &str) -> String {
        World::address_of(&self.spec, node)
    }

    /// Returns the address of a node of this cluster.
    pub fn address_of(spec: &ClusterSpec, node: &str) -> String {
        let index = spec.nodes.iter().position(|n| n.name == node);
        if let Some(address) = index.and_then(|index| spec.nodes[index].address.clone()) {
            return address;
        }
        let index = index.unwrap_or_default() + 10;
        format!("10.1.{}.{}", index / 250, index % 250 + 1)
    }

    /// Returns an address that no pod has had.
    pub fn new_pod_address(&self) -> String {
        let n = self.addresses.fetch_add(1, Ordering::Relaxed);
        format!("10.{}.{}.{}", 2 + n / 62_500, n / 250 % 250, n % 250 + 1)
    }

    /// Reboots a node: gives it a new boot id.
    pub fn boot(&self, node: &str) {
        *self.boots.lock().unwrap_or_else(PoisonError::into_inner).entry(node.to_owned()).or_default() += 1;
        self.changed.send_replace(());
    }

    /// Returns the boot id of a node, a UUID like the kernel's.
    pub fn boot_id(&self, node: &str) -> String {
        let boots = self.boots.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied().unwrap_or_default();
        let index = self.spec.nodes.iter().position(|n| n.name == node).unwrap_or_default();
        format!("{:08x}-0000-4000-8000-{boots:012x}", index + 1)
    }

    /// Sets the state of a node's machine in the cloud.
    pub fn set_instance(&self, node: &str, instance: Instance) {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).insert(node.to_owned(), instance);
    }

    pub(super) fn instance(&self, node: &str) -> Instance {
        self.instances.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied().unwrap_or_default()
    }

    pub(super) fn end_jobs(&self, how: JobEnd) {
        self.jobs.send_replace(how);
    }

    /// Waits until the containers of Jobs terminate, and returns how.
    pub(super) async fn job_end(&self) -> JobEnd {
        let mut jobs = self.jobs.subscribe();
        let end = jobs.wait_for(|end| *end != JobEnd::KeepRunning).await;
        end.map_or(JobEnd::Succeed, |end| *end)
    }

    /// Records that a pod uses volumes on a node.
    pub(super) fn use_volumes(&self, node: &str, pod: &str, volumes: &[String]) {
        if self.in_use.add(node, pod, volumes) {
            self.changed.send_replace(());
        }
    }

    /// Records that a pod uses no volumes any more.
    pub fn release_volumes(&self, node: &str, pod: &str) {
        if self.in_use.release(node, pod) {
            self.changed.send_replace(());
        }
    }

    /// Records that the API server has these volumes as in use on a node.
    pub(super) fn set_reported_in_use(&self, node: &str, volumes: Vec<String>) {
        self.in_use.set_reported(node, volumes);
        self.changed.send_replace(());
    }
}

/// Caches all objects of a kind for as long as the tasks run, and signals every change.
pub fn observe<K>(api: Api<K>, changed: &watch::Sender<()>, tasks: &mut JoinSet<()>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Clone + Eq + Hash + Default,
{
    let (store, writer) = reflector::store();
    let changed = changed.clone();
    tasks.spawn(async move {
        let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
        let mut events = std::pin::pin!(events);
        while events.next().await.is_some() {
            changed.send_replace(());
        }
    });
    store
}
