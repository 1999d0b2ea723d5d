//! Prepares the state directory before glusterd starts: restores the identity of the pod if it was lost.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use stead_pool::{Boot, PoolSpec};
use tracing::{info, warn};

use crate::cluster::{PoolObjects, RecordView};
use crate::other_agents;
use crate::shared::Shared;

/// How long the API server may take to answer before a pod with complete state starts without it.
const API_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval between two attempts while waiting.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Restores what is missing in the state directory. Returns when glusterd may start.
pub(crate) async fn prepare(shared: &Arc<Shared>) -> Result<()> {
    let mut logged = String::new();
    while let Some(why) = prepare_once(shared).await? {
        if logged != why {
            warn!("glusterd is not started yet: {why}");
            logged.clone_from(&why);
        }
        shared.set_doing(Some(why));
        let mut objects = shared.cluster.objects();
        objects.mark_unchanged();
        // A change in Kubernetes triggers the next attempt early.
        let _ = tokio::time::timeout(RETRY_INTERVAL, objects.changed()).await;
    }
    Ok(())
}

/// Tries once to restore what is missing in the state directory. Returns the reason if glusterd must not start yet.
async fn prepare_once(shared: &Arc<Shared>) -> Result<Option<String>> {
    let content = match shared.state.read(&shared.host()).await {
        Ok(content) => content,
        Err(error) => return Ok(Some(error.to_string())),
    };
    if let Err(error) = content.readable() {
        return Ok(Some(format!("{error:#}")));
    }
    let Some((wanted, objects)) = wait_for_objects(shared).await else {
        if content.state.uuid.is_some() && !content.state.peers.is_empty() {
            warn!("the API server does not answer; the state directory is complete, so glusterd starts without it");
            return Ok(None);
        }
        return Ok(Some(match &shared.cluster.objects().borrow().record {
            Some(RecordView::Unreadable(why)) => {
                format!("the record {} cannot be read: {why}", shared.settings.record())
            }
            _ => "the state directory is not complete, and the API server does not answer".to_owned(),
        }));
    };
    let record = objects.record().unwrap_or_default();
    let reports = other_agents::ask_all(shared, &objects).await.reports;
    match stead_pool::boot(&wanted, shared.settings.pod.ordinal, &content.state, &record, &reports) {
        Boot::Start => {}
        Boot::Restore(identity) => {
            info!(
                "restoring the identity of this pod: peer {} with {} other peers",
                identity.uuid,
                identity.peers.len()
            );
            shared.state.change(move |state| state.restore(&identity, &timestamp())).await?;
            shared.metrics.repaired("restore-identity-at-start");
        }
        Boot::Forget => {
            info!("this pod was detached from the pool while it was down: removing its peers from the state directory");
            shared.state.change(|state| state.forget(&timestamp())).await?;
            shared.metrics.repaired("forget-at-start");
        }
        Boot::Wait(why) => return Ok(Some(why)),
    }
    Ok(None)
}

/// Waits for the pool's objects in Kubernetes. Returns none if that takes too long.
async fn wait_for_objects(shared: &Shared) -> Option<(PoolSpec, PoolObjects)> {
    let mut changes = shared.cluster.objects();
    let all = |objects: &PoolObjects| objects.set.is_some() && objects.pods.is_some() && objects.record().is_some();
    let objects = tokio::time::timeout(API_TIMEOUT, changes.wait_for(all)).await.ok()?.ok()?.clone();
    // Reports of other agents need the key; if it cannot be read, the record is used alone.
    if shared.settings.key_secret.is_some() {
        let mut keys = shared.cluster.keys();
        let _ = tokio::time::timeout(API_TIMEOUT, keys.wait_for(|keys| keys.missing().is_none())).await;
    }
    Some((shared.cluster.wanted()?, objects))
}

/// The current time in a form that sorts and is valid in a file name.
pub(crate) fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y%m%dT%H%M%S%3fZ").to_string()
}
