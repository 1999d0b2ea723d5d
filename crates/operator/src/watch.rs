//! Watches that keep the index up to date: one for each kind, or for each kind and namespace.

use std::sync::Arc;
use std::time::Duration;

use stead_client::{Client, Error, WatchEvent, WatchOptions};
use stead_loops::{Watched, trim};
use tracing::{debug, warn};

use crate::api::path_of;
use crate::shared::Shared;

/// How often to check whether a kind is defined.
const DEFINED: Duration = Duration::from_secs(1);

/// Keeps one kind up to date, for as long as it is polled. `timeout` is how long one request of the watch lasts.
pub(crate) async fn keep(
    client: Client,
    watched: &'static Watched,
    scope: Option<String>,
    timeout: Duration,
    shared: Arc<Shared>,
) {
    let scope = scope.as_deref();
    while !shared.is_defined(watched.kind.kind) {
        tokio::time::sleep(DEFINED).await;
    }
    let options = WatchOptions::labelled(watched.selector, timeout);
    // Each object is trimmed at once: no value of a Secret is kept until the list is complete.
    let mut watch = client.watch_json(watched.kind.kind, path_of(watched), scope, &options, trim);
    loop {
        match watch.next().await {
            WatchEvent::Listed(objects) => {
                debug!(kind = watched.kind.kind, objects = objects.len(), "listed");
                shared.learn(|index| index.reset(watched.kind.kind, scope, objects));
            }
            WatchEvent::Applied(object) => shared.learn(|index| index.put(object)),
            WatchEvent::Deleted(object) => shared.learn(|index| index.left(&object)),
            WatchEvent::Failed { error, again } => report(watched, scope, &error, again, &shared),
        }
    }
}

/// Logs a failure once, until the watch works again. An optional kind that the server does not have has no objects.
fn report(watched: &Watched, scope: Option<&str>, error: &Error, again: bool, shared: &Shared) {
    if error.is_not_found() && watched.optional {
        shared.learn(|index| index.reset(watched.kind.kind, scope, Vec::new()));
    } else if again {
        debug!(kind = watched.kind.kind, "watching: {error}");
    } else {
        warn!(kind = watched.kind.kind, "watching: {error}");
    }
}
