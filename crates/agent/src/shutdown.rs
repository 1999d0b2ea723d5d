//! Before the pod ends: waits to be detached if the pod was scaled away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stead_pool::PoolSpec;
use tracing::info;

use crate::shared::Shared;

/// How soon after this the agent ends.
const ENDS: Duration = Duration::from_secs(60);

/// Waits, if this pod leaves for good and may, until it has been detached. It is called when the kubelet ends the pod, by
/// SIGTERM: nobody on the network can ask for it.
pub(crate) async fn prepare_to_end(shared: &Arc<Shared>) {
    // Whoever is about to end is the wrong one to decide, and nobody can detach itself.
    shared.declines_until.send_replace(Some(Instant::now() + shared.settings.leave + ENDS));
    let said = wait(shared).await;
    info!("before the end: {said}");
}

async fn wait(shared: &Arc<Shared>) -> String {
    let Some(wanted) = shared.cluster.ask_wanted().await else {
        return "the StatefulSet cannot be read: this counts as a restart".into();
    };
    if !is_scaled_away(&wanted, shared.settings.pod.ordinal) {
        return "a restart: the pool keeps its peer".into();
    }
    let held = match shared.state.read(&shared.host()).await {
        Ok(held) => held,
        Err(error) => return format!("it leaves, but the pool keeps its peer: {error}"),
    };
    let volumes: Vec<&str> =
        held.state.volumes.iter().filter(|(_, bricks)| !bricks.is_empty()).map(|(name, _)| &**name).collect();
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

/// Whether the pod of this ordinal was scaled away. A pool that is scaled to 0 keeps its peers.
pub(crate) fn is_scaled_away(wanted: &PoolSpec, ordinal: u32) -> bool {
    wanted.replicas > 0 && !wanted.includes(ordinal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_are_scaled_away() {
        for (start, replicas, ordinal, leaves) in
            [(0, 3, 2, false), (0, 3, 3, true), (0, 0, 2, false), (5, 3, 7, false), (5, 3, 8, true), (5, 3, 4, true)]
        {
            let wanted = PoolSpec::new("g", "d", replicas, start).expect("host names");
            assert_eq!(is_scaled_away(&wanted, ordinal), leaves, "{ordinal} of {replicas} from {start}");
        }
    }
}
