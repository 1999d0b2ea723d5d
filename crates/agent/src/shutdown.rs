//! Before the agent stops: waits to be detached if the pod was scaled away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stead_pool::PoolSpec;
use tracing::info;

use crate::shared::Shared;

/// How long after this the agent has stopped at the latest.
const STOP_TIME: Duration = Duration::from_secs(60);

/// Waits until the pod is detached, if it was scaled away and holds no bricks. Runs after SIGTERM from the kubelet:
/// nothing on the network can trigger it.
pub(crate) async fn wait_to_be_detached(shared: &Arc<Shared>) {
    // An agent that is about to stop should not decide, and a peer cannot detach itself.
    shared.declines_until.send_replace(Some(Instant::now() + shared.settings.leave + STOP_TIME));
    let outcome = wait_for_detach(shared).await;
    info!("before stopping: {outcome}");
}

async fn wait_for_detach(shared: &Arc<Shared>) -> String {
    let Some(wanted) = shared.cluster.fetch_wanted().await else {
        return "the StatefulSet cannot be read: treating this as a restart".into();
    };
    if !is_scaled_away(&wanted, shared.settings.pod.ordinal) {
        return "a restart: the pod stays a peer of the pool".into();
    }
    let content = match shared.state.read(&shared.host()).await {
        Ok(content) => content,
        Err(error) => return format!("the pod was scaled away, but stays a peer of the pool: {error}"),
    };
    let volumes: Vec<&str> =
        content.state.volumes.iter().filter(|(_, bricks)| !bricks.is_empty()).map(|(name, _)| &**name).collect();
    if !volumes.is_empty() {
        return format!(
            "the pod was scaled away, but stays a peer of the pool: it holds bricks of {}",
            volumes.join(", ")
        );
    }
    shared.set_doing(Some("leaving the pool: waiting to be detached".into()));
    let detached = async {
        while !shared.fresh(Duration::from_secs(3)).await.peers.is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    match tokio::time::timeout(shared.settings.leave, detached).await {
        Ok(()) => "the pod was detached from the pool".into(),
        Err(_) => format!("the pod was not detached within {} s", shared.settings.leave.as_secs()),
    }
}

/// Whether the pod with this ordinal was scaled away. A pool that is scaled to 0 keeps its peers.
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
