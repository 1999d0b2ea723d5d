//! How long a recovery will take: by the forecast that `stead explain` makes of the same way out.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use stead_explain::Objects;
use stead_explain::outage::{Clock, Way, controllers_since, explain_node};

use super::Desk;

/// The lease that says since when the controllers run, and with it when the pod collector looks.
const CONTROLLERS: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

/// When each pod of the node, by namespace and name, would be Ready again if the taint came now.
pub(super) async fn foreseen(desk: &Desk<'_>, node: &str, objects: &Objects) -> BTreeMap<String, Timestamp> {
    let mut clock = Clock::at(desk.now());
    // Whoever may not read it, or has no such lease, gets the time that is to be expected.
    let lease = desk.server.get(CONTROLLERS).await.ok().flatten();
    clock.timers.controllers_since = controllers_since(&Objects::from_items(lease));
    // A cluster that cannot be understood has no plan either, which says why.
    let explained = explain_node(objects, node, &BTreeSet::new(), &clock).ok().flatten();
    let ways = explained.map(|explained| explained.forecast).unwrap_or_default();
    let pods = ways.into_iter().filter(|f| f.way == Way::OutOfService).flat_map(|f| f.pods);
    pods.filter_map(|pod| Some((pod.pod, pod.ready_at?))).collect()
}
