//! Checks who installed the CRDs: a kind whose CRD Stead did not install is watched, never written.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use stead_client::{ApiPath, Client};
use stead_loops::Watched;
use tracing::{debug, info, warn};

use crate::shared::Shared;

/// The label of CRDs that Stead installed.
const LABEL: (&str, &str) = ("app.kubernetes.io/part-of", "stead");

/// How often CRDs that do not exist are looked for, and how often those that exist are read again.
const MISSING: Duration = Duration::from_secs(2);
const PRESENT: Duration = Duration::from_secs(60);

/// A CRD without its schema.
#[derive(Debug, Deserialize)]
struct Definition {
    metadata: ObjectMeta,
    status: Option<CustomResourceDefinitionStatus>,
}

impl Definition {
    fn is_established(&self) -> bool {
        let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    }

    fn is_ours(&self) -> bool {
        let label = self.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL.0));
        label.is_some_and(|value| value == LABEL.1)
    }
}

/// Follows the CRDs of the kinds that have a loop.
pub(crate) async fn keep(client: Client, shared: Arc<Shared>) {
    loop {
        let mut all = true;
        let mut changed = false;
        for kind in shared.loops.reconciled {
            let Some(watched) = shared.loops.kind(kind) else { continue };
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

/// Reads one CRD. Returns whether something about it has changed; none if it does not exist.
async fn look(client: &Client, watched: &'static Watched, shared: &Shared) -> Option<bool> {
    let group = watched.kind.group();
    let name = format!("{}.{group}", watched.kind.plural);
    let path = ApiPath::of::<CustomResourceDefinition>().object("", &name);
    let definition: Definition = match client.find(path).await {
        Ok(Some(definition)) => definition,
        Ok(None) => {
            // The next CRD of this name may be installed by somebody else.
            shared.undefine(watched.kind.kind);
            if shared.define(watched.kind.kind, &name, None) {
                warn!("waiting for the CRD {name}: it does not exist");
            }
            return None;
        }
        // A CRD that was there counts as being there while it cannot be read.
        Err(error) if shared.is_defined(watched.kind.kind) => {
            debug!("reading the CRD {name}: {error}");
            return Some(false);
        }
        Err(error) => {
            if shared.define(watched.kind.kind, &name, None) {
                warn!("reading the CRD {name}: {error}");
            }
            return None;
        }
    };
    if !definition.is_established() {
        shared.define(watched.kind.kind, &name, None);
        return None;
    }
    let foreign = !definition.is_ours();
    let news = shared.define(watched.kind.kind, &name, Some(foreign));
    if news {
        shared.metrics.companion(watched.kind.kind, foreign);
        if foreign {
            warn!("the CRD {name} was not installed by Stead: {} is watched and never written", watched.kind.kind);
        } else {
            info!("the CRD {name} exists");
        }
    }
    Some(news)
}
