//! Before the pod ends: is it to come back, or does it leave for good?

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::info;

use crate::shared::Shared;

/// Waits, if this pod leaves for good and may, until it has been detached. Returns what happened, for the log.
pub(crate) async fn before_end(shared: &Arc<Shared>) -> String {
    // Whoever is about to end is the wrong one to decide, and nobody can detach itself.
    shared.reluctant.send_replace(Some(Instant::now() + Duration::from_secs(24 * 3600)));
    let said = wait(shared).await;
    info!("before the end: {said}");
    format!("{said}\n")
}

async fn wait(shared: &Arc<Shared>) -> String {
    let ordinal = shared.settings.pod.ordinal;
    let start = shared.cluster.seen().borrow().set.as_ref().map_or(0, |set| set.start);
    let Some(replicas) = shared.cluster.ask_replicas().await else {
        return "the StatefulSet cannot be read: this counts as a restart".into();
    };
    if replicas == 0 || ordinal < start.saturating_add(replicas) {
        return "a restart: the pool keeps its peer".into();
    }
    let held = shared.state.read(&shared.host());
    let volumes: Vec<&str> =
        held.state.volumes.iter().filter(|(_, bricks)| !bricks.is_empty()).map(|(name, _)| name.as_str()).collect();
    if !volumes.is_empty() {
        return format!("it leaves, but the pool keeps its peer: it holds bricks of {}", volumes.join(", "));
    }
    shared.set_doing(Some("leaves the pool: waits to be detached".into()));
    let detached = async {
        while !shared.fresh(Duration::from_secs(3)).await.peers.is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    match tokio::time::timeout(shared.settings.leave, detached).await {
        Ok(()) => "it has left the pool".into(),
        Err(_) => format!("it was not detached within {} s", shared.settings.leave.as_secs()),
    }
}
