//! A cluster as files show it, or as it is.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;
use stead_explain::Kind;
use stead_live::{DEFAULTS, OWNERS, ReadError, Resource};

use crate::args::SourceArgs;
use crate::connect::{Connection, connect};
use crate::output::{Hinted, complain};

/// What a cluster says.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The objects.
    pub(crate) items: Vec<Value>,
    /// The kinds that were read, those of which there are none included.
    pub(crate) kinds: BTreeSet<String>,
    /// The namespace to look in: the one that was asked for, or on a live cluster the context's.
    pub(crate) namespace: Option<String>,
    /// What was looked at, for messages.
    pub(crate) place: &'static str,
}

/// Reads a cluster: what placement looks at, and the further kinds that are asked for.
pub(crate) fn read(source: &SourceArgs, more: &[&str]) -> anyhow::Result<Seen> {
    if source.from.is_empty() { live(source, more) } else { dump(source, more) }
}

fn dump(source: &SourceArgs, more: &[&str]) -> anyhow::Result<Seen> {
    let wanted = |version: &str, kind: &str| more.contains(&kind) || Kind::find(version, kind).is_some();
    let dump = stead_dump::read(&source.from, &wanted)?;
    for warning in &dump.warnings {
        complain("warning", warning);
    }
    if !dump.kinds.contains("Node") {
        return Err(Hinted {
            message: "the dump has no nodes: no pod can be judged without them".into(),
            hint: "dump them too: kubectl get nodes,pods,namespaces,pv,pvc,sc,services,rs,sts,pdb,csinodes -A -o yaml"
                .into(),
        }
        .into());
    }
    Ok(Seen {
        items: dump.items.into_iter().map(|i| i.value).collect(),
        kinds: dump.kinds,
        namespace: source.namespace.clone(),
        place: "in the dump",
    })
}

fn live(source: &SourceArgs, more: &[&str]) -> anyhow::Result<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the client")?.block_on(async {
        let connection = connect(&source.connect).await?;
        let namespace = source.namespace.clone().unwrap_or_else(|| connection.namespace.clone());
        let resources = resources(more, &namespace);
        let progress = Progress::new();
        let live = stead_live::read(&connection.client, &resources, &|done, of| progress.tell(done, of)).await;
        progress.end();
        let live = live.map_err(|e| unread(&e, &connection))?;
        for warning in &live.warnings {
            complain("warning", warning);
        }
        Ok(Seen { items: live.items, kinds: live.kinds, namespace: Some(namespace), place: "in the cluster" })
    })
}

/// What is read from a live cluster. Owners are in the namespace of what they own.
fn resources(more: &[&str], namespace: &str) -> Vec<Resource> {
    let owners = OWNERS.iter().filter(|f| more.contains(&f.0)).map(|f| Resource::from(*f).within(namespace));
    let defaults = DEFAULTS.iter().filter(|f| more.contains(&f.0)).map(|f| Resource::from(*f));
    stead_live::placement().into_iter().chain(owners).chain(defaults).collect()
}

/// Says which cluster it was, and what might help.
fn unread(error: &ReadError, connection: &Connection) -> anyhow::Error {
    let hint = match error {
        ReadError::Forbidden { .. } => {
            "a role with the right to list nodes, pods and what else is looked at is in docs/EXPLAIN.md"
        }
        e if e.is_unauthorized() => "log in again, or choose another --context: the server does not know who asks",
        e if e.is_unreachable() => "see whether `kubectl get nodes` works with the same context; --from takes a dump",
        _ => "see whether `kubectl get nodes` works with the same context",
    };
    Hinted { message: format!("{error} (server {})", connection.name), hint: hint.into() }.into()
}

/// Says how far the reading is, to people only, and only where it takes long.
struct Progress {
    since: Instant,
    shown: bool,
}

impl Progress {
    /// So long nothing is said.
    const SILENCE: Duration = Duration::from_secs(2);

    fn new() -> Progress {
        Progress { since: Instant::now(), shown: io::stderr().is_terminal() }
    }

    fn tell(&self, done: usize, of: usize) {
        if self.shown && self.since.elapsed() > Self::SILENCE {
            // Whether somebody sees it is of no matter to the answer.
            let _ = write!(io::stderr(), "\rreading the cluster: {done} of {of} kinds");
        }
    }

    fn end(&self) {
        if self.shown && self.since.elapsed() > Self::SILENCE {
            let _ = write!(io::stderr(), "\r{:40}\r", "");
        }
    }
}

/// Reads the objects of one file, of whatever kind.
pub(crate) fn read_file(path: &PathBuf) -> anyhow::Result<Vec<Value>> {
    let dump = stead_dump::read(std::slice::from_ref(path), &|_, _| true)?;
    if dump.items.is_empty() {
        bail!("{}: no objects in it", path.display());
    }
    Ok(dump.items.into_iter().map(|i| i.value).collect())
}
