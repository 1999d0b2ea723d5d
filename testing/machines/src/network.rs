//! The cluster's network: a switch with two sides, nodes with bridges, pods on these bridges.
//!
//! It is one network, 10.0.0.0/8, in unnamed namespaces without a route to the outside. The switch has two bridges;
//! nodes that are cut off are on the second. Each side has a namespace with the addresses of the cluster's services,
//! for the API server and DNS.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::enter::Network;
use crate::machines::Api;

/// The Service `kubernetes`: the first address of the API server's `--service-cluster-ip-range`.
pub(crate) const API_ADDRESS: &str = "10.96.0.1";

/// The cluster's DNS, where others have it too.
pub(crate) const DNS_ADDRESS: &str = "10.96.0.10";

/// The network of a cluster.
pub(crate) struct Fabric {
    switch: Network,
    /// The services' namespaces: of the side where all is well, and of those that are cut off.
    pub(crate) services: [Network; 2],
    nodes: BTreeMap<String, NodePort>,
    /// Which pods' ends of cables there have been.
    cables: AtomicU32,
}

struct NodePort {
    network: Network,
    /// The name of the switch's end of its cable.
    port: String,
}

impl Fabric {
    /// The switch, the services and these nodes with their addresses, all connected.
    pub(crate) fn new(nodes: &[(String, String)]) -> Result<Fabric> {
        let switch = Network::new()?;
        switch.ip("link set lo up\nlink add side0 type bridge\nlink add side1 type bridge\nlink set side0 up\nlink set side1 up\n")?;
        let services = [Network::new()?, Network::new()?];
        for (side, services) in services.iter().enumerate() {
            // The same hardware address on both sides: neighbours' tables stay true when a node changes sides.
            services.ip(&format!(
                "link add eth0 address 02:00:00:00:00:01 type veth peer name services{side} netns {switch}\n\
                 link set lo up\naddr add {API_ADDRESS}/8 dev eth0\naddr add {DNS_ADDRESS}/8 dev eth0\nlink set eth0 up\n",
                switch = switch.path(),
            ))?;
            switch.ip(&format!("link set services{side} master side{side}\nlink set services{side} up\n"))?;
        }
        let mut fabric = Fabric { switch, services, nodes: BTreeMap::new(), cables: AtomicU32::new(0) };
        for (index, (name, address)) in nodes.iter().enumerate() {
            let node = fabric.plug_node(index, address).with_context(|| format!("the network of node {name}"))?;
            fabric.nodes.insert(name.clone(), node);
        }
        Ok(fabric)
    }

    fn plug_node(&self, index: usize, address: &str) -> Result<NodePort> {
        let (network, port) = (Network::new()?, format!("node{index}"));
        network.ip(&format!(
            "link set lo up\nlink add bridge0 type bridge\n\
             link add eth0 type veth peer name {port} netns {switch}\n\
             link set eth0 master bridge0\nlink set eth0 up\naddr add {address}/8 dev bridge0\nlink set bridge0 up\n",
            switch = self.switch.path(),
        ))?;
        self.switch.ip(&format!("link set {port} master side0\nlink set {port} up\n"))?;
        Ok(NodePort { network, port })
    }

    /// A node's own namespace.
    pub(crate) fn node(&self, name: &str) -> Result<Network> {
        Ok(self.port(name)?.network.clone())
    }

    fn port(&self, name: &str) -> Result<&NodePort> {
        self.nodes.get(name).with_context(|| format!("there is no node {name}"))
    }

    /// A new namespace for a pod on a node. It goes when nothing is in it any more.
    pub(crate) fn plug_pod(&self, node: &str, address: &str) -> Result<Network> {
        let (network, cable) = (Network::new()?, self.cables.fetch_add(1, Ordering::Relaxed));
        network.ip(&format!(
            "link set lo up\nlink add eth0 type veth peer name pod{cable} netns {node}\n\
             addr add {address}/8 dev eth0\nlink set eth0 up\n",
            node = self.port(node)?.network.path(),
        ))?;
        self.port(node)?.network.ip(&format!("link set pod{cable} master bridge0\nlink set pod{cable} up\n"))?;
        Ok(network)
    }

    /// Pulls a node's cable, or plugs it in.
    pub(crate) fn link(&self, node: &str, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        self.switch.ip(&format!("link set {} {state}\n", self.port(node)?.port))
    }

    /// Moves nodes to the other side, where the services can be reached or not.
    pub(crate) fn cut(&self, nodes: &[&str], api: Api) -> Result<()> {
        let state = if api == Api::Reachable { "up" } else { "down" };
        self.switch.ip(&format!("link set services1 {state}\n"))?;
        let ports: Result<String> =
            nodes.iter().map(|node| Ok(format!("link set {} master side1\n", self.port(node)?.port))).collect();
        self.switch.ip(&ports?)
    }

    /// A node is on the first side again.
    pub(crate) fn rejoin(&self, node: &str) -> Result<()> {
        self.switch.ip(&format!("link set {} master side0\n", self.port(node)?.port))
    }

    /// All are on one side again.
    pub(crate) fn mend(&self) -> Result<()> {
        let ports: String = self.nodes.values().map(|n| format!("link set {} master side0\n", n.port)).collect();
        self.switch.ip(&ports)
    }
}
