//! The EndpointSlice controller (`pkg/controller/endpointslice`): the pods behind each Service that has a selector.
//!
//! Not modelled: the annotation `endpoints.kubernetes.io/last-change-trigger-time`, hints of `topology-mode: Auto`, and
//! the older Endpoints.

mod endpoint;
mod slices;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use stead_semantics::Selector;

use self::slices::Family;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey};
use crate::pod_groups::PodGroups;
use crate::pods;
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;

/// The label with the name of the Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the name of who manages a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The name of this controller in that label.
const MANAGER: &str = "endpointslice-controller.k8s.io";
/// From a change of a slice by somebody else to a look at its Service.
const SLICE_CHANGE_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// The first delay after an error, doubled with each further one.
const RETRY: SignedDuration = SignedDuration::from_secs(1);
/// The longest delay after an error.
const RETRY_MAX: SignedDuration = SignedDuration::from_secs(1000);
/// After so many tries a Service is left alone until something changes.
const MAX_RETRIES: u32 = 15;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointSlices {
    /// The pods of each Service.
    services: PodGroups,
    /// How often the step of a Service failed in a row.
    failures: BTreeMap<SimKey, u32>,
    /// The Service whose slices are being written, and when: its changes are our own.
    writing: Option<(SimKey, Timestamp)>,
}

impl Controller for EndpointSlices {
    const COMPONENT: &'static str = "endpoint-slice-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::Service => {
                let service = change.of::<Service>().1;
                self.services.set_selector(&change.key, service.and_then(|service| selector_of(service)), cx.store);
                if service.is_some() {
                    wakes.now(change.key.clone());
                } else {
                    self.failures.remove(&change.key);
                }
            }
            ObjectKind::Pod => {
                let (before, after) = self.services.pod_changed(change);
                let (changed, relabelled) = what_changed(change);
                let concerned = before.iter().chain(after.iter().filter(|service| !before.contains(service)));
                for service in concerned {
                    let stays = before.contains(service) && after.contains(service);
                    if changed || (relabelled && !stays) {
                        wakes.now(service.clone());
                    }
                }
            }
            ObjectKind::EndpointSlice => {
                let Some(service) = service_of(change) else { return };
                if self.writing.as_ref().is_none_or(|(writing, at)| *writing != service || *at != cx.now) {
                    wakes.after(service, SLICE_CHANGE_DELAY);
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let Some(service) = cx.store.at::<Service>(key).filter(|service| selector_of(service).is_some()) else {
            return Step::none();
        };
        self.writing = Some((key.clone(), cx.now));
        let uid = service.metadata.uid.as_deref().unwrap_or_default();
        let slices = cx.store.all_owned_by::<EndpointSlice>(uid);
        let slices: Vec<&Arc<EndpointSlice>> = slices
            .filter(|slice| label(slice, MANAGED_BY) == Some(MANAGER) && slice.metadata.deletion_timestamp.is_none())
            .collect();
        let (pods, errors) = self.endpoint_pods(cx, key, service);
        let mut writes = Vec::new();
        for family in Family::of(service) {
            let of_family = |slice: &&&Arc<EndpointSlice>| slice.address_type == family.name();
            let existing: Vec<&EndpointSlice> = slices.iter().filter(of_family).map(|slice| &***slice).collect();
            writes.extend(slices::reconcile(service, family, &pods, &existing));
        }
        let other_family = |slice: &&&Arc<EndpointSlice>| {
            !Family::of(service).iter().any(|family| slice.address_type == family.name())
        };
        writes.extend(slices.iter().filter(other_family).map(|slice| slices::delete(slice)));
        if errors.is_empty() {
            self.failures.remove(key);
            return Step::writes(writes);
        }
        let message = format!(
            "Error updating Endpoint Slices for Service {}/{}: {}",
            key.namespace,
            key.name,
            if let [one] = &errors[..] { one.clone() } else { format!("[{}]", errors.join(", ")) }
        );
        writes.push(Write::Event(EventNote::warning(key, "FailedToUpdateEndpointSlices", message)));
        Step { writes, again: self.retry_in(key) }
    }
}

impl EndpointSlices {
    /// The pods that belong into slices, each with its node; and why others do not.
    fn endpoint_pods<'a>(
        &self,
        cx: &Context<'a>,
        key: &SimKey,
        service: &Service,
    ) -> (Vec<(&'a Pod, Option<&'a Node>)>, Vec<String>) {
        let not_ready_too = service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true);
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for pod in self.services.keys(key).filter_map(|pod| cx.store.at::<Pod>(pod)) {
            if !endpoint::has_address(pod) {
                continue;
            }
            let name = pods::node_of(pod).unwrap_or_default();
            let node = cx.store.get::<Node>("", name).map(|node| &**node);
            if node.is_none() && !not_ready_too {
                errors.push(format!(
                    "skipping Pod {} for Service {}/{}: Node {name} Not Found",
                    pod.metadata.name.as_deref().unwrap_or_default(),
                    key.namespace,
                    key.name
                ));
            } else {
                found.push((&**pod, node));
            }
        }
        (found, errors)
    }

    /// When to try again after an error; none after too many.
    fn retry_in(&mut self, key: &SimKey) -> Option<SignedDuration> {
        let failures = self.failures.entry(key.clone()).or_default();
        if *failures >= MAX_RETRIES {
            self.failures.remove(key);
            return None;
        }
        let delay = RETRY.checked_mul(1_i32.checked_shl(*failures).unwrap_or(i32::MAX)).unwrap_or(RETRY_MAX);
        *failures += 1;
        Some(delay.min(RETRY_MAX))
    }
}

fn label<'a>(slice: &'a EndpointSlice, name: &str) -> Option<&'a str> {
    slice.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// The selector of a Service whose slices this controller manages.
fn selector_of(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref().filter(|spec| spec.type_.as_deref() != Some("ExternalName"))?;
    // An empty selector is none in the API.
    spec.selector.as_ref().filter(|selector| !selector.is_empty()).map(Selector::from_set)
}

/// The Service of a slice that this controller manages.
fn service_of(change: &Change) -> Option<SimKey> {
    let (before, after) = change.of::<EndpointSlice>();
    let slice = after.or(before)?;
    let name = label(slice, SERVICE_NAME).filter(|_| label(slice, MANAGED_BY) == Some(MANAGER))?;
    Some(SimKey::new(ObjectKind::Service, &change.key.namespace, name))
}

/// Whether a change of a pod matters to its Services, and whether it may belong to others now (`podEndpointsChanged`).
fn what_changed(change: &Change) -> (bool, bool) {
    let (Some(old), Some(new)) = change.of::<Pod>() else { return (true, true) };
    let host = |pod: &Pod| {
        let spec = pod.spec.as_ref();
        spec.map(|spec| (spec.hostname.clone().unwrap_or_default(), spec.subdomain.clone().unwrap_or_default()))
    };
    let relabelled = old.metadata.labels != new.metadata.labels || host(old) != host(new);
    let addresses = |pod: &Pod| pod.status.as_ref().and_then(|status| status.pod_ips.clone()).unwrap_or_default();
    // Each change of a pod that is being deleted counts: Kubernetes compares pointers.
    let changed = pods::is_terminating(new)
        || pods::is_terminating(old)
        || pods::is_ready(old) != pods::is_ready(new)
        || addresses(old) != addresses(new);
    (changed, relabelled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::bench::Bench;
    use crate::object::SimObject;
    use crate::settings::Settings;
    use crate::step::DeleteOptions;
    use serde_json::{Value, json};

    fn object(value: Value) -> SimObject {
        SimObject::from_json(&value).expect("an object")
    }

    fn service(spec: Value) -> SimObject {
        let mut full = json!({ "selector": { "app": "x" }, "type": "ClusterIP", "clusterIP": "10.96.1.1",
            "ipFamilies": ["IPv4"], "ports": [{ "port": 80, "targetPort": 8080, "protocol": "TCP" }] });
        json_patch::merge(&mut full, &spec);
        object(json!({ "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "s", "namespace": "n", "uid": "uid-s", "labels": { "team": "t" } }, "spec": full }))
    }

    fn node() -> SimObject {
        object(json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "a", "labels": { "topology.kubernetes.io/zone": "z1" } } }))
    }

    fn pod(index: usize, ready: bool) -> SimObject {
        object(json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("p{index:03}"), "namespace": "n", "uid": format!("uid-{index}"),
                "labels": { "app": "x" } },
            "spec": { "nodeName": "a", "terminationGracePeriodSeconds": 30, "containers": [{ "name": "c",
                "ports": [{ "name": "web", "containerPort": 9090, "protocol": "TCP" }] }] },
            "status": { "phase": "Running", "podIP": format!("10.0.0.{index}"),
                "podIPs": [{ "ip": format!("10.0.0.{index}") }],
                "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }] } }))
    }

    fn bench(objects: Vec<SimObject>) -> Bench<EndpointSlices> {
        let mut bench = Bench::new(Settings::default(), objects);
        bench.run(5);
        bench
    }

    fn slices(bench: &Bench<EndpointSlices>) -> Vec<Value> {
        bench.store().all::<EndpointSlice>().map(|slice| serde_json::to_value(&**slice).expect("JSON")).collect()
    }

    /// The endpoints of all slices, as `name ready serving terminating`.
    fn endpoints(bench: &Bench<EndpointSlices>) -> Vec<String> {
        let mut found = Vec::new();
        for endpoint in slices(bench).iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default()) {
            let conditions = ["ready", "serving", "terminating"].map(|name| endpoint["conditions"][name].to_string());
            found.push(format!("{} {}", endpoint["targetRef"]["name"].as_str().unwrap_or_default(), conditions.join(" ")));
        }
        found.sort();
        found
    }

    #[test]
    fn a_slice_as_kubernetes_makes_it() {
        let bench = bench(vec![node(), pod(1, true), service(json!({}))]);
        let found = slices(&bench);
        assert_eq!(found.len(), 1);
        let slice = &found[0];
        assert_eq!(slice["addressType"], "IPv4");
        assert_eq!(slice["metadata"]["generateName"], "s-");
        assert_eq!(
            slice["metadata"]["labels"],
            json!({ SERVICE_NAME: "s", MANAGED_BY: MANAGER, "team": "t" })
        );
        assert_eq!(
            slice["metadata"]["ownerReferences"],
            json!([{ "apiVersion": "v1", "kind": "Service", "name": "s", "uid": "uid-s", "controller": true,
                "blockOwnerDeletion": true }])
        );
        assert_eq!(slice["ports"], json!([{ "name": "", "port": 8080, "protocol": "TCP" }]));
        assert_eq!(
            slice["endpoints"],
            json!([{ "addresses": ["10.0.0.1"], "nodeName": "a", "zone": "z1",
                "conditions": { "ready": true, "serving": true, "terminating": false },
                "targetRef": { "kind": "Pod", "namespace": "n", "name": "p001", "uid": "uid-1" } }])
        );
    }

    #[test]
    fn endpoints_follow_their_pods() {
        let mut bench = bench(vec![node(), pod(1, true), pod(2, false), service(json!({}))]);
        assert_eq!(endpoints(&bench), ["p001 true true false", "p002 false false false"]);
        bench.request(Write::Delete(SimKey::pod("n", "p001"), DeleteOptions::default())).expect("deleted");
        bench.run(5);
        assert_eq!(endpoints(&bench), ["p001 false true true", "p002 false false false"]);
        let SimObject::Pod(ended) = pod(2, false) else { return };
        let mut ended = Pod::clone(&ended);
        ended.status.get_or_insert_default().phase = Some("Failed".into());
        bench.request(Write::Status(SimObject::from(ended))).expect("written");
        let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        bench.request(Write::Delete(SimKey::pod("n", "p001"), options)).expect("deleted");
        bench.run(5);
        // A slice stays, without endpoints and ports.
        let found = slices(&bench);
        assert_eq!((found.len(), &found[0]["endpoints"], &found[0]["ports"]), (1, &json!([]), &json!([])));
        assert!(bench.is_at_rest());
    }

    #[test]
    fn specs() {
        let named = json!({ "ports": [{ "name": "http", "port": 80, "targetPort": "web", "protocol": "TCP" }] });
        for (what, spec, pointer, expected) in [
            ("a named port", named, "/ports", json!([{ "name": "http", "port": 9090, "protocol": "TCP" }])),
            (
                "not ready too",
                json!({ "publishNotReadyAddresses": true }),
                "/endpoints/0/conditions",
                json!({ "ready": true, "serving": false, "terminating": false }),
            ),
            ("headless", json!({ "clusterIP": "None" }), "/metadata/labels/service.kubernetes.io~1headless", json!("")),
            ("headless without ports", json!({ "clusterIP": "None", "ports": null }), "/ports", json!([])),
            ("hints only for ready ones", json!({ "trafficDistribution": "PreferClose" }), "/endpoints/0/hints", Value::Null),
        ] {
            let bench = bench(vec![node(), pod(1, false), service(spec)]);
            let found = slices(&bench);
            assert_eq!(found[0].pointer(pointer).cloned().unwrap_or_default(), expected, "{what}");
        }
        for spec in [json!({ "selector": null }), json!({ "type": "ExternalName", "externalName": "x.y" })] {
            assert!(slices(&bench(vec![node(), pod(1, true), service(spec)])).is_empty());
        }
        let close = bench(vec![node(), pod(1, true), service(json!({ "trafficDistribution": "PreferClose" }))]);
        assert_eq!(slices(&close)[0]["endpoints"][0]["hints"], json!({ "forZones": [{ "name": "z1" }] }));
    }

    #[test]
    fn a_slice_has_at_most_a_hundred_endpoints() {
        let mut objects: Vec<SimObject> = (0..150).map(|index| pod(index, true)).collect();
        objects.extend([node(), service(json!({}))]);
        let mut bench = bench(objects);
        let sizes = |bench: &Bench<EndpointSlices>| {
            let mut sizes: Vec<usize> =
                slices(bench).iter().map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len)).collect();
            sizes.sort_unstable();
            sizes
        };
        assert_eq!(sizes(&bench), [50, 100]);
        // New endpoints go into the slice that they fill best.
        (150..170).for_each(|index| bench.request(Write::Create(pod(index, true))).expect("created"));
        let status = |index: usize| {
            let SimObject::Pod(pod) = pod(index, true) else { unreachable!("it is a pod") };
            let mut pod = Pod::clone(&pod);
            pod.metadata.uid = None;
            Write::Status(SimObject::from(pod))
        };
        (150..170).for_each(|index| bench.request(status(index)).expect("written"));
        bench.run(5);
        assert_eq!(sizes(&bench), [70, 100]);
    }

    #[test]
    fn a_pod_whose_node_is_gone_is_skipped_and_tried_again() {
        let mut bench = bench(vec![pod(1, true), service(json!({}))]);
        assert!(endpoints(&bench).is_empty());
        assert_eq!(
            bench.events(),
            ["service n/s FailedToUpdateEndpointSlices: Error updating Endpoint Slices for Service n/s: skipping Pod p001 for \
              Service n/s: Node a Not Found"]
        );
        bench.request(Write::Create(node())).expect("created");
        bench.run(10);
        assert_eq!(endpoints(&bench), ["p001 true true false"]);
        assert!(bench.is_at_rest());
    }

    #[test]
    fn a_slice_that_somebody_changes_is_restored_after_a_second() {
        let mut bench = bench(vec![node(), pod(1, true), service(json!({}))]);
        let slice = bench.store().all::<EndpointSlice>().next().cloned().expect("a slice");
        let key = SimKey::of(ObjectKind::EndpointSlice, &slice.metadata);
        let mut changed = EndpointSlice::clone(&slice);
        changed.endpoints = Some(Vec::new());
        bench.request(Write::Replace(SimObject::from(changed))).expect("replaced");
        bench.run(2);
        assert_eq!(endpoints(&bench), ["p001 true true false"]);
        bench.request(Write::Delete(key, DeleteOptions::default())).expect("deleted");
        bench.run(2);
        assert_eq!(endpoints(&bench), ["p001 true true false"]);
    }
}
