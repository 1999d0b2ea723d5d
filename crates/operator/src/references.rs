//! Objects that loops read by name: the Secrets that a spec refers to.
//!
//! They are not watched, since the permission to watch Secrets is the permission to read all of them. A Secret is read
//! before the loop of an object that refers to it runs, and again every [`REREAD`] for as long as it is referred to, so
//! that changes take effect. One that does not exist is looked for every [`LOOK_FOR`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stead_loops::{ObjectKey, trim};
use tracing::debug;

use crate::api::{Api, Fault, get, path_of};
use crate::shared::Shared;

/// How often an object is read again.
const REREAD: Duration = Duration::from_secs(30);

/// How often an object that does not exist is looked for.
const LOOK_FOR: Duration = Duration::from_secs(5);

/// The minimum time between two reads: the more objects there are, the less often each is read.
const SPACING: Duration = Duration::from_millis(50);

/// How often to check which objects are due.
const PERIOD: Duration = Duration::from_secs(1);

/// The objects that have to be read before the loop of this object runs.
pub(crate) fn stale(shared: &Shared, key: &ObjectKey) -> Vec<ObjectKey> {
    let references = {
        let index = shared.index();
        index.store().object(key).map(|object| (shared.loops.references)(object)).unwrap_or_default()
    };
    references.into_iter().filter(|reference| is_due(shared, reference, REREAD)).collect()
}

fn is_due(shared: &Shared, key: &ObjectKey, reread: Duration) -> bool {
    let interval = if shared.index().store().contains(key) { reread } else { LOOK_FOR };
    let now = shared.clock.now();
    shared.last_read(key).is_none_or(|read| now.saturating_sub(read) >= interval)
}

/// Reads an object into the index. That it does not exist is not an error.
pub(crate) async fn read(api: &impl Api, shared: &Shared, key: &ObjectKey) -> Result<(), Fault> {
    let Some(kind) = shared.loops.kind(&key.kind) else { return Ok(()) };
    let began = shared.clock.now();
    let before = shared.index().uid(key).map(str::to_owned);
    match api.send(get(path_of(kind), key)).await {
        Ok(object) => shared.learn(|index| index.put(trim(object))),
        Err(fault) if fault.is_not_found() => {
            // An object that was created during the request has another UID, and is kept.
            if let Some(uid) = before {
                shared.learn(|index| index.delete(key, &uid));
            }
        }
        Err(fault) => return Err(fault),
    }
    shared.was_read(key, began);
    Ok(())
}

/// Reads objects that are referred to again when they are due, while this process is the leader. Forgets those that are no
/// longer referred to.
pub(crate) async fn keep(api: impl Api, shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(PERIOD).await;
        if !shared.is_synced() || shared.leadership.allows(shared.clock.now()).is_none() {
            continue;
        }
        let referred = referred(&shared);
        let reread = REREAD.max(SPACING * u32::try_from(referred.len()).unwrap_or(u32::MAX));
        for key in referred.iter().filter(|key| is_due(&shared, key, reread)) {
            if let Err(fault) = read(&api, &shared, key).await {
                debug!("reading {key}: {fault}");
            }
            tokio::time::sleep(SPACING).await;
        }
        shared.forget_reads(&referred);
    }
}

/// All objects that any loop reads by name.
fn referred(shared: &Shared) -> BTreeSet<ObjectKey> {
    let index = shared.index();
    let objects = shared.loops.reconciled.iter().flat_map(|kind| index.store().of_kind(kind));
    objects.flat_map(|object| (shared.loops.references)(object)).collect()
}
