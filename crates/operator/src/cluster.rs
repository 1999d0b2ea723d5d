//! The whole cluster, as placement needs it, read when a loop asks for it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stead_loops::Objects;
use stead_model::{Kind, placement_kinds};
use tokio::sync::Mutex;
use tracing::debug;

use crate::api::Api;
use crate::request::Resource;
use crate::shared::Shared;

/// What was read serves all who ask for at least so long.
const FRESH: Duration = Duration::from_secs(2);

/// And for so many times as long as reading it took, so that a large cluster is not read all the time.
const SPARING: u32 = 10;

/// After a refusal, so long is it not asked again: rights rarely change.
const REFUSED: Duration = Duration::from_secs(60);

/// Reads the cluster, at most once in a while, for all who ask.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    last: Mutex<Option<Reading>>,
    /// When the server last refused to list what nothing can be judged without.
    refused: Mutex<Option<Duration>>,
}

#[derive(Debug)]
struct Reading {
    began: Duration,
    took: Duration,
    objects: Arc<Objects>,
}

impl Reading {
    fn is_fresh(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) < FRESH.max(self.took * SPARING)
    }
}

impl Reader {
    /// The cluster as it was a short while ago; none where it could not be read whole: without all nodes and pods, nodes
    /// would seem to have room that they do not have. Other kinds that may not be listed, or do not exist, are left out.
    pub(crate) async fn read(&self, api: &impl Api, shared: &Shared) -> Option<Arc<Objects>> {
        let mut last = self.last.lock().await;
        let began = shared.clock.now();
        if let Some(reading) = last.as_ref().filter(|reading| reading.is_fresh(began)) {
            return Some(reading.objects.clone());
        }
        // What is no longer fresh serves nobody.
        *last = None;
        let mut refused = self.refused.lock().await;
        if refused.is_some_and(|at| began.saturating_sub(at) < REFUSED) {
            return None;
        }
        let mut items = Vec::new();
        let (needed, others): (Vec<&Kind>, Vec<&Kind>) = placement_kinds().partition(|kind| is_needed(kind));
        for kind in needed.into_iter().chain(others) {
            match list(api, kind).await {
                Listed::Items(some) => items.extend(some),
                Listed::Absent => {}
                Listed::Refused if is_needed(kind) => {
                    *refused = Some(began);
                    return None;
                }
                Listed::Refused => {}
                Listed::Failed => return None,
            }
        }
        *refused = None;
        {
            // Explanations name the Topology that a rule came from.
            let index = shared.index();
            let ours = shared.logic.reconciled.iter().flat_map(|kind| index.store().of_kind(kind));
            items.extend(ours.cloned());
        }
        let objects = Arc::new(Objects::from_items(items));
        let took = shared.clock.now().saturating_sub(began);
        *last = Some(Reading { began, took, objects: objects.clone() });
        Some(objects)
    }
}

/// Whether nothing can be judged without this kind.
fn is_needed(kind: &Kind) -> bool {
    matches!(kind.kind, "Node" | "Pod")
}

/// The answer to a list.
enum Listed {
    Items(Vec<Value>),
    /// The server does not know the kind.
    Absent,
    /// It may not be listed.
    Refused,
    /// It could not be listed this time.
    Failed,
}

/// All objects of a kind, page by page.
async fn list(api: &impl Api, kind: &Kind) -> Listed {
    let plural = kind.plural;
    let resource = Resource { api_version: kind.api_version, plural, namespaced: kind.namespaced };
    let mut items = Vec::new();
    let mut continued = String::new();
    loop {
        let mut page = match api.send(resource.list(&continued)).await {
            Ok(page) => page,
            Err(fault) => {
                debug!("listing {plural}: {fault}");
                return match fault.failure.code {
                    403 => Listed::Refused,
                    404 => Listed::Absent,
                    _ => Listed::Failed,
                };
            }
        };
        let Value::Array(found) = page["items"].take() else { return Listed::Items(items) };
        items.extend(found.into_iter().map(|mut item| {
            item["apiVersion"] = kind.api_version.into();
            item["kind"] = kind.kind.into();
            if let Some(meta) = item["metadata"].as_object_mut() {
                meta.remove("managedFields");
            }
            item
        }));
        match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => continued = token.to_owned(),
            _ => return Listed::Items(items),
        }
    }
}
