//! The files `/etc/hostname`, `/etc/hosts` and `/etc/resolv.conf` of a pod, as a kubelet writes them.

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::ResourceExt;

use crate::environment::PodLocation;
use crate::network::DNS_ADDRESS;
use crate::zone::DOMAIN;

/// Returns a pod's host name; with host networking it is the node's.
pub(crate) fn hostname(pod: &Pod, node: &str) -> String {
    let spec = pod.spec.as_ref();
    if spec.and_then(|s| s.host_network) == Some(true) {
        return node.to_owned();
    }
    let mut name = spec.and_then(|s| s.hostname.clone()).unwrap_or_else(|| pod.name_any());
    // The kernel allows 64 characters, Kubernetes 63.
    name.truncate(63);
    name
}

/// Returns the files below `/etc`, with their content.
pub(crate) fn files(pod: &Pod, location: &PodLocation) -> Vec<(&'static str, String)> {
    let name = hostname(pod, &location.node);
    let namespace = pod.namespace().unwrap_or_default();
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let on_host = spec.host_network == Some(true);
    let mut hosts = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n".to_owned();
    let full = match &spec.subdomain {
        Some(subdomain) if !on_host => format!("{name}.{subdomain}.{namespace}.svc.{DOMAIN}\t{name}"),
        _ => name.clone(),
    };
    hosts += &format!("{}\t{full}\n", location.pod_address);
    for alias in spec.host_aliases.iter().flatten() {
        hosts += &format!("{}\t{}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join("\t"));
    }
    let uses_cluster_dns = match spec.dns_policy.as_deref() {
        Some("ClusterFirstWithHostNet") => true,
        Some("Default" | "None") => false,
        _ => !on_host,
    };
    let resolver = if uses_cluster_dns {
        format!("search {namespace}.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\nnameserver {DNS_ADDRESS}\noptions ndots:5\n")
    } else {
        // The node's resolver does not know the cluster's names, and here nothing else can be resolved.
        "nameserver 127.0.0.1\n".to_owned()
    };
    vec![("hostname", format!("{name}\n")), ("hosts", hosts), ("resolv.conf", resolver)]
}
