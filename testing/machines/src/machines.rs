//! The nodes of a cluster, as tests use them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Output;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api as KubeApi;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use stead_testbed::{ClusterSpec, ControlPlane, Disks, Guard, Instance, Nodes, World, observe, skip};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::forward::{bind_udp, connect, forward, listen};
use crate::group::{Group, Usage};
use crate::host::{Host, Processes};
use crate::images::Images;
use crate::kubelet_port::Kubelet;
use crate::network::{API_ADDRESS, DNS_ADDRESS, Fabric};
use crate::volumes::Directories;
use crate::witness::{Interval, Violation, violations};
use crate::{dns, egress, kubelet_port, requirements};

/// Maximum run time of a command in a container. One that takes longer hangs.
const EXEC_TIMEOUT: Duration = Duration::from_secs(600);

/// The configuration of [`Machines`].
#[derive(Debug, Clone)]
pub struct Setup {
    /// The nodes and the storage drivers. The simulated times to start, become ready and stop are not used.
    pub cluster: ClusterSpec,
    /// What images add to the host's files.
    pub images: Images,
    /// Restart delay of a container that has terminated for the second time in a row. It doubles each time. The kubelet
    /// uses 10 s.
    pub back_off: Duration,
    /// Maximum restart delay. A container that runs longer than this starts over with no delay. The kubelet uses 300 s.
    pub back_off_limit: Duration,
}

impl Default for Setup {
    /// No nodes, and a tenth of the kubelet's delays.
    fn default() -> Setup {
        Setup {
            cluster: ClusterSpec::default(),
            images: Images::default(),
            back_off: Duration::from_secs(1),
            back_off_limit: Duration::from_secs(30),
        }
    }
}

/// Whether nodes that are cut off from the others can still reach the API server and the cluster's DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// They can.
    Reachable,
    /// They cannot: their leases expire, and their kubelets see no changes.
    Unreachable,
}

/// Nodes that run pods as processes. Everything is stopped and removed when this value is dropped or this process dies.
pub struct Machines {
    // In the order in which they have to be dropped.
    nodes: Nodes,
    _tasks: JoinSet<()>,
    host: Arc<Host>,
    group: RemoveOnDrop,
    _disks: UnmountOnDrop,
    guard: Guard,
    cut_off: Mutex<Vec<String>>,
}

/// Removes a control group, and kills the processes in it, on drop.
struct RemoveOnDrop(Group);

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Unmounts all disks on drop.
struct UnmountOnDrop(Arc<Host>);

impl Drop for UnmountOnDrop {
    fn drop(&mut self) {
        self.0.storage.close();
    }
}

impl Machines {
    /// Returns what is missing on this machine to run pods as processes; none if nothing is.
    pub fn missing() -> Option<String> {
        requirements::missing()
    }

    /// Returns whether pods can run as processes here. If not, it reports that the test is skipped; the test then
    /// returns.
    pub fn can_run_or_skip() -> bool {
        let missing = Machines::missing();
        if let Some(missing) = &missing {
            skip(missing);
        }
        missing.is_none()
    }

    /// Registers the nodes with the control plane and starts them.
    pub async fn start(plane: &ControlPlane, setup: Setup) -> Result<Machines> {
        let mut guard = Guard::new()?;
        let group = RemoveOnDrop(Group::root()?);
        guard.kill_group_on_exit(group.0.path())?;
        let names: Vec<String> = setup.cluster.nodes.iter().map(|node| node.name.clone()).collect();
        let addresses: Vec<(String, String)> =
            names.iter().map(|name| (name.clone(), World::address_of(&setup.cluster, name))).collect();
        let fabric = tokio::task::spawn_blocking(move || Fabric::new(&addresses)).await;
        let fabric = fabric.context("the thread that creates the network")??;
        let mut tasks = JoinSet::new();
        start_services(plane, &fabric, &mut tasks)?;
        let directories = Directories { root: guard.folder().to_owned() };
        let back_off = [setup.back_off, setup.back_off_limit];
        let host = Arc::new(Host::new(directories, setup.images, fabric, &group.0, &names, back_off)?);
        let acceptor = kubelet_port::acceptor(&plane.folder().join("certs"))?;
        let (mut addresses, mut listeners) = (BTreeMap::new(), Vec::new());
        for name in names {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("a port for a kubelet")?;
            let mut address = listener.local_addr().context("a port for a kubelet")?;
            // The API server refuses to proxy to loopback addresses, so with the egress proxy a kubelet has its node's
            // address.
            if plane.has_egress() {
                address.set_ip(World::address_of(&setup.cluster, &name).parse().context("a node's address")?);
            }
            addresses.insert(name.clone(), address);
            listeners.push((name, listener));
        }
        let socket = UnixListener::bind(plane.egress()).context("the socket of the egress proxy")?;
        tasks.spawn(egress::serve(socket, host.fabric.services[0].clone(), addresses.values().copied().collect()));
        let kubelets = Arc::new(Processes { host: host.clone(), addresses });
        let nodes = Nodes::start_with(plane, setup.cluster, kubelets).await?;
        for (node, listener) in listeners {
            let kubelet = Kubelet { node, host: host.clone(), world: nodes.world() };
            tasks.spawn(kubelet_port::serve(listener, acceptor.clone(), kubelet));
        }
        let disks = UnmountOnDrop(host.clone());
        Ok(Machines { nodes, _tasks: tasks, host, group, _disks: disks, guard, cut_off: Mutex::default() })
    }

    /// Waits until every reachable node is Ready and has no taint.
    pub async fn ready(&self) -> Result<()> {
        self.nodes.ready().await
    }

    /// The testbed's nodes, for operations that are not offered here.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The directory with the volumes, the logs and the nodes' files. It is removed when this value is dropped.
    pub fn folder(&self) -> PathBuf {
        self.guard.folder().to_owned()
    }

    /// The control group of all processes.
    pub fn control_group(&self) -> PathBuf {
        self.group.0.path().to_owned()
    }

    /// Suspends the machine: its processes are frozen, its network is down, and it renews no lease.
    pub async fn suspend(&self, node: &str) -> Result<()> {
        self.nodes.make_unreachable(node)?;
        self.host.set_power(node, |power| power.on = false)?;
        self.host.fabric.set_link(node, false)?;
        self.freeze(node, true).await
    }

    async fn freeze(&self, node: &str, frozen: bool) -> Result<()> {
        let group = self.host.group(node)?.clone();
        let frozen = tokio::task::spawn_blocking(move || group.freeze(frozen));
        frozen.await.context("the thread that freezes a node")?
    }

    /// Resumes a suspended machine.
    pub async fn resume(&self, node: &str) -> Result<()> {
        self.freeze(node, false).await?;
        self.host.fabric.set_link(node, true)?;
        self.host.set_power(node, |power| power.on = true)?;
        self.make_reachable(node)
    }

    /// Powers the machine off: all its processes are killed at once. The API server learns of it only if the cluster
    /// has a cloud ([`ClusterSpec::cloud`]), which reports the machine as shut down.
    pub async fn kill(&self, node: &str) -> Result<()> {
        self.power_off(node).await?;
        self.nodes.set_instance(node, Instance::Off);
        Ok(())
    }

    /// Deletes the machine: all its processes are killed, as in [`Machines::kill`]. The cloud deletes the Node object
    /// when the node is no longer Ready; without a cloud the object stays.
    pub async fn delete(&self, node: &str) -> Result<()> {
        self.power_off(node).await?;
        self.nodes.set_instance(node, Instance::Deleted);
        Ok(())
    }

    async fn power_off(&self, node: &str) -> Result<()> {
        self.nodes.make_unreachable(node)?;
        self.host.fabric.set_link(node, false)?;
        self.host.set_power(node, |power| *power = crate::host::Power { on: false, boot: power.boot + 1 })?;
        let group = self.host.group(node)?.clone();
        let killed = tokio::task::spawn_blocking(move || {
            group.kill()?;
            // The machine may have been suspended.
            group.freeze(false)
        });
        killed.await.context("the thread that kills a node")??;
        self.host.storage.power_off(node);
        Ok(())
    }

    /// Starts the machine with a new boot id. It registers itself if its Node object is gone, and restarts the pods
    /// that are still bound to it.
    pub async fn boot(&self, node: &str) -> Result<()> {
        self.nodes.set_instance(node, Instance::Running);
        self.nodes.register(node).await?;
        self.nodes.world().boot(node);
        self.host.fabric.set_link(node, true)?;
        self.host.set_power(node, |power| power.on = true)?;
        self.make_reachable(node)
    }

    /// The storage behind attachable volumes.
    pub fn disks(&self) -> &Disks {
        self.nodes.disks()
    }

    /// Returns which pods could write to which disk, and when, since the start.
    pub fn witness(&self) -> Vec<Interval> {
        self.host.storage.witness.all()
    }

    /// Returns the violations among these intervals.
    pub fn violations(&self) -> Vec<Violation> {
        violations(&self.witness())
    }

    /// Makes a node reachable, unless it is cut off from the API server.
    fn make_reachable(&self, node: &str) -> Result<()> {
        let cut_off = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner);
        if cut_off.iter().any(|name| name == node) { Ok(()) } else { self.nodes.resume(node) }
    }

    /// Cuts these nodes off: they can reach each other, but not the other nodes, and the other nodes cannot reach them.
    pub async fn cut(&self, nodes: &[&str], api: Api) -> Result<()> {
        self.host.fabric.cut(nodes, api)?;
        if api == Api::Unreachable {
            let mut cut_off = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner);
            for node in nodes {
                self.nodes.make_unreachable(node)?;
                cut_off.push((*node).to_owned());
            }
        }
        Ok(())
    }

    /// Reconnects all nodes that are cut off.
    pub async fn rejoin_all(&self) -> Result<()> {
        self.host.fabric.rejoin_all()?;
        let cut_off = std::mem::take(&mut *self.cut_off.lock().unwrap_or_else(PoisonError::into_inner));
        for node in cut_off {
            // A machine that is also suspended or off becomes reachable when it is resumed or started.
            if self.host.power(&node)?.borrow().on {
                self.nodes.resume(&node)?;
            }
        }
        Ok(())
    }

    /// Reconnects this node only.
    pub async fn rejoin(&self, node: &str) -> Result<()> {
        self.host.fabric.rejoin(node)?;
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).retain(|name| name != node);
        // A machine that is also suspended or off becomes reachable when it is resumed or started.
        if self.host.power(node)?.borrow().on { self.nodes.resume(node) } else { Ok(()) }
    }

    /// Sets a label of a node, or removes it.
    pub async fn set_label(&self, node: &str, key: &str, value: Option<&str>) -> Result<()> {
        self.nodes.set_label(node, key, value).await
    }

    /// Runs a command in a container and waits until it terminates, for at most ten minutes.
    pub async fn exec(&self, namespace: &str, pod: &str, container: &str, command: &[&str]) -> Result<Output> {
        let command: Vec<String> = command.iter().map(|arg| (*arg).to_owned()).collect();
        let action = || format!("{} in pod {namespace}/{pod}, container {container}", command.join(" "));
        let running = self.running(namespace, pod, container)?;
        let ended = tokio::time::timeout(EXEC_TIMEOUT, running.exec(&command)).await;
        ended.with_context(|| format!("still running after {EXEC_TIMEOUT:?}")).flatten().with_context(action)
    }

    /// Kills a container's first process, like a crash.
    pub async fn kill_container(&self, namespace: &str, pod: &str, container: &str) -> Result<()> {
        let running = self.running(namespace, pod, container)?;
        kill(Pid::from_raw(running.pid), Signal::SIGKILL)
            .with_context(|| format!("killing container {container} of pod {namespace}/{pod}"))
    }

    /// Returns the CPU time and memory of a running container.
    pub async fn usage(&self, namespace: &str, pod: &str, container: &str) -> Result<Usage> {
        self.running(namespace, pod, container)?.group.usage()
    }

    fn running(&self, namespace: &str, pod: &str, container: &str) -> Result<crate::container::RunningContainer> {
        let run = self.host.run(namespace, pod).with_context(|| format!("pod {namespace}/{pod} does not exist"))?;
        run.running(container).with_context(|| format!("pod {namespace}/{pod}: container {container} is not running"))
    }

    /// Returns the log of a container, including earlier restarts and earlier pods of the same name.
    pub fn logs(&self, namespace: &str, pod: &str, container: &str) -> Result<String> {
        let path = self.host.directories.log(namespace, pod, container);
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the address of a running pod.
    pub fn pod_address(&self, namespace: &str, pod: &str) -> Result<String> {
        let run = self.host.run(namespace, pod).with_context(|| format!("pod {namespace}/{pod} does not exist"))?;
        let address = run.state().address.clone();
        address.with_context(|| format!("pod {namespace}/{pod} has no address yet"))
    }

    /// Opens a connection from inside the cluster's network.
    pub async fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        connect(&self.host.fabric.services[0], address).await
    }

    /// Returns the directory of the volume of a bound claim. It exists regardless of where the volume is attached.
    pub fn volume_dir(&self, namespace: &str, claim: &str) -> Result<PathBuf> {
        let volume = self.nodes.world().volume_of_claim(namespace, claim);
        let volume = volume.with_context(|| format!("claim {namespace}/{claim} is not bound"))?;
        Ok(self.host.directories.volume(&volume.name_any()))
    }

    /// Deletes the content of the volume of a claim.
    pub async fn empty_volume(&self, namespace: &str, claim: &str) -> Result<()> {
        let path = self.volume_dir(namespace, claim)?;
        let action = || format!("emptying {}", path.display());
        for entry in std::fs::read_dir(&path).with_context(action)? {
            let entry = entry.with_context(action)?;
            let is_dir = entry.file_type().with_context(action)?.is_dir();
            let gone = if is_dir { std::fs::remove_dir_all(entry.path()) } else { std::fs::remove_file(entry.path()) };
            gone.with_context(action)?;
        }
        Ok(())
    }

    /// Waits until a pod is Ready according to the API server, and returns it.
    pub async fn wait_ready(&self, namespace: &str, pod: &str, time: Duration) -> Result<Pod> {
        let api: KubeApi<Pod> = KubeApi::namespaced(self.nodes.world().client(), namespace);
        let end = Instant::now() + time;
        loop {
            let found = api.get_opt(pod).await.with_context(|| format!("pod {namespace}/{pod}"))?;
            if let Some(found) = &found
                && is_ready(found)
            {
                return Ok(found.clone());
            }
            if Instant::now() > end {
                bail!(
                    "pod {namespace}/{pod} is not ready after {time:?}: {}",
                    self.describe_pod(namespace, pod, found.as_ref())
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Describes the state of a pod, with the end of its containers' logs.
    fn describe_pod(&self, namespace: &str, name: &str, pod: Option<&Pod>) -> String {
        let Some(pod) = pod else { return "the pod does not exist".to_owned() };
        let mut text = serde_json::to_string(&pod.status).unwrap_or_default();
        let run = self.host.run(namespace, name);
        let refused = run.and_then(|run| run.refused.lock().unwrap_or_else(PoisonError::into_inner).clone());
        if let Some(refused) = refused {
            text += &format!("\nits status was refused: {refused}");
        }
        let spec = pod.spec.iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
        for container in spec {
            let log = self.logs(namespace, name, &container.name).unwrap_or_default();
            let mut last: Vec<&str> = log.lines().rev().take(8).collect();
            last.reverse();
            text += &format!("\n{}: {}", container.name, last.join("\n  "));
        }
        text
    }
}

/// Whether a pod is Ready and not being deleted.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none() && conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Starts the services with fixed addresses, the API server and DNS, on both sides of the switch.
fn start_services(plane: &ControlPlane, fabric: &Fabric, tasks: &mut JoinSet<()>) -> Result<()> {
    let server = plane.server().strip_prefix("https://").unwrap_or_default();
    let server: SocketAddr = server.parse().with_context(|| format!("the API server's address {}", plane.server()))?;
    let changed = watch::Sender::new(());
    let services = observe(KubeApi::all(plane.client()), &changed, tasks);
    let slices = observe(KubeApi::all(plane.client()), &changed, tasks);
    for side in &fabric.services {
        tasks.spawn(forward(listen(side, &format!("{API_ADDRESS}:443"))?, server));
        tasks.spawn(dns::serve(bind_udp(side, &format!("{DNS_ADDRESS}:53"))?, services.clone(), slices.clone()));
    }
    Ok(())
}
