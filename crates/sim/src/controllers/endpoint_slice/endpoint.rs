//! The endpoint of a pod (`k8s.io/endpointslice/utils.go`).

use k8s_openapi::api::core::v1::{Container, Node, ObjectReference, Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, ForNode, ForZone};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::slices::Family;
use crate::pods;

/// The label with the zone of a node.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Whether a pod can be reached: it has an address and has not ended (`ShouldPodBeInEndpoints`).
pub(super) fn has_address(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let one = status.and_then(|status| status.pod_ip.as_ref()).is_some_and(|ip| !ip.is_empty());
    let several = status.and_then(|status| status.pod_ips.as_ref()).is_some_and(|ips| !ips.is_empty());
    !pods::has_ended(pod) && (one || several)
}

/// The endpoint of a pod; none if it has no address of this family (`podToEndpoint`).
pub(super) fn endpoint(pod: &Pod, node: Option<&Node>, service: &Service, family: Family) -> Option<Endpoint> {
    let ips = pod.status.as_ref()?.pod_ips.iter().flatten().map(|ip| ip.ip.clone());
    let addresses: Vec<String> = ips.filter(|ip| family.includes(ip)).collect();
    if addresses.is_empty() {
        return None;
    }
    let spec = service.spec.as_ref()?;
    let (serving, terminating) = (pods::is_ready(pod), pods::is_terminating(pod));
    let ready = spec.publish_not_ready_addresses == Some(true) || (serving && !terminating);
    let node_name = pods::node_of(pod).map(str::to_owned);
    let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE)).filter(|zone| !zone.is_empty()).cloned();
    Some(Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hints: if ready { hints(spec, zone.as_deref(), node_name.as_deref()) } else { None },
        hostname: hostname(pod, service),
        node_name,
        target_ref: Some(ObjectReference {
            kind: Some("Pod".into()),
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        zone,
        ..Endpoint::default()
    })
}

/// The name of a pod in the domain of the Service, if that is its own (`ShouldSetHostname`).
fn hostname(pod: &Pod, service: &Service) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let name = spec.hostname.clone().filter(|name| !name.is_empty())?;
    (spec.subdomain == service.metadata.name && pod.metadata.namespace == service.metadata.namespace).then_some(name)
}

/// Who should use an endpoint, where the Service prefers near ones (`trafficdist`).
fn hints(spec: &ServiceSpec, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    let same_node = match spec.traffic_distribution.as_deref() {
        Some("PreferClose" | "PreferSameZone") => false,
        Some("PreferSameNode") => true,
        _ => return None,
    };
    let for_zones = zone.map(|name| vec![ForZone { name: name.to_owned() }]);
    let for_nodes = node.filter(|_| same_node).map(|name| vec![ForNode { name: name.to_owned() }]);
    (for_zones.is_some() || for_nodes.is_some()).then_some(EndpointHints { for_nodes, for_zones })
}

/// The ports of a Service at a pod (`getEndpointPorts`). Those that the pod does not have are left out.
pub(super) fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    let ports = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(find_port(pod, port)?),
            protocol: port.protocol.clone().or_else(|| Some("TCP".into())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    let mut ports: Vec<EndpointPort> = ports.collect();
    ports.sort_by_key(port_key);
    ports
}

/// What distinguishes ports.
pub(super) fn port_key(port: &EndpointPort) -> (String, i32, String, String) {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (text(&port.name), port.port.unwrap_or(0), text(&port.protocol), text(&port.app_protocol))
}

/// The number of a port, which may be a name of the pod's (`FindPort`).
fn find_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let name = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".into());
    let mut found = ports.filter(|other| {
        other.name.as_ref() == Some(name) && protocol(&other.protocol) == protocol(&port.protocol)
    });
    found.next().map(|port| port.container_port)
}
