//! The defaults of Services and EndpointSlices, and the addresses and ports that a Service gets.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{ClientIPConfig, Service, ServicePort, ServiceSpec, SessionAffinityConfig};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::set;
use crate::store::Store;

/// The addresses of Services: those of kubeadm, `10.96.0.0/12`, without the part that is kept for fixed ones.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 96, 1, 1]);
/// The first node port.
const FIRST_NODE_PORT: i32 = 30_000;
/// The last node port.
const LAST_NODE_PORT: i32 = 32_767;

pub(super) fn service(service: &mut Service) {
    let spec = service.spec.get_or_insert_default();
    set(&mut spec.session_affinity, "None");
    match spec.session_affinity.as_deref() {
        Some("ClientIP") => {
            let timeout =
                spec.session_affinity_config.as_ref().and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
            if timeout.is_none() {
                let client_ip = Some(ClientIPConfig { timeout_seconds: Some(10_800) });
                spec.session_affinity_config = Some(SessionAffinityConfig { client_ip });
            }
        }
        Some("None") => spec.session_affinity_config = None,
        _ => {}
    }
    set(&mut spec.type_, "ClusterIP");
    for port in spec.ports.iter_mut().flatten() {
        set(&mut port.protocol, "TCP");
        let missing = match &port.target_port {
            None | Some(IntOrString::Int(0)) => true,
            Some(IntOrString::String(name)) => name.is_empty(),
            Some(IntOrString::Int(_)) => false,
        };
        if missing {
            port.target_port = Some(IntOrString::Int(port.port));
        }
    }
    let external_ips = spec.external_ips.as_ref().is_some_and(|ips| !ips.is_empty());
    let kind = spec.type_.as_deref().unwrap_or_default();
    if matches!(kind, "NodePort" | "LoadBalancer") || (kind == "ClusterIP" && external_ips) {
        set(&mut spec.external_traffic_policy, "Cluster");
    }
    if kind != "ExternalName" {
        set(&mut spec.internal_traffic_policy, "Cluster");
    }
    if kind == "LoadBalancer" {
        spec.allocate_load_balancer_node_ports.get_or_insert(true);
    }
    // The first of the addresses and the single one are the same.
    if spec.cluster_ips.as_ref().is_none_or(Vec::is_empty)
        && let Some(ip) = spec.cluster_ip.clone().filter(|ip| !ip.is_empty())
    {
        spec.cluster_ips = Some(vec![ip]);
    }
}

pub(super) fn endpoint_slice(slice: &mut EndpointSlice) {
    for port in slice.ports.iter_mut().flatten() {
        port.name.get_or_insert_default();
        port.protocol.get_or_insert_with(|| "TCP".into());
    }
}

/// Gives a Service the addresses and node ports that it lacks. One that is changed keeps its own. The cluster has only
/// IPv4. Kubernetes chooses them by chance, the simulation takes the lowest free ones.
pub(in crate::api) fn allocate(service: &mut Service, before: Option<&Service>, store: &Store) {
    let spec = service.spec.get_or_insert_default();
    let old = before.and_then(|before| before.spec.as_ref());
    let kind = spec.type_.clone().unwrap_or_default();
    if let Some(old) = old {
        keep_allocated(spec, old);
    }
    if kind == "ExternalName" {
        return;
    }
    let headless = spec.cluster_ip.as_deref() == Some("None");
    let no_selector = spec.selector.as_ref().is_none_or(|selector| selector.is_empty());
    let policy = if headless && no_selector { "RequireDualStack" } else { "SingleStack" };
    spec.ip_family_policy.get_or_insert_with(|| policy.into());
    if spec.ip_families.as_ref().is_none_or(Vec::is_empty) {
        let both = headless && no_selector && spec.ip_family_policy.as_deref() != Some("SingleStack");
        let families = if both { &["IPv4", "IPv6"][..] } else { &["IPv4"] };
        spec.ip_families = Some(families.iter().map(|&family| family.to_owned()).collect());
    }
    if spec.cluster_ip.as_ref().is_none_or(String::is_empty) {
        let ip = free_address(store).to_string();
        spec.cluster_ips = Some(vec![ip.clone()]);
        spec.cluster_ip = Some(ip);
    }
    let wants_ports =
        kind == "NodePort" || (kind == "LoadBalancer" && spec.allocate_load_balancer_node_ports.unwrap_or(true));
    if wants_ports {
        allocate_node_ports(spec, store);
    }
}

/// Keeps what was allocated before and is not named in an update (`patchAllocatedValues`).
fn keep_allocated(spec: &mut ServiceSpec, old: &ServiceSpec) {
    let has_address = |spec: &ServiceSpec| spec.type_.as_deref() != Some("ExternalName");
    if has_address(spec) && has_address(old) && spec.cluster_ip.as_ref().is_none_or(String::is_empty) {
        spec.cluster_ip.clone_from(&old.cluster_ip);
        spec.cluster_ips.clone_from(&old.cluster_ips);
    }
    if has_address(spec) && has_address(old) {
        spec.ip_family_policy = spec.ip_family_policy.take().or_else(|| old.ip_family_policy.clone());
        spec.ip_families = spec.ip_families.take().or_else(|| old.ip_families.clone());
    }
    let has_ports = |spec: &ServiceSpec| matches!(spec.type_.as_deref(), Some("NodePort" | "LoadBalancer"));
    if has_ports(spec) && has_ports(old) {
        for port in spec.ports.iter_mut().flatten().filter(|port| port.node_port.unwrap_or(0) == 0) {
            let same = |other: &&ServicePort| other.port == port.port && other.protocol == port.protocol;
            port.node_port = old.ports.iter().flatten().find(same).and_then(|other| other.node_port);
        }
    }
}

fn free_address(store: &Store) -> Ipv4Addr {
    let services = store.all::<Service>();
    let used: BTreeSet<u32> = services
        .filter_map(|service| service.spec.as_ref()?.cluster_ip.as_ref()?.parse::<Ipv4Addr>().ok())
        .map(u32::from)
        .collect();
    let free = (FIRST_ADDRESS..).find(|address| !used.contains(address));
    Ipv4Addr::from(free.unwrap_or(FIRST_ADDRESS))
}

fn allocate_node_ports(spec: &mut ServiceSpec, store: &Store) {
    let services = store.all::<Service>().filter_map(|service| service.spec.as_ref());
    let mut used: BTreeSet<i32> =
        services.flat_map(|spec| spec.ports.iter().flatten()).filter_map(|port| port.node_port).collect();
    used.extend(spec.ports.iter().flatten().filter_map(|port| port.node_port));
    for port in spec.ports.iter_mut().flatten().filter(|port| port.node_port.unwrap_or(0) == 0) {
        port.node_port = (FIRST_NODE_PORT..=LAST_NODE_PORT).find(|port| !used.contains(port));
        used.extend(port.node_port);
    }
}
