//! Before glusterd starts: the pod becomes itself again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use stead_pool::{Boot, PoolSpec};
use tracing::{info, warn};

use crate::cluster::{RecordSeen, Seen};
use crate::other_agents;
use crate::shared::Shared;

/// How long the API server may take to answer before a pod that has all of its state starts without it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How soon to look again while waiting.
const AGAIN: Duration = Duration::from_secs(1);

/// Gives the state directory what it lacks. Returns when glusterd may start.
pub(crate) async fn prepare(shared: &Arc<Shared>) -> Result<()> {
    let mut said = String::new();
    while let Some(why) = hindrance(shared).await? {
        if said != why {
            warn!("glusterd waits: {why}");
            said.clone_from(&why);
        }
        shared.set_doing(Some(why));
        let mut seen = shared.cluster.seen();
        seen.mark_unchanged();
        // Something new is as good a reason to look again as time.
        let _ = tokio::time::timeout(AGAIN, seen.changed()).await;
    }
    Ok(())
}

/// Gives the state directory what it lacks, if that can be told; else why glusterd may not start yet.
async fn hindrance(shared: &Arc<Shared>) -> Result<Option<String>> {
    let held = match shared.state.read(&shared.host()).await {
        Ok(held) => held,
        Err(error) => return Ok(Some(error.to_string())),
    };
    if let Err(error) = held.readable() {
        return Ok(Some(format!("{error:#}")));
    }
    let Some((wanted, seen)) = known(shared).await else {
        if held.state.uuid.is_some() && !held.state.peers.is_empty() {
            warn!("the API server does not answer; the state is whole, so glusterd starts without it");
            return Ok(None);
        }
        return Ok(Some(match &shared.cluster.seen().borrow().record {
            Some(RecordSeen::Unreadable(why)) => {
                format!("the record {} cannot be read: {why}", shared.settings.record())
            }
            _ => "the state is not whole, and the API server does not answer".to_owned(),
        }));
    };
    let record = seen.record().unwrap_or_default();
    let reports = other_agents::ask_all(shared, &seen).await.reports;
    match stead_pool::boot(&wanted, shared.settings.pod.ordinal, &held.state, &record, &reports) {
        Boot::Start => {}
        Boot::Restore(identity) => {
            info!("this pod is {} of the pool, with {} peers", identity.uuid, identity.peers.len());
            shared.state.change(move |state| state.restore(&identity, &time())).await?;
            shared.metrics.repaired("restore-identity-at-start");
        }
        Boot::Forget => {
            info!("this pod was detached from the pool while it was away: it forgets its peers");
            shared.state.change(|state| state.forget(&time())).await?;
            shared.metrics.repaired("forget-at-start");
        }
        Boot::Wait(why) => return Ok(Some(why)),
    }
    Ok(None)
}

/// What is wanted and what Kubernetes has, once all of it is known; none if that takes too long.
async fn known(shared: &Shared) -> Option<(PoolSpec, Seen)> {
    let mut changes = shared.cluster.seen();
    let all = |seen: &Seen| seen.set.is_some() && seen.pods.is_some() && seen.record().is_some();
    let seen = tokio::time::timeout(PATIENCE, changes.wait_for(all)).await.ok()?.ok()?.clone();
    // The others are believed with the key only; where it cannot be read, the record has to do.
    if shared.settings.key_secret.is_some() {
        let mut keys = shared.cluster.keys();
        let _ = tokio::time::timeout(PATIENCE, keys.wait_for(|keys| keys.missing().is_none())).await;
    }
    Some((shared.cluster.wanted()?, seen))
}

/// The time, as it may stand in a file's name and sorts.
pub(crate) fn time() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%3fZ").to_string()
}
