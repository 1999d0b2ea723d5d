//! `stead explain`: why objects are not healthy, and how to fix it.

mod selectors;
mod targets;

use std::collections::BTreeSet;

use anyhow::{anyhow, bail};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use stead_explain::outage::{self, Clock, ClusterTimers};
use stead_explain::{
    ClientAtHand, PodState, SuggestsCommands, control_plane, explain_object, glance, render_object, topology,
};
use stead_model::{Kind, ObjectKey, Objects};

use crate::args::{ExplainArgs, Format};
use crate::client_at_hand;
use crate::cluster::{self, Scope, Seen};
use crate::output::{self, ExitWith, Hinted, Outcome, complain};
use selectors::Selectors;
use targets::Targets;

pub(crate) use targets::explained_kinds;

/// Kinds beyond those of placement that tell where a rule comes from and who owns what.
const OWNERS: [&str; 9] = [
    "Topology",
    "Glance",
    "GlanceAPI",
    "OpenStackControlPlane",
    "Deployment",
    "DaemonSet",
    "Job",
    "CronJob",
    "ResourceQuota",
];

/// Kinds that tell about the health of nodes.
const OUTAGE: [&str; 2] = ["Lease", "Event"];

/// The further kinds that are read for an explanation.
fn wanted(kind: &str) -> (Vec<&'static str>, Scope) {
    match kind {
        "Node" | "PersistentVolume" | "Namespace" => {
            (OWNERS[4..].iter().chain(&OUTAGE).copied().collect(), Scope::Cluster)
        }
        "Topology" | "Glance" | "GlanceAPI" | "OpenStackControlPlane" => (OWNERS.to_vec(), Scope::Namespace),
        _ => (OWNERS.iter().chain(&OUTAGE).copied().collect(), Scope::Namespace),
    }
}

/// The further kinds that are read for several explanations.
fn wanted_by_all<'a>(kinds: impl Iterator<Item = &'a Kind>, all_namespaces: bool) -> (Vec<&'static str>, Scope) {
    let mut all = (BTreeSet::new(), if all_namespaces { Scope::Cluster } else { Scope::Namespace });
    for (more, scope) in kinds.map(|kind| wanted(kind.kind)) {
        all.0.extend(more);
        if scope == Scope::Cluster {
            all.1 = scope;
        }
    }
    (all.0.into_iter().collect(), all.1)
}

/// The time of the objects: the present for a live cluster, otherwise when the dump was taken.
pub(super) fn clock(args: &ExplainArgs, objects: &Objects, taken: Option<Timestamp>) -> Clock {
    let mut found = ClusterTimers::of(objects);
    args.timers.apply(&mut found);
    let settings = found.settings();
    let mut timers = found.timers;
    timers.controllers_since = timers.controllers_since.or_else(|| outage::controllers_since(objects));
    let dumped = || taken.or_else(|| outage::newest(objects)).unwrap_or_else(Timestamp::now);
    let read = || if args.source.from.is_empty() { Timestamp::now() } else { dumped() };
    let now = args.now.unwrap_or_else(read);
    Clock { settings, ..Clock::new(objects, now, timers) }
}

pub(crate) fn run(args: &ExplainArgs) -> anyhow::Result<Outcome> {
    let targets = targets::parse(&args.targets)?;
    let kinds: Vec<&Kind> = match &targets {
        Targets::Everything => return super::triage::run(args),
        Targets::Selected(kind) => vec![kind],
        Targets::Named(named) if args.selector.is_some() || args.field_selector.is_some() || args.all_namespaces => {
            let (kind, name) = named[0];
            let kind = kind.kind.to_lowercase();
            return Err(ExitWith::Usage(anyhow!("a selector or -A cannot be used with a name ({kind} {name})")).into());
        }
        Targets::Named(named) => named.iter().map(|(kind, _)| *kind).collect(),
    };
    let mut seen = {
        let (more, scope) = wanted_by_all(kinds.iter().copied(), args.all_namespaces);
        cluster::read(&args.source, &more, scope)?
    };
    // A warning was printed that it may not be listed: whether it exists is unknown.
    if let Some(kind) = kinds.iter().find(|kind| args.source.from.is_empty() && !seen.kinds.contains(kind.kind)) {
        let asked = args.targets.join(" ");
        return Err(ExitWith::NoAnswer(anyhow!("cannot explain {asked}: {} may not be listed", kind.plural)).into());
    }
    let objects = seen.objects(&args.source.control_plane, [])?;
    let Seen { kinds, namespace, place, taken, .. } = seen;
    let question = Question { args, objects, kinds, namespace, place, taken };
    let answers = question.answer(&targets);
    // An error names the object that it is about, which is then not ignored.
    for warning in question.objects.warnings().iter().filter(|_| answers.is_ok()) {
        complain("warning", &format!("{warning}: the object is ignored"));
    }
    let outcome = answers.and_then(|answers| print(args.output, &answers));
    // The process ends now. Giving back the memory of a large cluster object by object takes a while.
    std::mem::forget(question.objects);
    outcome
}

/// What is asked, and what was read to answer it.
struct Question<'a> {
    args: &'a ExplainArgs,
    objects: Objects,
    /// The kinds that were read, even those without objects.
    kinds: BTreeSet<String>,
    namespace: Option<String>,
    place: &'static str,
    /// When the dump was taken, if it says so.
    taken: Option<Timestamp>,
}

/// The explanation of one object.
struct Answer {
    text: String,
    value: Value,
    outcome: Outcome,
}

impl Answer {
    fn new<T: Serialize>(explanation: &T, render: fn(&T) -> String, known: bool) -> anyhow::Result<Answer> {
        let outcome = if known { Outcome::Yes } else { Outcome::No };
        Ok(Answer { text: render(explanation), value: serde_json::to_value(explanation)?, outcome })
    }

    /// The same for an explanation with commands, which are written for the client at hand.
    fn with_commands<T: Serialize + SuggestsCommands>(
        mut explanation: T,
        render: fn(&T) -> String,
        known: bool,
        client: &ClientAtHand,
    ) -> anyhow::Result<Answer> {
        explanation.use_client(client);
        Answer::new(&explanation, render, known)
    }
}

/// Prints one explanation as it is, several as a list.
fn print(format: Format, answers: &[Answer]) -> anyhow::Result<Outcome> {
    let value = match answers {
        [one] => one.value.clone(),
        several => several.iter().map(|answer| answer.value.clone()).collect(),
    };
    match format {
        Format::Table | Format::Wide => {
            let texts: Vec<&str> = answers.iter().map(|answer| answer.text.as_str()).collect();
            output::text(&texts.join("\n"))?;
        }
        Format::Json => output::json(&value)?,
        Format::Yaml => output::yaml(&value)?,
    }
    let all_known = answers.iter().all(|answer| answer.outcome == Outcome::Yes);
    Ok(if all_known { Outcome::Yes } else { Outcome::No })
}

impl Question<'_> {
    fn answer(&self, targets: &Targets<'_>) -> anyhow::Result<Vec<Answer>> {
        match targets {
            Targets::Everything => Ok(Vec::new()),
            Targets::Named(named) => named.iter().map(|(kind, name)| self.named(kind, name)).collect(),
            Targets::Selected(kind) => {
                let keys = self.selected(kind)?;
                if keys.is_empty() {
                    bail!("no {} found {}", kind.plural, self.place);
                }
                keys.iter().map(|key| self.explain(key)).collect()
            }
        }
    }

    /// The objects of a kind that the selectors select.
    fn selected(&self, kind: &Kind) -> anyhow::Result<Vec<ObjectKey>> {
        let args = self.args;
        let selectors = Selectors::parse(args.selector.as_deref(), args.field_selector.as_deref(), kind.kind)
            .map_err(ExitWith::Usage)?;
        let namespace = self.namespace.as_deref().filter(|_| kind.namespaced && !args.all_namespaces);
        let inside = |key: &ObjectKey| namespace.is_none_or(|namespace| namespace == key.namespace);
        let found = self.objects.of_kind(kind.kind).filter(|object| inside(object.key()) && selectors.select(*object));
        Ok(found.map(|object| object.key().clone()).collect())
    }

    /// Explains the object of a name: in the given namespace, or in the only one that has it.
    fn named(&self, kind: &Kind, name: &str) -> anyhow::Result<Answer> {
        let namespace = self.namespace.as_deref();
        match kind.kind {
            // Deleted nodes are explained as long as something refers to them.
            "Node" => self.explain(&ObjectKey::node(name)),
            _ if !kind.namespaced => self.explain(&ObjectKey::cluster(kind.kind, name)),
            // A Topology that does not exist is explained by the objects that refer to it.
            "Topology" => self.explain(&match find(&self.objects, kind.kind, name, namespace, self.place) {
                Err(error) => topology_namespace(&self.objects, name, namespace).ok_or(error)?,
                found => found?,
            }),
            _ => self.explain(&find(&self.objects, kind.kind, name, namespace, self.place)?),
        }
    }

    fn explain(&self, key: &ObjectKey) -> anyhow::Result<Answer> {
        let (objects, kinds) = (&self.objects, &self.kinds);
        let missing = || anyhow!("{key} not found {}", self.place);
        let client = client_at_hand::find(&self.args.source.connect);
        match key.kind.as_str() {
            "Topology" => {
                let explanation = topology::explain(objects, key, kinds)?;
                if !explanation.exists && explanation.references.is_empty() {
                    return Err(missing());
                }
                let exists = explanation.exists;
                Answer::with_commands(explanation, topology::render, exists, &client)
            }
            "Glance" | "GlanceAPI" => {
                let explanation = glance::explain(objects, key, kinds)?.ok_or_else(missing)?;
                Answer::with_commands(explanation, glance::render, true, &client)
            }
            "OpenStackControlPlane" => {
                let explained = control_plane::explain(objects, key, kinds)?;
                Answer::new(&explained.ok_or_else(missing)?, control_plane::render, true)
            }
            "Node" => {
                let explained =
                    outage::explain_node(objects, &key.name, kinds, &clock(self.args, objects, self.taken))?;
                Answer::with_commands(explained.ok_or_else(missing)?, outage::render_node, true, &client)
            }
            "Pod" => {
                let explanation = stead_explain::explain(objects, key, kinds, &clock(self.args, objects, self.taken))?;
                let known = explanation.state != PodState::Unknown;
                Answer::with_commands(explanation, stead_explain::render, known, &client)
            }
            _ => {
                let explained = explain_object(objects, key, kinds, &clock(self.args, objects, self.taken))?;
                Answer::with_commands(explained.ok_or_else(missing)?, render_object, true, &client)
            }
        }
    }
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
