//! Reads the whole cluster for placement, when a loop asks for it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::version::Info;
use serde_json::Value;
use stead_client::{ApiPath, ApiRequest, ListPage};
use stead_loops::Objects;
use stead_model::{ClusterVersion, Kind, KubernetesVersion, placement_kinds};
use tokio::sync::Mutex;
use tracing::debug;

use crate::api::Api;
use crate::shared::Shared;

/// How long a reading is used, at least.
const MIN_AGE: Duration = Duration::from_secs(2);

/// A reading is used for this many times as long as it took, so that a large cluster is not read all the time.
const AGE_FACTOR: u32 = 10;

/// How long nothing is read after a missing permission: permissions rarely change.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// Reads the cluster, and shares what it read for a while.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    last: Mutex<Option<Reading>>,
    /// When a permission to list nodes or pods was last found missing.
    forbidden: Mutex<Option<Duration>>,
}

#[derive(Debug)]
struct Reading {
    began: Duration,
    took: Duration,
    objects: Arc<Objects>,
}

impl Reading {
    fn is_fresh(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) < MIN_AGE.max(self.took * AGE_FACTOR)
    }
}

impl Reader {
    /// The cluster as it was a short time ago; none if it could not be read completely: without all nodes and pods, nodes
    /// would seem to have room that they do not have. Other kinds that may not be listed, or do not exist, are left out.
    pub(crate) async fn read(&self, api: &impl Api, shared: &Shared) -> Option<Arc<Objects>> {
        let mut last = self.last.lock().await;
        let began = shared.clock.now();
        if let Some(reading) = last.as_ref().filter(|reading| reading.is_fresh(began)) {
            return Some(reading.objects.clone());
        }
        // Free the old reading before the new one is read.
        *last = None;
        let mut forbidden = self.forbidden.lock().await;
        if forbidden.is_some_and(|at| began.saturating_sub(at) < FORBIDDEN) {
            return None;
        }
        let mut items = Vec::new();
        let (required, others): (Vec<&Kind>, Vec<&Kind>) = placement_kinds().partition(|kind| is_required(kind));
        for kind in required.into_iter().chain(others) {
            match list(api, kind).await {
                Listed::Items(some) => items.extend(some),
                Listed::Absent => {}
                Listed::Forbidden if is_required(kind) => {
                    *forbidden = Some(began);
                    return None;
                }
                Listed::Forbidden => {}
                Listed::Failed => return None,
            }
        }
        *forbidden = None;
        {
            // Explanations name the Topology that a rule comes from.
            let index = shared.index();
            let ours = shared.loops.reconciled.iter().flat_map(|kind| index.store().of_kind(kind));
            items.extend(ours.map(|object| object.raw().clone()));
        }
        let mut objects = Objects::from_items(items);
        objects.set_version(version(api).await);
        let objects = Arc::new(objects);
        let took = shared.clock.now().saturating_sub(began);
        *last = Some(Reading { began, took, objects: objects.clone() });
        Some(objects)
    }
}

/// The version of the cluster, read each time because clusters are upgraded; the newest one where it cannot be read.
async fn version(api: &impl Api) -> KubernetesVersion {
    let answer = api.send(ApiRequest::get("/version")).await.ok();
    let info: Option<Info> = answer.and_then(|answer| stead_model::parse("/version", &answer).ok());
    let version = info.and_then(|info| info.git_version.parse::<ClusterVersion>().ok());
    version.map(|version| version.used).unwrap_or_default()
}

/// Whether placement is not possible without this kind.
fn is_required(kind: &Kind) -> bool {
    matches!(kind.kind, "Node" | "Pod")
}

/// The answer to a list.
enum Listed {
    Items(Vec<Value>),
    /// The server does not have the kind.
    Absent,
    /// The operator may not list it.
    Forbidden,
    /// The request failed.
    Failed,
}

/// All objects of a kind, page by page.
async fn list(api: &impl Api, kind: &Kind) -> Listed {
    let mut items = Vec::new();
    let mut next = Some(ListPage::first(ApiRequest::list(ApiPath::from(kind).collection(None))));
    while let Some(request) = next {
        let page = match api.send(request.clone()).await.and_then(|answer| Ok(ListPage::parse(answer)?)) {
            Ok(page) => page,
            Err(fault) => {
                debug!("listing {}: {fault}", kind.plural);
                return match fault.failure.code {
                    403 => Listed::Forbidden,
                    404 => Listed::Absent,
                    _ => Listed::Failed,
                };
            }
        };
        next = page.next(&request);
        items.extend(page.items.into_iter().map(|mut item| {
            item["apiVersion"] = kind.api_version.into();
            item["kind"] = kind.kind.into();
            if let Some(meta) = item["metadata"].as_object_mut() {
                meta.remove("managedFields");
            }
            item
        }));
    }
    Listed::Items(items)
}
