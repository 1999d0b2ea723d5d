//! How long a recovery will take: by the forecast that `stead explain` makes of the same way out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use stead_explain::outage::{Clock, Way, controllers_since, explain_node};
use stead_model::Objects;

use super::Desk;
use super::look::named;

/// The lease that says since when the controllers run, and with it when the pod collector looks.
const CONTROLLERS: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

/// Events that tell how long pods took to start once they had their volumes.
const ATTACHED: &str = "/api/v1/events?fieldSelector=reason%3DSuccessfulAttachVolume";

/// What makes a forecast better. Whoever may not read it gets the time that is to be expected.
pub(super) async fn hints(desk: &Desk<'_>) -> Vec<Value> {
    let lease = desk.server.get(CONTROLLERS).await.ok().flatten();
    let events = desk.server.list(ATTACHED).await.unwrap_or_default();
    lease.into_iter().chain(named(events, "v1", "Event")).collect()
}

/// When each pod of the node, by namespace and name, would be Ready again if the taint came now.
pub(super) fn foreseen(objects: &Objects, node: &str, now: Timestamp) -> BTreeMap<String, Timestamp> {
    let mut clock = Clock::at(now);
    clock.timers.controllers_since = controllers_since(objects);
    // A cluster that cannot be understood has no plan either, which says why.
    let explained = explain_node(objects, node, &BTreeSet::new(), &clock).ok().flatten();
    let ways = explained.map(|explained| explained.forecast).unwrap_or_default();
    let pods = ways.into_iter().filter(|f| f.way == Way::OutOfService).flat_map(|f| f.pods);
    pods.filter_map(|pod| Some((pod.pod, pod.ready_at?))).collect()
}
