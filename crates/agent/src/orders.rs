//! Orders of the record: repairs of this pod's own state, with glusterd stopped.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use stead_pool::{Order, Repair};
use tracing::{info, warn};

use crate::boot::{others, time};
use crate::cluster::Seen;
use crate::neighbours;
use crate::shared::Shared;

/// How soon an order is tried again that could not be carried out.
const AGAIN: Duration = Duration::from_secs(5);

/// How long bricks may take to end.
const BRICKS: Duration = Duration::from_secs(10);

/// Carries orders out for as long as it is polled.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let mut seen = shared.cluster.seen();
    loop {
        let order = match seen.wait_for(|seen| addressed(&shared, seen).is_some()).await {
            Ok(seen) => addressed(&shared, &seen),
            Err(_) => return,
        };
        let Some(order) = order else { continue };
        info!(order = order.id, "{:?}: {}", order.repair, order.reason);
        shared.set_doing(Some(format!("repair {}: {:?}: {}", order.id, order.repair, order.reason)));
        match carry_out(&shared, &order).await {
            Ok(()) => {
                shared.metrics.repaired(name(&order.repair));
                info!(order = order.id, "done");
            }
            Err(error) => {
                warn!(order = order.id, "{error:#}");
                tokio::time::sleep(AGAIN).await;
            }
        }
        shared.set_doing(None);
        shared.nudge.notify_one();
    }
}

/// The order that this pod has not carried out yet.
fn addressed(shared: &Shared, seen: &Seen) -> Option<Order> {
    let order = seen.record()?.order?;
    let pod = &shared.settings.pod;
    let ours = order.ordinal == pod.ordinal && order.pod == pod.uid;
    (ours && shared.state.done(&pod.uid).is_none_or(|done| done < order.id)).then_some(order)
}

async fn carry_out(shared: &Arc<Shared>, order: &Order) -> Result<()> {
    shared.daemon.stop().await;
    let repaired = repair(shared, order).await;
    if repaired.is_ok() {
        if shared.state.read(&shared.host()).volumes.is_empty() {
            // Bricks outlive their glusterd, but one that has lost their volumes does not learn their ports again, and
            // no client would find them. It starts them anew when the volumes have come back from the others.
            shared.children.end_orphans(BRICKS).await;
        }
        shared.state.set_done(order.id, &shared.settings.pod.uid)?;
    }
    shared.daemon.start();
    repaired
}

async fn repair(shared: &Arc<Shared>, order: &Order) -> Result<()> {
    match order.repair {
        Repair::ResyncVolumes => shared.state.forget_volumes(&time()),
        Repair::Forget => shared.state.forget(&time()),
        Repair::RestoreIdentity => {
            let seen = shared.cluster.seen().borrow().clone();
            let wanted = shared.cluster.wanted().context("the StatefulSet is not known")?;
            let record = seen.record().context("the record is not known")?;
            let reports = neighbours::ask(&others(shared, &seen), shared.settings.listen.port()).await;
            let identity = stead_pool::identity(&wanted, shared.settings.pod.ordinal, &record, &reports);
            shared.state.restore(&identity.context("the pool does not know this pod")?, &time())
        }
    }
}

fn name(repair: &Repair) -> &'static str {
    match repair {
        Repair::RestoreIdentity => "restore-identity",
        Repair::ResyncVolumes => "resync-volumes",
        Repair::Forget => "forget",
    }
}
