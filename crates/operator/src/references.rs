//! Objects that loops read by name: the Secrets that a spec refers to.
//!
//! They are not watched, since the right to watch Secrets is the right to read all of them. One is read before the loop
//! of an object that refers to it runs, and again every [`REREAD`] for as long as it is referred to, so that a change is
//! noticed. One that does not exist is looked for every [`LOOK_FOR`].

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stead_loops::{ObjectKey, trim};
use tracing::debug;

use crate::api::{Api, Fault, get, path_of};
use crate::shared::Shared;

/// How often an object is read again.
const REREAD: Duration = Duration::from_secs(30);

/// How often an object is looked for that does not exist.
const LOOK_FOR: Duration = Duration::from_secs(5);

/// The least time between two reads, whatever they are of: many objects are read less often.
const SPACING: Duration = Duration::from_millis(50);

/// How often the list of what is due is made.
const PERIOD: Duration = Duration::from_secs(1);

/// The objects that the loop of this object reads and that have to be read again first.
pub(crate) fn stale(shared: &Shared, key: &ObjectKey) -> Vec<ObjectKey> {
    let references = {
        let index = shared.index();
        index.store().get(key).map(|object| (shared.logic.references)(object)).unwrap_or_default()
    };
    references.into_iter().filter(|reference| is_due(shared, reference, REREAD)).collect()
}

fn is_due(shared: &Shared, key: &ObjectKey, reread: Duration) -> bool {
    let interval = if shared.index().store().get(key).is_some() { reread } else { LOOK_FOR };
    let now = shared.clock.now();
    shared.last_read(key).is_none_or(|read| now.saturating_sub(read) >= interval)
}

/// Reads an object and takes over what it is now. One that does not exist is no error.
pub(crate) async fn read(api: &impl Api, shared: &Shared, key: &ObjectKey) -> Result<(), Fault> {
    let Some(kind) = shared.logic.kind(&key.kind) else { return Ok(()) };
    let began = shared.clock.now();
    let before = shared.index().store().get(key).map(|known| known["metadata"]["uid"].clone());
    match api.send(get(path_of(kind), key)).await {
        Ok(object) => shared.learn(|index| index.put(trim(object))),
        Err(fault) if fault.is_not_found() => {
            // One that was created while the request was under way is another one.
            if let Some(uid) = before {
                shared.learn(|index| index.delete(key, &uid));
            }
        }
        Err(fault) => return Err(fault),
    }
    shared.was_read(key, began);
    Ok(())
}

/// Reads again what is referred to and due, while this process leads; forgets what is no longer referred to.
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
    let objects = shared.logic.reconciled.iter().flat_map(|kind| index.store().of_kind(kind));
    objects.flat_map(|object| (shared.logic.references)(object)).collect()
}
