//! `stead explain KIND/NAME`: why a pod waits and how to fix it; the pods and volumes of a node; a Topology or a Glance.

use std::collections::BTreeSet;

use anyhow::bail;
use jiff::Timestamp;
use serde::Serialize;
use stead_explain::outage::{self, Clock};
use stead_explain::{PodState, glance, topology};
use stead_model::{ObjectKey, Objects};

use crate::args::{ExplainArgs, Format};
use crate::cluster::{self, Scope, Seen};
use crate::output::{self, Hinted, Outcome, complain};

/// Kinds beyond those of placement that tell where a rule comes from and who owns what.
const OWNERS: [&str; 7] =
    ["Topology", "Glance", "GlanceAPI", "OpenStackControlPlane", "Deployment", "DaemonSet", "Job"];

/// Kinds that tell about the health of nodes.
const OUTAGE: [&str; 2] = ["Lease", "Event"];

/// The further kinds that are read for an explanation.
fn wanted(kind: &str) -> (Vec<&'static str>, Scope) {
    match kind {
        "Node" => (OWNERS[4..].iter().chain(&OUTAGE).copied().collect(), Scope::Cluster),
        "Pod" => (OWNERS.iter().chain(&OUTAGE).copied().collect(), Scope::Namespace),
        _ => (OWNERS.to_vec(), Scope::Namespace),
    }
}

/// The time of the objects: the present for a live cluster.
fn clock(args: &ExplainArgs, objects: &Objects) -> Clock {
    let mut timers = args.timers.timers();
    timers.controllers_since = timers.controllers_since.or_else(|| outage::controllers_since(objects));
    let dumped = || outage::newest(objects).unwrap_or_else(Timestamp::now);
    let now = if args.source.from.is_empty() { Timestamp::now() } else { args.now.unwrap_or_else(dumped) };
    Clock::new(objects, now, timers)
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Outcome> {
    let (kind, _) = target(&args.target)?;
    let Seen { items, kinds, namespace, place } = {
        let (more, scope) = wanted(kind);
        cluster::read(&args.source, &more, scope)?
    };
    // A warning was printed that it may not be listed: whether it exists is unknown.
    if args.source.from.is_empty() && !kinds.contains(kind) {
        bail!("cannot explain {}: {kind} objects may not be listed", args.target);
    }
    let objects = Objects::from_items(items);
    let outcome = answer(args, &objects, &kinds, namespace.as_deref(), place);
    // An error names the object that it is about, which is then not ignored.
    for warning in objects.warnings().iter().filter(|_| outcome.is_ok()) {
        complain("warning", &format!("{warning}: the object is ignored"));
    }
    outcome
}

fn answer(
    args: &ExplainArgs,
    objects: &Objects,
    kinds: &BTreeSet<String>,
    namespace: Option<&str>,
    place: &str,
) -> anyhow::Result<Outcome> {
    let (kind, name) = target(&args.target)?;
    let missing = |key: &ObjectKey| anyhow::anyhow!("{key} not found {place}");
    match kind {
        "Topology" => {
            // A Topology that does not exist is explained by the objects that refer to it.
            let key = match find(objects, kind, name, namespace, place) {
                Err(error) => topology_namespace(objects, name, namespace).ok_or(error)?,
                found => found?,
            };
            let explanation = topology::explain(objects, &key, kinds)?;
            if !explanation.exists && explanation.references.is_empty() {
                return Err(missing(&key));
            }
            print(args.output, &explanation, topology::render)?;
            Ok(if explanation.exists { Outcome::Yes } else { Outcome::No })
        }
        "Glance" | "GlanceAPI" => {
            let key = find(objects, kind, name, namespace, place)?;
            let explanation = glance::explain(objects, &key, kinds)?.ok_or_else(|| missing(&key))?;
            print(args.output, &explanation, glance::render)?;
            Ok(Outcome::Yes)
        }
        "Node" => {
            let clock = clock(args, objects);
            let explained = outage::explain_node(objects, name, kinds, &clock)?;
            let explanation = explained.ok_or_else(|| missing(&ObjectKey::node(name)))?;
            print(args.output, &explanation, outage::render_node)?;
            Ok(Outcome::Yes)
        }
        _ => {
            let key = find(objects, kind, name, namespace, place)?;
            let explanation = stead_explain::explain(objects, &key, kinds, &clock(args, objects))?;
            print(args.output, &explanation, stead_explain::render)?;
            Ok(if explanation.state == PodState::Unknown { Outcome::No } else { Outcome::Yes })
        }
    }
}

fn print<T: Serialize>(format: Format, answer: &T, render: fn(&T) -> String) -> anyhow::Result<()> {
    match format {
        Format::Table | Format::Wide => output::text(&render(answer)),
        Format::Json => output::json(answer),
        Format::Yaml => output::yaml(answer),
    }
}

/// The kind and the name in `KIND/NAME`.
fn target(target: &str) -> anyhow::Result<(&'static str, &str)> {
    let unknown = || Hinted {
        message: format!("cannot explain {target:?}"),
        hint: "use pod/NAME, node/NAME, topology/NAME, glance/NAME or glanceapi/NAME".into(),
    };
    let (kind, name) = target.split_once('/').filter(|(_, name)| !name.is_empty()).ok_or_else(unknown)?;
    let kind = match kind.to_lowercase().as_str() {
        "pod" | "pods" | "po" => "Pod",
        "node" | "nodes" | "no" => "Node",
        "topology" | "topologies" | "topo" | "topologies.topology.openstack.org" => "Topology",
        "glance" | "glances" | "glances.glance.openstack.org" => "Glance",
        "glanceapi" | "glanceapis" | "glanceapis.glance.openstack.org" => "GlanceAPI",
        _ => return Err(unknown().into()),
    };
    Ok((kind, name))
}

/// The object of that name: in the given namespace, or in the only one that has it.
fn find(objects: &Objects, kind: &str, name: &str, namespace: Option<&str>, place: &str) -> anyhow::Result<ObjectKey> {
    let found: Vec<&ObjectKey> =
        objects.keys(kind).filter(|key| key.name == name && namespace.is_none_or(|n| n == key.namespace)).collect();
    let word = kind.to_lowercase();
    match (found.as_slice(), namespace) {
        ([key], _) => Ok((*key).clone()),
        ([], Some(namespace)) => bail!("{word} {namespace}/{name} not found {place}"),
        ([], None) => bail!("{word} {name} not found {place}"),
        (several, _) => {
            let namespaces: Vec<&str> = several.iter().map(|k| k.namespace.as_str()).collect();
            Err(Hinted {
                message: format!("{word} {name} is in several namespaces: {}", namespaces.join(", ")),
                hint: "choose one with -n".into(),
            }
            .into())
        }
    }
}

/// The key of a Topology that does not exist: in the given namespace, or in that of the objects that could refer to it,
/// where these are all in one.
fn topology_namespace(objects: &Objects, name: &str, namespace: Option<&str>) -> Option<ObjectKey> {
    if let Some(namespace) = namespace {
        return Some(ObjectKey::new("Topology", namespace, name));
    }
    let kinds = ["OpenStackControlPlane", "Glance", "GlanceAPI"];
    let mut namespaces: Vec<&str> =
        kinds.iter().flat_map(|kind| objects.keys(kind)).map(|key| key.namespace.as_str()).collect();
    namespaces.dedup();
    match namespaces.as_slice() {
        [namespace] => Some(ObjectKey::new("Topology", namespace, name)),
        _ => None,
    }
}
