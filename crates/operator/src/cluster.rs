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

/// Reads the cluster, at most once in a while, for all who ask.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    last: Mutex<Option<Reading>>,
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
    /// The cluster as it was a short while ago; none where it could not be read whole. What may not be read, or is not
    /// known there, is left out.
    pub(crate) async fn read(&self, api: &impl Api, shared: &Shared) -> Option<Arc<Objects>> {
        let mut last = self.last.lock().await;
        let began = shared.clock.now();
        if let Some(reading) = last.as_ref().filter(|reading| reading.is_fresh(began)) {
            return Some(reading.objects.clone());
        }
        // What is no longer fresh serves nobody.
        *last = None;
        let mut items = Vec::new();
        for kind in placement_kinds() {
            items.extend(list(api, kind).await?);
        }
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

/// All objects of a kind, page by page; none where a page could not be had: half a cluster would have room that is not
/// there.
async fn list(api: &impl Api, kind: &Kind) -> Option<Vec<Value>> {
    let plural = kind.plural;
    let resource = Resource { api_version: kind.api_version, plural, namespaced: kind.namespaced };
    let mut items = Vec::new();
    let mut continued = String::new();
    loop {
        let mut page = match api.send(resource.list(&continued)).await {
            Ok(page) => page,
            Err(fault) => {
                debug!("listing {plural}: {fault}");
                return matches!(fault.failure.code, 403 | 404).then_some(items);
            }
        };
        let Value::Array(found) = page["items"].take() else { return Some(items) };
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
            _ => return Some(items),
        }
    }
}
