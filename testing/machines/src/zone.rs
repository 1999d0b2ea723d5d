//! The data of the cluster's DNS: names of Services and of the pods behind headless Services.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use std::sync::Arc;

/// The cluster domain.
pub(crate) const DOMAIN: &str = "cluster.local";

/// The label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The cached Services and their endpoints.
pub(crate) struct Zone {
    pub(crate) services: Vec<Arc<Service>>,
    pub(crate) slices: Vec<Arc<EndpointSlice>>,
}

impl Zone {
    /// Returns the addresses of a name without the trailing dot; none if the name does not exist.
    pub(crate) fn addresses(&self, name: &str) -> Option<BTreeSet<Ipv4Addr>> {
        let name = name.to_ascii_lowercase();
        let rest = name.strip_suffix(DOMAIN)?.strip_suffix(".svc.")?;
        let labels: Vec<&str> = rest.split('.').collect();
        let found = match labels[..] {
            [service, namespace] => self.of_service(namespace, service)?,
            [host, service, namespace] => {
                self.endpoints(namespace, service).filter(|(e, a)| host_of(e, *a) == host).map(|(_, a)| a).collect()
            }
            _ => return None,
        };
        (!found.is_empty()).then_some(found)
    }

    fn of_service(&self, namespace: &str, name: &str) -> Option<BTreeSet<Ipv4Addr>> {
        let is_it = |s: &&Arc<Service>| s.name_any() == name && s.namespace().as_deref() == Some(namespace);
        let service = self.services.iter().find(is_it)?;
        match service.spec.as_ref()?.cluster_ip.as_deref() {
            None | Some("" | "None") => Some(self.endpoints(namespace, name).map(|(_, address)| address).collect()),
            Some(address) => Some(address.parse().into_iter().collect()),
        }
    }

    /// Returns the name of an address: of a pod behind a headless Service, or of a Service.
    pub(crate) fn name(&self, address: Ipv4Addr) -> Option<String> {
        let text = address.to_string();
        let full = |service: &Service| {
            format!("{}.{}.svc.{DOMAIN}", service.name_any(), service.namespace().unwrap_or_default())
        };
        for service in &self.services {
            let (name, namespace) = (service.name_any(), service.namespace().unwrap_or_default());
            let cluster_ip = service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref());
            if cluster_ip == Some(&text) {
                return Some(full(service));
            }
            if cluster_ip == Some("None")
                && let Some((endpoint, _)) = self.endpoints(&namespace, &name).find(|(_, a)| *a == address)
            {
                return Some(format!("{}.{}", host_of(endpoint, address), full(service)));
            }
        }
        None
    }

    /// Returns the ready endpoints. The controller reports them all as ready if the Service publishes unready
    /// addresses.
    fn endpoints(&self, namespace: &str, service: &str) -> impl Iterator<Item = (&Endpoint, Ipv4Addr)> {
        let of_service = move |slice: &&Arc<EndpointSlice>| {
            slice.namespace().as_deref() == Some(namespace)
                && slice.labels().get(SERVICE_NAME).map(String::as_str) == Some(service)
        };
        let ready = |e: &&Endpoint| e.conditions.as_ref().and_then(|c| c.ready).unwrap_or(true);
        self.slices
            .iter()
            .filter(of_service)
            .flat_map(move |slice| slice.endpoints.iter().flatten().filter(ready))
            .flat_map(|endpoint| endpoint.addresses.iter().filter_map(move |a| Some((endpoint, a.parse().ok()?))))
    }
}

/// Returns the endpoint's host name, or its address with dashes.
fn host_of(endpoint: &Endpoint, address: Ipv4Addr) -> String {
    endpoint.hostname.clone().unwrap_or_else(|| address.to_string().replace('.', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn zone() -> Zone {
        let service = |name: &str, ip: &str| {
            let object = json!({ "metadata": { "name": name, "namespace": "ns" }, "spec": { "clusterIP": ip } });
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let slice = json!({
            "metadata": { "name": "db-x", "namespace": "ns", "labels": { SERVICE_NAME: "db" } },
            "addressType": "IPv4",
            "endpoints": [
                { "addresses": ["10.2.0.1"], "hostname": "db-0", "conditions": { "ready": true } },
                { "addresses": ["10.2.0.2"], "hostname": "db-1", "conditions": { "ready": false } },
                { "addresses": ["10.2.0.3"] },
            ],
        });
        let slices = vec![Arc::new(serde_json::from_value(slice).unwrap())];
        Zone { services: vec![service("db", "None"), service("web", "10.96.1.1"), service("none", "None")], slices }
    }

    #[test]
    fn names_resolve_to_addresses() {
        for (name, expected) in [
            ("db.ns.svc.cluster.local", "10.2.0.1 10.2.0.3"),
            ("DB-0.db.ns.svc.cluster.local", "10.2.0.1"),
            ("10-2-0-3.db.ns.svc.cluster.local", "10.2.0.3"),
            ("web.ns.svc.cluster.local", "10.96.1.1"),
            ("db-1.db.ns.svc.cluster.local", "-"),
            ("none.ns.svc.cluster.local", "-"),
            ("db.other.svc.cluster.local", "-"),
            ("example.org", "-"),
        ] {
            let found = zone().addresses(name).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>());
            assert_eq!(found.map_or("-".to_owned(), |all| all.join(" ")), expected, "{name}");
        }
    }

    #[test]
    fn addresses_resolve_to_names() {
        for (address, expected) in [
            ("10.2.0.1", Some("db-0.db.ns.svc.cluster.local")),
            ("10.2.0.2", None),
            ("10.2.0.3", Some("10-2-0-3.db.ns.svc.cluster.local")),
            ("10.96.1.1", Some("web.ns.svc.cluster.local")),
        ] {
            assert_eq!(zone().name(address.parse().unwrap()).as_deref(), expected, "{address}");
        }
    }
}
