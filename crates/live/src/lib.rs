//! Reads a live cluster through its API, once, with read permissions only.
//!
//! It reads the lists that are asked for ([`Resource`]), as far as possible all of the same revision: the first list has
//! the cluster's revision, and the others are read as of that revision. A kind that the cluster does not have has no
//! objects. A kind that may not be listed is left out with a warning that says what is missing, unless it is required.
//! [`control_plane`] reads the server's version, and how OpenShift configures its control plane. [`add_openstack`] adds the resources of the OpenStack operators, whose kinds the server is asked for. Nothing is written,
//! and no Secret is read.
//!
//! Data flows one way: resources → lists → objects (JSON values), the same as a dump gives. This crate does not know what
//! the objects mean.

mod control_plane;
mod error;
mod list;
mod openstack;
mod resource;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use control_plane::{ControlPlane, control_plane, server_version};
pub use error::ReadError;
use futures::future::LocalBoxFuture;
use futures::{StreamExt, TryStreamExt};
pub use resource::{DEFAULTS, Further, OUTAGE, OWNERS, Resource, dumped, placement};
use serde_json::Value;
use stead_client::Client;

use list::Listed;
pub use openstack::{add_openstack, openstack};

/// How many kinds are listed at a time.
const CONCURRENCY: usize = 4;

/// The objects of a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Live {
    /// The objects, each with its `apiVersion` and `kind`.
    pub items: Vec<Value>,
    /// The kinds that were read completely, including those without objects.
    pub kinds: BTreeSet<String>,
    /// What could not be read, and what is missing because of it.
    pub warnings: Vec<String>,
}

/// Reads the objects of these kinds. After each kind, `progress` is called with the number of kinds read and their total.
///
/// # Errors
/// If the server does not answer, or a required kind may not be listed.
pub fn read<'a>(
    client: &'a Client,
    resources: &'a [Resource],
    progress: &'a (dyn Fn(usize, usize) + Sync),
) -> LocalBoxFuture<'a, Result<Live, ReadError>> {
    Box::pin(read_all(client, resources, progress))
}

async fn read_all(
    client: &Client,
    resources: &[Resource],
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Live, ReadError> {
    let done = AtomicUsize::new(0);
    let report = || progress(done.fetch_add(1, Ordering::Relaxed) + 1, resources.len());
    let Some((first, others)) = resources.split_first() else { return Ok(Live::default()) };
    let mut live = Live::default();
    let mut forbidden: Vec<&Resource> = Vec::new();
    let listed = list::list(client, first, None).await?;
    let revision = match &listed {
        Listed::Items(list) => list.revision.clone(),
        _ => None,
    };
    let (revision, report) = (revision.as_deref(), &report);
    forbidden.extend(live.add(first, listed));
    report();
    // In the given order, whichever answer comes first: the same cluster gives the same output.
    let lists = futures::stream::iter(others)
        .map(|resource| async move {
            let listed = list::list(client, resource, revision).await?;
            report();
            Ok::<_, ReadError>((resource, listed))
        })
        .buffered(CONCURRENCY)
        .try_collect::<Vec<_>>()
        .await?;
    for (resource, listed) in lists {
        forbidden.extend(live.add(resource, listed));
    }
    live.warnings = warnings(&forbidden);
    Ok(live)
}

/// One list of a dump.
#[derive(Debug)]
pub enum DumpedList {
    /// The objects, and the revision of the cluster that they are of.
    Objects(Vec<Value>, Option<String>),
    /// The cluster does not have the kind.
    Unknown,
    /// The user may not list it.
    Forbidden,
}

/// Reads one list, as of a revision if the server still has it.
///
/// # Errors
/// If the server does not answer, or the kind is required and may not be listed.
pub async fn read_list(client: &Client, resource: &Resource, revision: Option<&str>) -> Result<DumpedList, ReadError> {
    Ok(match list::list(client, resource, revision).await? {
        Listed::Items(list) => DumpedList::Objects(list.items, list.revision),
        Listed::Unknown => DumpedList::Unknown,
        Listed::Forbidden => DumpedList::Forbidden,
    })
}

impl Live {
    /// Adds a list; returns the kind if it may not be listed.
    fn add<'a>(&mut self, resource: &'a Resource, listed: Listed) -> Option<&'a Resource> {
        match listed {
            Listed::Items(list) => self.items.extend(list.items),
            Listed::Unknown => {}
            Listed::Forbidden => return Some(resource),
        }
        self.kinds.insert(resource.kind.into());
        None
    }
}

/// One warning for all kinds with the same consequence.
fn warnings(forbidden: &[&Resource]) -> Vec<String> {
    let mut by_consequence: Vec<(&str, Vec<&str>)> = Vec::new();
    for resource in forbidden {
        let plural = resource.api.plural;
        match by_consequence.iter_mut().find(|(consequence, _)| *consequence == resource.consequence) {
            Some((_, plurals)) if plurals.contains(&plural) => {}
            Some((_, plurals)) => plurals.push(plural),
            None => by_consequence.push((resource.consequence, vec![plural])),
        }
    }
    let warning = |(consequence, plurals): (&str, Vec<&str>)| {
        format!("not allowed to list {}: {consequence}", plurals.join(", "))
    };
    by_consequence.into_iter().map(warning).collect()
}
