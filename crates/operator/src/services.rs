//! Observes the services that use a Topology, in companion mode: the metrics say where their pods are and which are stuck.
//!
//! The whole cluster is read for it, with the permissions that verified fixes need anyway. Where these are missing (an
//! installation for some namespaces), there are no such metrics.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use stead_explain::outage::{Clock, ClusterTimers};
use stead_explain::topology::{ServiceStatus, service_status};
use stead_loops::Objects;
use stead_model::placement_kinds;
use tracing::debug;

use crate::api::Api;
use crate::cluster::Reader;
use crate::shared::Shared;

/// How often services are observed.
const INTERVAL: Duration = Duration::from_secs(60);

/// Observes the services again and again, while this process leads.
pub(crate) async fn keep(api: impl Api, shared: Arc<Shared>) {
    loop {
        if shared.leadership.leads() && shared.is_synced() && shared.is_foreign("Topology") {
            // Not kept between two observations: it may be large.
            match Reader::default().read(&api, &shared).await {
                Some(objects) => shared.metrics.services(&observe(&objects), Timestamp::now()),
                None => debug!("the cluster could not be read: services are not observed"),
            }
        } else {
            // Only one replica reports, so that sums over all replicas are right.
            shared.metrics.no_services();
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn observe(objects: &Objects) -> Vec<ServiceStatus> {
    let kinds: BTreeSet<String> = placement_kinds().map(|kind| kind.kind.to_owned()).collect();
    let clock = Clock::new(objects, Timestamp::now(), ClusterTimers::of(objects).timers);
    service_status(objects, &kinds, &clock)
}
