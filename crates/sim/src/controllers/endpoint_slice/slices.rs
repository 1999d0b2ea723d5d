//! The slices of a Service (`k8s.io/endpointslice/reconciler.go`). Where Kubernetes takes endpoints in the order of a
//! hash map, they come by the names of their pods here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::endpoint::{endpoint, port_key, ports};
use super::{MANAGED_BY, MANAGER, SERVICE_NAME};
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::step::{DeleteOptions, Write};

/// The label of slices of a Service without an address.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// `--max-endpoints-per-slice`.
const MAX_ENDPOINTS: usize = 100;

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    IPv4,
    IPv6,
}

impl Family {
    /// The families of a Service (`getAddressTypesForService`).
    pub(super) fn of(service: &Service) -> Vec<Family> {
        let spec = service.spec.as_ref();
        let families = spec.iter().flat_map(|spec| spec.ip_families.iter().flatten());
        let mut found: Vec<Family> =
            families.map(|name| if name == "IPv6" { Family::IPv6 } else { Family::IPv4 }).collect();
        if found.is_empty() {
            let ip = spec.and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
            found = match ip {
                "" | "None" => vec![Family::IPv4, Family::IPv6],
                ip => vec![if ip.contains(':') { Family::IPv6 } else { Family::IPv4 }],
            };
        }
        found
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Family::IPv4 => "IPv4",
            Family::IPv6 => "IPv6",
        }
    }

    pub(super) fn includes(self, address: &str) -> bool {
        address.contains(':') == (self == Family::IPv6)
    }
}

/// What identifies an endpoint (`hashEndpoint`): the pod, its addresses and its name in the domain of the Service.
type Identity = (String, Vec<String>, String);

fn identity(endpoint: &Endpoint) -> Identity {
    let target = endpoint.target_ref.as_ref().and_then(|target| target.name.clone()).unwrap_or_default();
    (target, endpoint.addresses.clone(), endpoint.hostname.clone().unwrap_or_default())
}

/// Slices with the same ports.
#[derive(Default)]
struct PortGroup {
    ports: Vec<EndpointPort>,
    /// The endpoints that are not in a slice yet.
    wanted: BTreeMap<Identity, Endpoint>,
}

/// What to do with the slices of a Service.
#[derive(Default)]
struct Plan {
    create: Vec<EndpointSlice>,
    update: Vec<EndpointSlice>,
    delete: Vec<EndpointSlice>,
}

/// The writes that make the slices of a Service right, for one family of addresses (`reconcileByAddressType`).
pub(super) fn reconcile(
    service: &Service,
    family: Family,
    pods: &[(&Pod, Option<&Node>)],
    existing: &[&EndpointSlice],
) -> Vec<Write> {
    let key = |ports: &[EndpointPort]| ports.iter().map(port_key).collect::<Vec<_>>();
    let mut groups: BTreeMap<Vec<_>, PortGroup> = BTreeMap::new();
    for (pod, node) in pods {
        let ports = ports(service, pod);
        let group = groups.entry(key(&ports)).or_insert_with(|| PortGroup { ports, ..PortGroup::default() });
        group.wanted.extend(endpoint(pod, *node, service, family).map(|endpoint| (identity(&endpoint), endpoint)));
    }
    let mut plan = Plan::default();
    let sorted = |slice: &EndpointSlice| {
        let mut keys = key(slice.ports.as_deref().unwrap_or_default());
        keys.sort();
        keys
    };
    for (ports, group) in &mut groups {
        let same: Vec<&EndpointSlice> = existing.iter().copied().filter(|slice| sorted(slice) == *ports).collect();
        plan.add_group(service, family, group, &same);
    }
    let unused = existing.iter().filter(|slice| !groups.contains_key(&sorted(slice)));
    plan.delete.extend(unused.map(|slice| EndpointSlice::clone(slice)));
    if plan.create.is_empty() && plan.delete.len() == existing.len() {
        plan.keep_one(service, family);
    }
    plan.into_writes(service)
}

impl Plan {
    /// Puts endpoints with the same ports into slices (`reconcileByPortMapping`): those that are in one stay there, others
    /// fill slices that change anyway, then the unchanged one that they fill best, then new ones.
    fn add_group(&mut self, service: &Service, family: Family, group: &mut PortGroup, existing: &[&EndpointSlice]) {
        let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
        for slice in existing {
            let old = slice.endpoints.as_deref().unwrap_or_default();
            let kept: Vec<Endpoint> =
                old.iter().filter_map(|endpoint| group.wanted.remove(&identity(endpoint))).collect();
            let labels = labels(service);
            let same = kept == old;
            let relabelled = slice.metadata.labels.as_ref() != Some(&labels);
            let mut slice = EndpointSlice::clone(slice);
            if !same && kept.is_empty() {
                self.delete.push(slice);
            } else if !same || relabelled {
                slice.endpoints = Some(kept);
                slice.metadata.labels = Some(labels);
                changed.push(slice);
            } else {
                unchanged.push(slice);
            }
        }
        let size = |slice: &EndpointSlice| slice.endpoints.as_ref().map_or(0, Vec::len);
        changed.sort_by_key(|slice| std::cmp::Reverse(size(slice)));
        changed.iter_mut().for_each(|slice| fill(slice, &mut group.wanted));
        while !group.wanted.is_empty() {
            let wanted = group.wanted.len();
            // The slice that has room for all of them and the least room left.
            let best = (0..unchanged.len())
                .filter(|at| wanted < MAX_ENDPOINTS && size(&unchanged[*at]) + wanted <= MAX_ENDPOINTS)
                .max_by_key(|at| (size(&unchanged[*at]), std::cmp::Reverse(*at)));
            match best.map(|at| unchanged.remove(at)) {
                Some(mut slice) => {
                    fill(&mut slice, &mut group.wanted);
                    changed.push(slice);
                }
                None => {
                    let mut slice = new_slice(service, family, group.ports.clone());
                    fill(&mut slice, &mut group.wanted);
                    self.create.push(slice);
                }
            }
        }
        self.update.extend(changed);
    }

    /// A Service without endpoints has one slice without ports.
    fn keep_one(&mut self, service: &Service, family: Family) {
        let placeholder = new_slice(service, family, Vec::new());
        let is_one = |slice: &EndpointSlice| {
            slice.endpoints.as_ref().is_none_or(Vec::is_empty)
                && slice.ports.as_ref().is_none_or(Vec::is_empty)
                && slice.metadata.labels == placeholder.metadata.labels
        };
        match &self.delete[..] {
            [only] if is_one(only) => self.delete.clear(),
            _ => self.create.push(placeholder),
        }
    }

    /// The writes (`finalize`). A slice that is not needed any more is used for a new one.
    fn into_writes(mut self, service: &Service) -> Vec<Write> {
        while !self.create.is_empty() && !self.delete.is_empty() {
            let (old, new) = (self.delete.remove(0), self.create.pop());
            self.update.extend(new.map(|new| {
                let metadata = ObjectMeta { labels: new.metadata.labels.clone(), ..old.metadata.clone() };
                EndpointSlice { metadata, ..new }
            }));
        }
        if service.metadata.deletion_timestamp.is_some() {
            self.create.clear();
        }
        let created = self.create.into_iter().map(|slice| Write::Create(SimObject::from(slice)));
        let updated = self.update.into_iter().map(|slice| Write::Replace(SimObject::from(slice)));
        let deleted = self.delete.iter().map(delete);
        created.chain(updated).chain(deleted).collect()
    }
}

/// Deletes a slice.
pub(super) fn delete(slice: &EndpointSlice) -> Write {
    Write::Delete(SimKey::of(ObjectKind::EndpointSlice, &slice.metadata), DeleteOptions::default())
}

fn fill(slice: &mut EndpointSlice, wanted: &mut BTreeMap<Identity, Endpoint>) {
    let endpoints = slice.endpoints.get_or_insert_default();
    let room = MAX_ENDPOINTS.saturating_sub(endpoints.len());
    endpoints.extend(std::iter::from_fn(|| wanted.pop_first()).take(room).map(|(_, endpoint)| endpoint));
}

fn new_slice(service: &Service, family: Family, ports: Vec<EndpointPort>) -> EndpointSlice {
    let name = service.metadata.name.clone().unwrap_or_default();
    EndpointSlice {
        address_type: family.name().into(),
        endpoints: Some(Vec::new()),
        ports: Some(ports),
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels(service)),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Service".into(),
                name,
                uid: service.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
    }
}

/// The labels of a slice: those of the Service, and its own (`setEndpointSliceLabels`).
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    labels.remove(HEADLESS);
    if matches!(ip, "" | "None") {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(SERVICE_NAME.into(), service.metadata.name.clone().unwrap_or_default());
    labels.insert(MANAGED_BY.into(), MANAGER.into());
    labels
}
