//! The nodes of a cluster as a test uses them.

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

use crate::forward::{connect, forward, listen, receive};
use crate::group::{Group, Usage};
use crate::host::{Host, Processes};
use crate::images::Images;
use crate::kubelet_port::Kubelet;
use crate::network::{API_ADDRESS, DNS_ADDRESS, Fabric};
use crate::volumes::Places;
use crate::witness::{Interval, Violation, violations};
use crate::{dns, egress, kubelet_port, requirements};

/// So long may a program in a container take. One that takes longer hangs.
const MOST: Duration = Duration::from_secs(600);

/// How the nodes of a cluster should be.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The nodes and the storage drivers. The times for pods to run, be ready and stop are not used: these are real.
    pub cluster: ClusterSpec,
    /// What images have beyond the host's files.
    pub images: Images,
    /// How long a container that ends for the second time in a row waits for its next start. It doubles each time. A
    /// kubelet has 10 s.
    pub back_off: Duration,
    /// The longest that it waits; one that runs longer begins anew. A kubelet has 300 s.
    pub back_off_limit: Duration,
}

impl Default for Setup {
    /// No nodes yet, and a tenth of a kubelet's delays.
    fn default() -> Setup {
        Setup {
            cluster: ClusterSpec::default(),
            images: Images::default(),
            back_off: Duration::from_secs(1),
            back_off_limit: Duration::from_secs(30),
        }
    }
}

/// Whether nodes that are cut off from the others still reach the API server and the cluster's DNS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// They do.
    Reachable,
    /// They do not: their leases run out, and their kubelets hear of nothing.
    Unreachable,
}

/// Nodes that run pods as processes. All of it ends, and goes, with this value; and with this process.
pub struct Machines {
    // In the order in which they have to go.
    nodes: Nodes,
    _tasks: JoinSet<()>,
    host: Arc<Host>,
    group: Removed,
    _disks: Unmounted,
    guard: Guard,
    cut_off: Mutex<Vec<String>>,
}

/// A control group that is removed, with all that runs in it, when this is dropped.
struct Removed(Group);

impl Drop for Removed {
    fn drop(&mut self) {
        self.0.remove();
    }
}

/// Machines whose disks are unmounted when this is dropped.
struct Unmounted(Arc<Host>);

impl Drop for Unmounted {
    fn drop(&mut self) {
        self.0.storage.close();
    }
}

impl Machines {
    /// What is missing on this machine to run pods as processes; none if nothing is.
    pub fn missing() -> Option<String> {
        requirements::missing()
    }

    /// Whether pods can be processes here. If not, that is said aloud and counted: the test returns early.
    pub fn can_run_or_skip() -> bool {
        let missing = Machines::missing();
        if let Some(missing) = &missing {
            skip(missing);
        }
        missing.is_none()
    }

    /// Registers the nodes at the control plane and starts what they do.
    pub async fn start(plane: &ControlPlane, setup: Setup) -> Result<Machines> {
        let mut guard = Guard::new()?;
        let group = Removed(Group::root()?);
        guard.mind_group(group.0.path())?;
        let names: Vec<String> = setup.cluster.nodes.iter().map(|node| node.name.clone()).collect();
        let addresses: Vec<(String, String)> =
            names.iter().map(|name| (name.clone(), World::address_of(&setup.cluster, name))).collect();
        let fabric = tokio::task::spawn_blocking(move || Fabric::new(&addresses)).await;
        let fabric = fabric.context("a thread that makes a network")??;
        let mut tasks = JoinSet::new();
        services(plane, &fabric, &mut tasks)?;
        let places = Places { root: guard.folder().to_owned() };
        let back_off = [setup.back_off, setup.back_off_limit];
        let host = Arc::new(Host::new(places, setup.images, fabric, &group.0, &names, back_off)?);
        let acceptor = kubelet_port::acceptor(&plane.folder().join("certs"))?;
        let (mut addresses, mut listeners) = (BTreeMap::new(), Vec::new());
        for name in names {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("a port for a kubelet")?;
            let mut address = listener.local_addr().context("a port for a kubelet")?;
            // The API server passes nobody on to loopback: only by way of a proxy it comes to a kubelet's own pages.
            if plane.has_egress() {
                address.set_ip(World::address_of(&setup.cluster, &name).parse().context("a node's address")?);
            }
            addresses.insert(name.clone(), address);
            listeners.push((name, listener));
        }
        let socket = UnixListener::bind(plane.egress()).context("a socket for the API server's way to pods")?;
        tasks.spawn(egress::serve(socket, host.fabric.services[0].clone(), addresses.values().copied().collect()));
        let kubelets = Arc::new(Processes { host: host.clone(), addresses });
        let nodes = Nodes::start_with(plane, setup.cluster, kubelets).await?;
        for (node, listener) in listeners {
            let kubelet = Kubelet { node, host: host.clone(), world: nodes.world() };
            tasks.spawn(kubelet_port::serve(listener, acceptor.clone(), kubelet));
        }
        let disks = Unmounted(host.clone());
        Ok(Machines { nodes, _tasks: tasks, host, group, _disks: disks, guard, cut_off: Mutex::default() })
    }

    /// Waits until every node that is not silent is Ready and has no taint.
    pub async fn ready(&self) -> Result<()> {
        self.nodes.ready().await
    }

    /// The nodes as the test bed has them, for what is not here.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Where the volumes, logs and nodes' own files are. It goes with this value.
    pub fn folder(&self) -> PathBuf {
        self.guard.folder().to_owned()
    }

    /// The control group of all processes.
    pub fn control_group(&self) -> PathBuf {
        self.group.0.path().to_owned()
    }

    /// The machine is suspended: its processes stop where they are, its network is dead, it is heard of no more.
    pub async fn silence(&self, node: &str) -> Result<()> {
        self.nodes.silence(node)?;
        self.host.set_power(node, |power| power.on = false)?;
        self.host.fabric.link(node, false)?;
        self.freeze(node, true).await
    }

    async fn freeze(&self, node: &str, frozen: bool) -> Result<()> {
        let group = self.host.group(node)?.clone();
        let frozen = tokio::task::spawn_blocking(move || group.freeze(frozen));
        frozen.await.context("a thread that freezes a node")?
    }

    /// The machine goes on where it was.
    pub async fn resume(&self, node: &str) -> Result<()> {
        self.freeze(node, false).await?;
        self.host.fabric.link(node, true)?;
        self.host.set_power(node, |power| power.on = true)?;
        self.heard(node)
    }

    /// The machine loses its power: all that runs there dies at once, and nobody tells the API server, unless the
    /// machines are of a cloud ([`ClusterSpec::cloud`]): it sees a machine that is shut down.
    pub async fn kill(&self, node: &str) -> Result<()> {
        self.power_off(node).await?;
        self.nodes.set_instance(node, Instance::Off);
        Ok(())
    }

    /// The machine is deleted, as [`Machines::kill`] does it to all that runs there. Its cloud deletes the Node object
    /// when the node is not ready any more; without a cloud that is left to others.
    pub async fn delete(&self, node: &str) -> Result<()> {
        self.power_off(node).await?;
        self.nodes.set_instance(node, Instance::Gone);
        Ok(())
    }

    async fn power_off(&self, node: &str) -> Result<()> {
        self.nodes.silence(node)?;
        self.host.fabric.link(node, false)?;
        self.host.set_power(node, |power| *power = crate::host::Power { on: false, boot: power.boot + 1 })?;
        let group = self.host.group(node)?.clone();
        let killed = tokio::task::spawn_blocking(move || {
            group.kill()?;
            // A machine that was suspended is not any more.
            group.freeze(false)
        });
        killed.await.context("a thread that kills a node")??;
        self.host.storage.died(node);
        Ok(())
    }

    /// The machine starts again, with a new boot id, and registers itself if its Node object is gone. The pods that are
    /// still bound to it are started again.
    pub async fn boot(&self, node: &str) -> Result<()> {
        self.nodes.set_instance(node, Instance::Running);
        self.nodes.register(node).await?;
        self.nodes.world().boot(node);
        self.host.fabric.link(node, true)?;
        self.host.set_power(node, |power| power.on = true)?;
        self.heard(node)
    }

    /// The storage behind the volumes that are attached.
    pub fn disks(&self) -> &Disks {
        self.nodes.disks()
    }

    /// Who could write to which volume, and when, since the beginning: those on disks, which are attached.
    pub fn witness(&self) -> Vec<Interval> {
        self.host.storage.witness.all()
    }

    /// What the witness has seen that must not be.
    pub fn violations(&self) -> Vec<Violation> {
        violations(&self.witness())
    }

    /// A node is heard of again, unless it is cut off.
    fn heard(&self, node: &str) -> Result<()> {
        let cut_off = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner);
        if cut_off.iter().any(|name| name == node) { Ok(()) } else { self.nodes.resume(node) }
    }

    /// Cuts these nodes off: they reach each other, but not the other nodes, nor these them.
    pub async fn cut(&self, nodes: &[&str], api: Api) -> Result<()> {
        self.host.fabric.cut(nodes, api)?;
        if api == Api::Unreachable {
            let mut cut_off = self.cut_off.lock().unwrap_or_else(PoisonError::into_inner);
            for node in nodes {
                self.nodes.silence(node)?;
                cut_off.push((*node).to_owned());
            }
        }
        Ok(())
    }

    /// Nobody is cut off any more.
    pub async fn mend(&self) -> Result<()> {
        self.host.fabric.mend()?;
        let cut_off = std::mem::take(&mut *self.cut_off.lock().unwrap_or_else(PoisonError::into_inner));
        for node in cut_off {
            // One that is silent or off besides is heard of when it is back.
            if self.host.power(&node)?.borrow().on {
                self.nodes.resume(&node)?;
            }
        }
        Ok(())
    }

    /// This node is not cut off any more; others stay as they are.
    pub async fn rejoin(&self, node: &str) -> Result<()> {
        self.host.fabric.rejoin(node)?;
        self.cut_off.lock().unwrap_or_else(PoisonError::into_inner).retain(|name| name != node);
        // One that is silent or off besides is heard of when it is back.
        if self.host.power(node)?.borrow().on { self.nodes.resume(node) } else { Ok(()) }
    }

    /// Sets a label of a node, or takes it away.
    pub async fn set_label(&self, node: &str, key: &str, value: Option<&str>) -> Result<()> {
        self.nodes.set_label(node, key, value).await
    }

    /// Runs a command in a container, and waits for its end, but not for ever.
    pub async fn exec(&self, namespace: &str, pod: &str, container: &str, words: &[&str]) -> Result<Output> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let said = || format!("{} in pod {namespace}/{pod}, container {container}", words.join(" "));
        let running = self.running(namespace, pod, container)?;
        let ended = tokio::time::timeout(MOST, running.exec(&words)).await;
        ended.with_context(|| format!("it does not end within {MOST:?}")).flatten().with_context(said)
    }

    /// Kills a container's first process, as a crash.
    pub async fn kill_container(&self, namespace: &str, pod: &str, container: &str) -> Result<()> {
        let running = self.running(namespace, pod, container)?;
        kill(Pid::from_raw(running.pid), Signal::SIGKILL)
            .with_context(|| format!("killing container {container} of pod {namespace}/{pod}"))
    }

    /// What a container has used since it began.
    pub async fn usage(&self, namespace: &str, pod: &str, container: &str) -> Result<Usage> {
        self.running(namespace, pod, container)?.group.usage()
    }

    fn running(&self, namespace: &str, pod: &str, container: &str) -> Result<crate::container::Running> {
        let run = self.host.run(namespace, pod).with_context(|| format!("there is no pod {namespace}/{pod}"))?;
        run.running(container).with_context(|| format!("pod {namespace}/{pod}: container {container} does not run"))
    }

    /// All that a container of this name has said, over its restarts and over pods of the same name.
    pub fn logs(&self, namespace: &str, pod: &str, container: &str) -> Result<String> {
        let path = self.host.places.log(namespace, pod, container);
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The address of a pod that runs.
    pub fn pod_address(&self, namespace: &str, pod: &str) -> Result<String> {
        let run = self.host.run(namespace, pod).with_context(|| format!("there is no pod {namespace}/{pod}"))?;
        let address = run.state().address.clone();
        address.with_context(|| format!("pod {namespace}/{pod} has no address yet"))
    }

    /// A connection from inside the cluster's network.
    pub async fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        connect(&self.host.fabric.services[0], address).await
    }

    /// The directory that is the volume of a claim, which has to be bound. It is there whatever the volume is attached to.
    pub fn volume_dir(&self, namespace: &str, claim: &str) -> Result<PathBuf> {
        let volume = self.nodes.world().volume_of_claim(namespace, claim);
        let volume = volume.with_context(|| format!("claim {namespace}/{claim} is not bound"))?;
        Ok(self.host.places.volume(&volume.name_any()))
    }

    /// Empties the volume of a claim.
    pub async fn lose_volume(&self, namespace: &str, claim: &str) -> Result<()> {
        let path = self.volume_dir(namespace, claim)?;
        let said = || format!("emptying {}", path.display());
        for entry in std::fs::read_dir(&path).with_context(said)? {
            let entry = entry.with_context(said)?;
            let is_dir = entry.file_type().with_context(said)?.is_dir();
            let gone = if is_dir { std::fs::remove_dir_all(entry.path()) } else { std::fs::remove_file(entry.path()) };
            gone.with_context(said)?;
        }
        Ok(())
    }

    /// Waits until a pod is Ready, as the API server has it.
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
                    self.how(namespace, pod, found.as_ref())
                );
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// How a pod stands, with the last words of its containers.
    fn how(&self, namespace: &str, name: &str, pod: Option<&Pod>) -> String {
        let Some(pod) = pod else { return "there is no such pod".to_owned() };
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

/// Whether a pod is Ready and not leaving.
fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none() && conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// What a cluster has at fixed addresses: the API server and DNS, on both sides of the switch.
fn services(plane: &ControlPlane, fabric: &Fabric, tasks: &mut JoinSet<()>) -> Result<()> {
    let server = plane.server().strip_prefix("https://").unwrap_or_default();
    let server: SocketAddr = server.parse().with_context(|| format!("the API server's address {}", plane.server()))?;
    let changed = watch::Sender::new(());
    let services = observe(KubeApi::all(plane.client()), &changed, tasks);
    let slices = observe(KubeApi::all(plane.client()), &changed, tasks);
    for side in &fabric.services {
        tasks.spawn(forward(listen(side, &format!("{API_ADDRESS}:443"))?, server));
        tasks.spawn(dns::serve(receive(side, &format!("{DNS_ADDRESS}:53"))?, services.clone(), slices.clone()));
    }
    Ok(())
}
