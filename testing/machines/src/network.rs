//! The cluster's network: a switch with two sides, and a bridge on each node for its pods.
//!
//! It is one network, 10.0.0.0/8, in unnamed namespaces without a route to the outside. The switch has two bridges;
//! nodes that are cut off are connected to the second. Each side has a namespace with the addresses of the API server
//! and DNS.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

use crate::enter::Network;
use crate::machines::Api;

/// The Service `kubernetes`: the first address of the API server's `--service-cluster-ip-range`.
pub(crate) const API_ADDRESS: &str = "10.96.0.1";

/// The cluster's DNS, at the usual address.
pub(crate) const DNS_ADDRESS: &str = "10.96.0.10";

/// The network of a cluster.
pub(crate) struct Fabric {
    switch: Network,
    /// The namespaces of the services: for the normal side, and for the nodes that are cut off.
    pub(crate) services: [Network; 2],
    nodes: BTreeMap<String, NodePort>,
    /// The number of pod links created so far.
    pod_links: AtomicU32,
}

struct NodePort {
    network: Network,
    /// The name of the switch's end of its link.
    port: String,
}

impl Fabric {
    /// Creates the switch, the services and these nodes (name, address), all connected.
    pub(crate) fn new(nodes: &[(String, String)]) -> Result<Fabric> {
        let switch = Network::new()?;
        switch.ip("link set lo up\nlink add side0 type bridge\nlink add side1 type bridge\nlink set side0 up\nlink set side1 up\n")?;
        let services = [Network::new()?, Network::new()?];
        for (side, services) in services.iter().enumerate() {
            // The same MAC address on both sides: neighbor tables stay valid when a node changes sides.
            services.ip(&format!(
                "link add eth0 address 02:00:00:00:00:01 type veth peer name services{side} netns {switch}\n\
                 link set lo up\naddr add {API_ADDRESS}/8 dev eth0\naddr add {DNS_ADDRESS}/8 dev eth0\nlink set eth0 up\n",
                switch = switch.path(),
            ))?;
            switch.ip(&format!("link set services{side} master side{side}\nlink set services{side} up\n"))?;
        }
        let mut fabric = Fabric { switch, services, nodes: BTreeMap::new(), pod_links: AtomicU32::new(0) };
        for (index, (name, address)) in nodes.iter().enumerate() {
            let node = fabric.connect_node(index, address).with_context(|| format!("the network of node {name}"))?;
            fabric.nodes.insert(name.clone(), node);
        }
        Ok(fabric)
    }

    fn connect_node(&self, index: usize, address: &str) -> Result<NodePort> {
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

    /// Returns a node's namespace.
    pub(crate) fn node(&self, name: &str) -> Result<Network> {
        Ok(self.port(name)?.network.clone())
    }

    fn port(&self, name: &str) -> Result<&NodePort> {
        self.nodes.get(name).with_context(|| format!("node {name} does not exist"))
    }

    /// Creates a namespace for a pod on a node. It disappears with its last user.
    pub(crate) fn connect_pod(&self, node: &str, address: &str) -> Result<Network> {
        let (network, link) = (Network::new()?, self.pod_links.fetch_add(1, Ordering::Relaxed));
        network.ip(&format!(
            "link set lo up\nlink add eth0 type veth peer name pod{link} netns {node}\n\
             addr add {address}/8 dev eth0\nlink set eth0 up\n",
            node = self.port(node)?.network.path(),
        ))?;
        self.port(node)?.network.ip(&format!("link set pod{link} master bridge0\nlink set pod{link} up\n"))?;
        Ok(network)
    }

    /// Sets a node's link up or down.
    pub(crate) fn set_link(&self, node: &str, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        self.switch.ip(&format!("link set {} {state}\n", self.port(node)?.port))
    }

    /// Moves nodes to the second side, where the services are reachable or not.
    pub(crate) fn cut(&self, nodes: &[&str], api: Api) -> Result<()> {
        let state = if api == Api::Reachable { "up" } else { "down" };
        self.switch.ip(&format!("link set services1 {state}\n"))?;
        let ports: Result<String> =
            nodes.iter().map(|node| Ok(format!("link set {} master side1\n", self.port(node)?.port))).collect();
        self.switch.ip(&ports?)
    }

    /// Moves a node back to the first side.
    pub(crate) fn rejoin(&self, node: &str) -> Result<()> {
        self.switch.ip(&format!("link set {} master side0\n", self.port(node)?.port))
    }

    /// Moves all nodes back to the first side.
    pub(crate) fn rejoin_all(&self) -> Result<()> {
        let ports: String = self.nodes.values().map(|n| format!("link set {} master side0\n", n.port)).collect();
        self.switch.ip(&ports)
    }
}
