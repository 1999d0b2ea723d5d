//! Reads a live cluster through its API, once and with read rights only.
//!
//! What is read is what is asked for ([`Resource`]), by lists in pages, as far as possible all from the same moment:
//! the first list tells the cluster's revision, and the others are asked for at just that one. A kind that the cluster
//! does not know has no objects; one that may not be listed is left out with a word about what is lost, unless nothing
//! can be said without it. Nothing is ever written, and no Secret is read.
//!
//! Data flows one way: resources → pages of lists → objects (JSON values), the same as a dump gives. This crate knows
//! nothing of what the objects mean.

mod error;
mod list;
mod resource;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use error::ReadError;
use futures::{StreamExt, TryStreamExt};
use kube::Client;
pub use resource::{DEFAULTS, Further, OUTAGE, OWNERS, Resource, placement};
use serde_json::Value;

use list::Listed;

/// So many kinds are listed at a time.
const AT_ONCE: usize = 4;

/// What a cluster says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Live {
    /// The objects, each with its `apiVersion` and `kind`.
    pub items: Vec<Value>,
    /// The kinds that are known in full, those of which there are none included.
    pub kinds: BTreeSet<String>,
    /// What could not be read, and what is lost by it.
    pub warnings: Vec<String>,
}

/// Reads the objects of these kinds. `progress` is told how many kinds have been read of how many, after each.
///
/// # Errors
/// Where the cluster does not answer, or nothing can be said because nodes or pods may not be listed.
pub async fn read(
    client: &Client,
    resources: &[Resource],
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Live, ReadError> {
    let done = AtomicUsize::new(0);
    let tell = || progress(done.fetch_add(1, Ordering::Relaxed) + 1, resources.len());
    let Some((first, others)) = resources.split_first() else { return Ok(Live::default()) };
    let mut live = Live::default();
    let mut barred: Vec<&Resource> = Vec::new();
    let listed = list::list(client, first, None).await?;
    let moment = listed.moment().map(str::to_owned);
    let (moment, tell) = (moment.as_deref(), &tell);
    barred.extend(live.add(first, listed));
    tell();
    // In their own order whatever the order of the answers, so that the same cluster gives the same words.
    let lists = futures::stream::iter(others)
        .map(|resource| async move {
            let listed = list::list(client, resource, moment).await?;
            tell();
            Ok::<_, ReadError>((resource, listed))
        })
        .buffered(AT_ONCE)
        .try_collect::<Vec<_>>()
        .await?;
    for (resource, listed) in lists {
        barred.extend(live.add(resource, listed));
    }
    live.warnings = warnings(&barred);
    Ok(live)
}

impl Live {
    /// Takes a list in; gives the kind back where it may not be listed.
    fn add<'a>(&mut self, resource: &'a Resource, listed: Listed) -> Option<&'a Resource> {
        match listed {
            Listed::Items { items, .. } => self.items.extend(items),
            // There are none of a kind that the cluster does not know.
            Listed::Unknown => {}
            Listed::Forbidden => return Some(resource),
        }
        self.kinds.insert(resource.kind.into());
        None
    }
}

/// What is lost by kinds that may not be listed, each loss once.
fn warnings(barred: &[&Resource]) -> Vec<String> {
    let mut by_loss: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in barred {
        match by_loss.iter_mut().find(|(lost, _)| *lost == resource.lost) {
            Some((_, plurals)) if plurals.contains(&resource.plural.as_str()) => {}
            Some((_, plurals)) => plurals.push(&resource.plural),
            None => by_loss.push((resource.lost, vec![&resource.plural])),
        }
    }
    by_loss.into_iter().map(|(lost, plurals)| format!("not allowed to list {}: {lost}", plurals.join(", "))).collect()
}
