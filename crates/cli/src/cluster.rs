//! Reads a cluster, from files or from its API server.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use jiff::Timestamp;
use serde_json::Value;
use stead_dump::{DEFAULT_MAX_SIZE, Dump, DumpError, Item, KindFilter};
use stead_live::{DEFAULTS, OUTAGE, OWNERS, ReadError, Resource};
use stead_model::{Kind, Objects, UnreadObject, is_openshift_setting, is_openstack, is_openstack_intermediate};

use crate::args::{ControlPlaneArgs, DumpLimitArgs, SourceArgs};
use crate::connect::{Connection, connect};
use crate::output::{ExitWith, Hinted, complain};
use crate::{scheduler, version};

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The objects.
    pub(crate) items: Vec<UnreadObject>,
    /// The kinds that were read, even those without objects.
    pub(crate) kinds: BTreeSet<String>,
    /// The namespace to look in: the one of `-n`, or of the context of a live cluster.
    pub(crate) namespace: Option<String>,
    /// Where it was read from, for messages.
    pub(crate) place: &'static str,
    /// The version of the control plane, as the server or the dump reports it.
    pub(crate) version: Option<String>,
    /// When the dump was taken, if it says so.
    pub(crate) taken: Option<Timestamp>,
}

impl Seen {
    /// The objects, and further ones, with the version and the scheduler's configuration of the cluster.
    ///
    /// # Errors
    /// If the scheduler's configuration cannot be read or is not modelled.
    pub(crate) fn objects(
        &mut self,
        control_plane: &ControlPlaneArgs,
        more: impl IntoIterator<Item = Value>,
    ) -> anyhow::Result<Objects> {
        let more = more.into_iter().map(UnreadObject::Value);
        let objects = Objects::from_items(std::mem::take(&mut self.items).into_iter().chain(more));
        with_control_plane(objects, control_plane, self.version.as_deref())
    }
}

/// Objects with the version that the user gives or the cluster reports, and the scheduler's configuration.
///
/// # Errors
/// If the scheduler's configuration cannot be read or is not modelled.
pub(crate) fn with_control_plane(
    mut objects: Objects,
    args: &ControlPlaneArgs,
    reported: Option<&str>,
) -> anyhow::Result<Objects> {
    version::set(&mut objects, args.kubernetes, reported);
    scheduler::set(&mut objects, scheduler::read(args.scheduler_config.as_deref())?)?;
    Ok(objects)
}

/// From which namespaces further kinds are read, in a live cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// From the given namespace: owners are in the namespace of the objects that they own.
    Namespace,
    /// From all namespaces.
    Cluster,
    /// From all namespaces, events included.
    Everything,
}

/// The command for a complete dump. Since when a volume is waited for is in the managed fields only.
const DUMP: &str = "kubectl get nodes,pods,namespaces,pv,pvc,sc,services,rs,sts,ds,deploy,jobs,cronjobs,pdb,quota,csinodes,\
                               csidrivers,csistoragecapacities,volumeattachments,leases,events -A -o yaml \
                               --show-managed-fields";

/// Reads a cluster: the kinds of placement, and these further kinds.
pub(crate) fn read(source: &SourceArgs, more: &[&str], scope: Scope) -> anyhow::Result<Seen> {
    let read = if source.from.is_empty() { live(source, more, scope) } else { dump(source, more, scope) };
    read.map_err(|error| ExitWith::NoAnswer(error).into())
}

fn dump(source: &SourceArgs, more: &[&str], scope: Scope) -> anyhow::Result<Seen> {
    let wanted = |version: &str, kind: &str| {
        let of_openstack = || is_openstack(version) || is_openstack_intermediate(version, kind);
        Kind::find(version, kind).is_some_and(|k| k.case_list.is_some() || more.contains(&kind))
            || (more.contains(&"Topology") && of_openstack())
            || is_openshift_setting(version, kind)
    };
    let dump = read_dump(&source.from, source.limit, &wanted)?;
    // A list of everything that is stuck says what it does not know; an answer about one object needs the nodes.
    if !dump.kinds.contains("Node") && scope != Scope::Everything {
        return Err(Hinted {
            message: "the dump has no nodes, and no pod can be explained without them".into(),
            hint: format!("`stead dump` collects everything; with kubectl: {DUMP}"),
        }
        .into());
    }
    Ok(Seen {
        items: dump.items.into_iter().map(|item| UnreadObject::Text(item.object)).collect(),
        kinds: dump.kinds,
        namespace: source.namespace.clone(),
        place: "in the dump",
        version: dump.kubernetes,
        taken: dump.taken.and_then(|taken| taken.parse().ok()),
    })
}

/// Reads the files of `--from` and prints their warnings.
pub(crate) fn read_dump(from: &[PathBuf], limit: DumpLimitArgs, wanted: KindFilter<'_>) -> anyhow::Result<Dump> {
    let dump = stead_dump::read(from, wanted, limit.max_dump_size).map_err(|error| match error {
        DumpError::TooLarge { .. } => {
            let hint = "raise the limit with --max-dump-size, or dump fewer kinds".to_owned();
            anyhow::Error::new(Hinted { message: error.to_string(), hint })
        }
        error => error.into(),
    })?;
    for warning in &dump.warnings {
        complain("warning", warning);
    }
    Ok(dump)
}

fn live(source: &SourceArgs, more: &[&str], scope: Scope) -> anyhow::Result<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start a runtime")?.block_on(async {
        let connection = connect(&source.connect).await?;
        let namespace = source.namespace.clone().unwrap_or_else(|| connection.namespace.clone());
        let resources = resources(more, scope, &namespace);
        let progress = Progress::new();
        let live = stead_live::read(&connection.client, &resources, &|done, of| progress.report(done, of)).await;
        progress.end();
        let mut live = live.map_err(|e| unreadable(&e, &connection))?;
        let is_openstack = |item: &Value| item["kind"] == "Topology" || item["kind"] == "OpenStackControlPlane";
        if more.contains(&"Topology") && live.items.iter().any(is_openstack) {
            stead_live::add_openstack(&connection.client, &namespace, &mut live).await;
        }
        let about = stead_live::control_plane(&connection.client).await;
        for warning in live.warnings.iter().chain(&about.warnings) {
            complain("warning", warning);
        }
        live.items.extend(about.settings);
        Ok(Seen {
            items: live.items.into_iter().map(UnreadObject::Value).collect(),
            kinds: live.kinds,
            namespace: Some(namespace),
            place: "in the cluster",
            version: about.version,
            taken: None,
        })
    })
}

/// The kinds that are read from a live cluster.
fn resources(more: &[&str], scope: Scope, namespace: &str) -> Vec<Resource> {
    let wanted = |f: &&stead_live::Further| more.contains(&f.0);
    let owners = OWNERS.iter().filter(wanted).map(|f| match scope {
        Scope::Namespace => Resource::from(*f).within(namespace),
        Scope::Cluster | Scope::Everything => Resource::from(*f),
    });
    let defaults = DEFAULTS.iter().filter(wanted).map(|f| Resource::from(*f));
    let outage = OUTAGE.iter().filter(wanted).flat_map(|f| {
        if f.0 == "Event" && scope == Scope::Everything {
            return vec![Resource::from(*f)];
        }
        // Kubelets' leases, and the controllers' own; events about nodes are in the namespace default.
        let namespaces = if f.0 == "Lease" { ["kube-node-lease", "kube-system"] } else { ["default", namespace] };
        let same = namespaces[0] == namespaces[1];
        namespaces.into_iter().skip(usize::from(same)).map(|n| Resource::from(*f).within(n)).collect::<Vec<_>>()
    });
    stead_live::placement().into_iter().chain(owners).chain(defaults).chain(outage).collect()
}

/// The error with the name of the cluster, and a hint.
pub(crate) fn unreadable(error: &ReadError, connection: &Connection) -> anyhow::Error {
    let hint = match error {
        ReadError::Forbidden { .. } => {
            "docs/EXPLAIN-REFERENCE.md has a role with the permissions to list nodes, pods and everything else that is read"
        }
        e if e.is_unauthorized() => {
            "log in again, or choose another --context: the server does not accept the credentials"
        }
        e if e.is_unreachable() => "check whether `kubectl get nodes` works with the same context; --from reads a dump",
        _ => "check whether `kubectl get nodes` works with the same context",
    };
    Hinted { message: format!("{error} (server {})", connection.name), hint: hint.into() }.into()
}

/// Reports progress, on a terminal only, and only if reading takes long.
struct Progress {
    since: Instant,
    shown: bool,
}

impl Progress {
    /// How long to wait before the first report.
    const SILENCE: Duration = Duration::from_secs(2);

    fn new() -> Progress {
        Progress { since: Instant::now(), shown: io::stderr().is_terminal() }
    }

    fn report(&self, done: usize, of: usize) {
        if self.shown && self.since.elapsed() > Self::SILENCE {
            // The answer does not depend on whether this can be written.
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
    let dump = stead_dump::read(std::slice::from_ref(path), &|_, _| true, DEFAULT_MAX_SIZE)?;
    if dump.items.is_empty() {
        bail!("{}: the file has no objects", path.display());
    }
    let parse = |item: &Item| serde_json::from_str::<Value>(item.object.text.as_str()).map(|_| item.value());
    let values = dump.items.iter().map(|item| parse(item).with_context(|| item.source.to_string()));
    values.collect()
}
