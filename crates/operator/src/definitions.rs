//! Whose the definitions are: a kind that somebody else defined is watched, never written.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde_json::Value;
use stead_loops::{ObjectKey, Watched};
use tracing::{debug, info, warn};

use crate::client::exchange;
use crate::request::Resource;
use crate::shared::Shared;

/// The label that says that a definition is Stead's.
const LABEL: &str = "app.kubernetes.io/part-of";

/// How often definitions are looked for that are missing, and how often those that are there are looked at.
const MISSING: Duration = Duration::from_secs(2);
const PRESENT: Duration = Duration::from_secs(60);

const DEFINITIONS: Resource<'static> =
    Resource { api_version: "apiextensions.k8s.io/v1", plural: "customresourcedefinitions", namespaced: false };

/// Keeps an eye on the definitions of the kinds that have a loop.
pub(crate) async fn keep(client: Client, shared: Arc<Shared>) {
    loop {
        let mut all = true;
        let mut changed = false;
        for kind in shared.logic.reconciled {
            let Some(watched) = shared.logic.kind(kind) else { continue };
            match look(&client, watched, &shared).await {
                Some(news) => changed |= news,
                None => all = false,
            }
        }
        if changed {
            shared.enqueue_all();
        }
        tokio::time::sleep(if all { PRESENT } else { MISSING }).await;
    }
}

/// Looks at one definition. Gives whether something is new about it; none where it is not there.
async fn look(client: &Client, watched: &'static Watched, shared: &Shared) -> Option<bool> {
    let group = watched.api_version.split('/').next().unwrap_or_default();
    let name = format!("{}.{group}", watched.plural);
    let found = exchange(client, DEFINITIONS.get(&ObjectKey::new("CustomResourceDefinition", "", &name))).await;
    let ready = match &found {
        Ok(definition) if is_established(definition) => definition,
        Ok(_) => {
            shared.define(watched.kind, &name, None);
            return None;
        }
        Err(fault) => {
            if fault.is_not_found() {
                // Whoever makes the next one of this name may be somebody else.
                shared.undefine(watched.kind);
                if shared.define(watched.kind, &name, None) {
                    warn!("waiting for the definition {name}: it is not there");
                }
                return None;
            }
            // One that was there is not given up because it cannot be read for a moment.
            if shared.is_defined(watched.kind) {
                debug!("reading the definition {name}: {fault}");
                return Some(false);
            }
            if shared.define(watched.kind, &name, None) {
                warn!("reading the definition {name}: {fault}");
            }
            return None;
        }
    };
    let foreign = ready["metadata"]["labels"][LABEL] != "stead";
    let news = shared.define(watched.kind, &name, Some(foreign));
    if news {
        shared.metrics.companion(watched.kind, foreign);
        if foreign {
            warn!("the definition {name} is not Stead's: {} is watched and never written", watched.kind);
        } else {
            info!("the definition {name} is there");
        }
    }
    Some(news)
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Established" && c["status"] == "True")
}
