//! When the replacement pods of a plan will be Ready.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use stead_explain::outage::{Clock, ClusterTimers, Timers, controllers_since, forecast_release};
use stead_model::{ObjectKey, Objects};
use stead_recovery::{PlannedPod, RecoveryPlan, ReplacementTarget};

use super::Call;
use super::look::named;

/// The Lease that says since when the controllers run, and so when the pod garbage collector runs.
const CONTROLLERS: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager";

/// Events that show how long pods took to start once they had their volumes.
const ATTACHED: &str = "/api/v1/events?fieldSelector=reason%3DSuccessfulAttachVolume";

/// Objects that make a forecast better. Without permission to read them, it uses average times.
pub(super) async fn hints(call: &Call<'_>) -> Vec<Value> {
    let lease = call.server.get(CONTROLLERS).await.ok().flatten();
    let events = call.server.list(ATTACHED).await.unwrap_or_default();
    let settings = stead_live::control_plane(&call.client).await.settings;
    lease.into_iter().chain(named(events, "v1", "Event")).chain(settings).collect()
}

/// When each planned pod will be Ready again.
#[derive(Debug, Default)]
pub(super) struct ReadyTimes(BTreeMap<ObjectKey, Timestamp>);

impl ReadyTimes {
    /// When the replacement of a planned pod will be Ready; none if it will not, or if that is unknown.
    pub(super) fn of(&self, pod: &PlannedPod) -> Option<Timestamp> {
        self.0.get(&ObjectKey::pod(&pod.namespace, &pod.name)).copied()
    }
}

/// When the planned pods will be Ready again if the taint is applied now, each on the node that the plan has for it.
pub(super) fn forecast(objects: &Objects, node: &str, plan: &RecoveryPlan, now: Timestamp) -> ReadyTimes {
    let timers = Timers { controllers_since: controllers_since(objects), ..ClusterTimers::of(objects).timers };
    // Heartbeats are held against the server's clock, not against the newest of the other leases.
    let clock = Clock::new(&Objects::default(), now, timers);
    let placed = plan.pods.iter().filter(|pod| !pod.released_earlier).filter_map(|pod| match &pod.target {
        ReplacementTarget::Nodes(nodes) => Some((ObjectKey::pod(&pod.namespace, &pod.name), nodes.first()?.clone())),
        ReplacementTarget::NoNode(_) | ReplacementTarget::NotRecreated => None,
    });
    // A malformed object is reported by the step; the plan is shown without times then.
    ReadyTimes(forecast_release(objects, node, &clock, &placed.collect::<Vec<_>>()).unwrap_or_default())
}
