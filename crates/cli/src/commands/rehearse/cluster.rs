//! The cluster in which a rehearsal begins: an example, objects, a dump, or the live cluster.

use anyhow::Context;
use jiff::Timestamp;
use serde_json::Value;
use stead_dump::DEFAULT_MAX_SIZE;
use stead_explain::outage::{self, ClusterTimers, Timers};
use stead_model::{ClusterVersion, Objects, UnreadObject};
use stead_sim::{ControllerTimers, Settings};
use stead_whatif::{ClusterObjects, Scene};

use super::super::dump;
use super::source::Source;
use crate::args::RehearseArgs;
use crate::output::{ExitWith, complain};
use crate::server;

/// The scene of a rehearsal.
pub(super) fn scene(source: &Source, args: &RehearseArgs) -> anyhow::Result<Scene> {
    let cluster = &source.rehearsal.cluster;
    let read = match &cluster.from {
        Some(path) => Some(dumped(source, path).map_err(ExitWith::NoAnswer)?),
        None if cluster.live => Some(live(args).map_err(ExitWith::NoAnswer)?),
        None => None,
    };
    let told = source.rehearsal.kubernetes.as_ref().and_then(|text| text.parse::<ClusterVersion>().ok());
    let objects = read.map(|read| with_settings(read, told));
    Scene::new(&source.rehearsal, objects).map_err(|error| source.broken(&error.field, &error.message))
}

/// What was read of a cluster.
struct Read {
    objects: Vec<Value>,
    taken: Option<Timestamp>,
    version: Option<String>,
}

fn is_needed(kind: &str) -> bool {
    !matches!(kind, "Secret" | "ConfigMap")
}

fn dumped(source: &Source, path: &str) -> anyhow::Result<Read> {
    let dump = stead_dump::read(&[source.path(path)], &|_, kind| is_needed(kind), DEFAULT_MAX_SIZE)?;
    dump.warnings.iter().for_each(|warning| complain("warning", warning));
    Ok(Read {
        objects: dump.items.iter().map(|item| item.value()).collect(),
        taken: dump.taken.and_then(|taken| taken.parse().ok()),
        version: dump.kubernetes,
    })
}

fn live(args: &RehearseArgs) -> anyhow::Result<Read> {
    let collected = server::run(dump::live(&args.connect)).context("cannot read the cluster")?;
    let warnings = collected.unread.iter();
    warnings.for_each(|unread| complain("warning", &format!("not read: {}: {}", unread.kind, unread.reason)));
    Ok(Read {
        taken: collected.origin.taken.parse().ok(),
        version: collected.origin.kubernetes,
        objects: collected.lists.into_values().flatten().collect(),
    })
}

/// The objects with the time, the version and the timers of their cluster.
fn with_settings(read: Read, told: Option<ClusterVersion>) -> ClusterObjects {
    let mut objects = Objects::from_items(read.objects.iter().cloned().map(UnreadObject::Value));
    let kubelets = objects.nodes().filter_map(|node| node.kubelet_version()?.parse::<ClusterVersion>().ok());
    let newest = kubelets.max_by_key(|version| version.reported_minor);
    let version = told.or_else(|| read.version.as_ref()?.parse().ok()).or(newest);
    if let Some(version) = version {
        objects.set_version(version.used);
    }
    let mut settings = Settings::of(objects.version());
    apply(&ClusterTimers::of(&objects).timers, &mut settings);
    let taken = read.taken.or_else(|| outage::newest(&objects));
    ClusterObjects {
        objects: read.objects,
        taken: Some(taken.unwrap_or_else(Timestamp::now)),
        settings: Some(settings),
    }
}

/// Applies the timers that the cluster's own objects tell.
fn apply(found: &Timers, settings: &mut Settings) {
    let rate = |interval: Option<jiff::SignedDuration>| interval.map_or(0.0, |interval| 1.0 / interval.as_secs_f64());
    settings.timers = ControllerTimers {
        node_monitor_grace: found.node_monitor_grace,
        node_monitor_period: found.node_monitor_period,
        node_eviction_rate: rate(found.eviction_interval),
        secondary_node_eviction_rate: rate(found.secondary_eviction_interval),
        unhealthy_zone_threshold: found.unhealthy_zone_threshold,
        large_cluster_size: found.large_zone,
        pod_gc_period: found.pod_gc_period,
        orphan_quarantine: found.orphan_quarantine,
        force_detach: found.force_detach,
        ..settings.timers.clone()
    };
    settings.kubelet.status_period = found.node_status_period;
}
