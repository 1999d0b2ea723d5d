//! Everything about one Glance, or about one of its APIs.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use stead_model::{Condition, Glance, GlanceApi, ModelError, ObjectKey, Objects, Storage, Topology};

use crate::references::{ChosenTopology, chosen, controller, entry, titled};
use crate::suggested_command::{ClientAtHand, SuggestsCommands};
use crate::topology::{Rules, Workloads, there_are};
use crate::workload_pods::{Observer, WorkloadPod, is_well};

/// A Glance and its APIs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GlanceExplanation {
    /// The kind that was asked about: Glance, or GlanceAPI.
    pub kind: String,
    /// Namespace and name.
    pub name: String,
    /// The verdict, in a sentence.
    pub summary: String,
    /// Its own conditions that are False.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Conditions that its pods do not wait for, such as a missing service.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Its APIs.
    pub apis: Vec<GlanceApiState>,
    /// What the answer depends on and was not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl SuggestsCommands for GlanceExplanation {
    fn use_client(&mut self, client: &ClientAtHand) {
        self.apis.iter_mut().flat_map(|api| &mut api.pods).for_each(|pod| pod.use_client(client));
    }
}

/// One API, as far as it has pods of its own: a split one is two.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GlanceApiState {
    /// The entry of `glanceAPIs`.
    pub entry: String,
    /// The GlanceAPI's name; none where it has not been created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// single, external, internal or edge; split where nothing has been created.
    #[serde(rename = "type")]
    pub sort: String,
    /// Pods that are ready.
    pub ready: usize,
    /// Pods that are wanted.
    pub wanted: u64,
    /// The Topology that it is to follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<ChosenTopology>,
    /// Whether that Topology does not exist.
    #[serde(skip)]
    pub(super) topology_missing: bool,
    /// Where its pods keep data.
    pub storage: String,
    /// What is wrong, a line each; the pods that wait are below.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Its pods.
    pub pods: Vec<WorkloadPod>,
}

impl GlanceApiState {
    /// Whether nothing is wrong with it.
    pub fn is_well(&self) -> bool {
        is_well(&self.faults, self.ready, self.wanted)
    }
}

/// Explains a Glance or a GlanceAPI; none where there is no such object. `kinds` are those that were read.
///
/// # Errors
/// Where an object that placement looks at cannot be understood.
pub fn explain(
    objects: &Objects,
    key: &ObjectKey,
    kinds: &BTreeSet<String>,
) -> Result<Option<GlanceExplanation>, ModelError> {
    let whole = key.kind == "Glance";
    let glance = if whole { objects.get::<Glance>(key)? } else { None };
    let asked = if whole { None } else { objects.get::<GlanceApi>(key)? };
    let (metadata, conditions) = match (glance, asked) {
        (Some(glance), _) => (&glance.metadata, &glance.status.conditions),
        (None, Some(api)) => (&api.metadata, &api.status.conditions),
        (None, None) => return Ok(None),
    };
    let mut observer = Observer::new(objects, kinds);
    let mut apis = Vec::new();
    let created: Vec<(&ObjectKey, &GlanceApi)> = objects
        .all::<GlanceApi>()
        .filter(|(api_key, api)| match whole {
            true => controller::<Glance>(objects, &api_key.namespace, &api.metadata)
                .is_some_and(|(glance, _)| glance == *key),
            false => *api_key == key,
        })
        .collect();
    for (api_key, api) in &created {
        apis.push(one(objects, kinds, &mut observer, api_key, api)?);
    }
    if let Some(glance) = glance {
        apis.extend(not_created(glance, &apis));
        apis.sort_by(|a, b| (&a.entry, &a.name).cmp(&(&b.entry, &b.name)));
    }
    let needs = ["GlanceAPI", "StatefulSet", "Pod"];
    let missing: Vec<&str> = needs.into_iter().filter(|k| !kinds.contains(*k)).collect();
    let notes = if missing.is_empty() { Vec::new() } else { vec![format!("no {} were read", missing.join(", "))] };
    let mut remarks: Vec<String> = Vec::new();
    let reported = created.iter().map(|(_, api)| &api.status.conditions).chain([conditions]);
    for remark in reported.flat_map(|conditions| self::remarks(conditions)) {
        // A Glance says in short what its APIs say in full.
        if !remarks.iter().any(|other| other.starts_with(&remark)) {
            remarks.push(remark);
        }
    }
    Ok(Some(GlanceExplanation {
        kind: key.kind.clone(),
        name: format!("{}/{}", key.namespace, key.name),
        summary: summary(metadata, &apis),
        conditions: if whole { unmet_conditions(conditions, false) } else { Vec::new() },
        remarks,
        apis,
        notes,
    }))
}

fn one(
    objects: &Objects,
    kinds: &BTreeSet<String>,
    observer: &mut Observer<'_>,
    key: &ObjectKey,
    api: &GlanceApi,
) -> Result<GlanceApiState, ModelError> {
    let topology = chosen(objects, key);
    let rules = topology.as_ref().and_then(|c| c.topology.as_deref());
    let found = rules.map(|name| objects.find::<Topology>(&key.namespace, name));
    let domain = found.flatten().and_then(spread_key);
    let workloads = Workloads::of(objects, &key.namespace);
    let set = workloads.of_owner(key).first();
    let pods = match set {
        Some(set) => observer.pods_of(set, domain.as_deref())?,
        None => Vec::new(),
    };
    let wanted = u64::try_from(api.spec.replicas.unwrap_or(1)).unwrap_or_default();
    let mut faults = Vec::new();
    let topology_missing = matches!(found, Some(None)) && kinds.contains("Topology");
    if let (Some(name), true) = (rules, topology_missing) {
        let there = there_are(objects, &key.namespace);
        faults.push(format!("Topology {name} does not exist: {}; {there}", refers(topology.as_ref())));
    }
    match set {
        None => faults.push("it has no StatefulSet yet".to_owned()),
        Some(set) => {
            let created = u64::try_from(pods.len()).unwrap_or(u64::MAX);
            if created < wanted {
                faults.push(format!("{} has created {created} of {wanted} pods so far", titled(set)));
            }
        }
    }
    if let Some(since) = &api.metadata.deletion_timestamp {
        faults.push(format!("it is being deleted since {}", since.0));
    }
    // The pods that wait are listed one by one, with more than the condition says.
    let listed = pods.iter().any(|pod| pod.waiting.is_some());
    faults.extend(unmet_conditions(&api.status.conditions, listed));
    let glance = controller::<Glance>(objects, &key.namespace, &api.metadata).map(|(glance, _)| glance);
    Ok(GlanceApiState {
        entry: entry(key, api, glance.as_ref()).unwrap_or_default().to_owned(),
        name: Some(key.name.clone()),
        sort: api.spec.api_type.clone().unwrap_or_else(|| "single".into()),
        ready: pods.iter().filter(|p| p.ready).count(),
        wanted,
        topology,
        topology_missing,
        storage: storage(&api.spec.storage.clone().unwrap_or_default()),
        faults,
        pods,
    })
}

fn refers(chosen: Option<&ChosenTopology>) -> String {
    chosen.map_or(String::new(), |c| format!("{} names it ({})", c.reference, c.level))
}

fn spread_key(topology: &Topology) -> Option<String> {
    let rules = Rules::of(topology);
    rules.spread.into_iter().map(|rule| rule.topology_key).find(|key| key != "kubernetes.io/hostname")
}

/// The entries of a Glance's spec for which nothing has been created.
fn not_created(glance: &Glance, created: &[GlanceApiState]) -> Vec<GlanceApiState> {
    let entries = glance.spec.glance_apis.iter();
    entries
        .filter(|(entry, _)| !created.iter().any(|a| a.entry == **entry))
        .map(|(entry, template)| GlanceApiState {
            entry: entry.clone(),
            name: None,
            sort: template.r#type.clone().unwrap_or_else(|| "split".into()),
            ready: 0,
            wanted: u64::try_from(template.replicas.unwrap_or(1)).unwrap_or_default(),
            topology: None,
            topology_missing: false,
            storage: "-".into(),
            faults: vec!["no GlanceAPI has been created for it yet".into()],
            pods: Vec::new(),
        })
        .collect()
}

/// Where pods keep data, in a few words.
fn storage(storage: &Storage) -> String {
    if storage.external == Some(true) {
        return "external".into();
    }
    match (&storage.storage_request, storage.storage_class.as_ref().filter(|class| !class.is_empty())) {
        (Some(size), Some(class)) => format!("{size} of {class}"),
        (Some(size), None) => format!("{size} of the default class"),
        (None, _) => "-".into(),
    }
}

/// The reason of a condition about something that Glance can start without.
const MISSING: &str = "Missing";

fn unmet(conditions: &[Condition]) -> impl Iterator<Item = &Condition> {
    conditions.iter().filter(|condition| condition.status == "False")
}

/// The messages of conditions that nothing waits for.
fn remarks(conditions: &[Condition]) -> Vec<String> {
    let missing = unmet(conditions).filter(|c| c.reason.as_deref() == Some(MISSING));
    missing.filter_map(|c| c.message.clone()).collect()
}

/// The conditions that are False, in words; without the one about pods that wait for a node, if they are listed.
fn unmet_conditions(conditions: &[Condition], pods_listed: bool) -> Vec<String> {
    let mut out: Vec<(String, String)> = Vec::new();
    for c in unmet(conditions).filter(|c| c.reason.as_deref() != Some(MISSING)) {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let said = format!("{}: {}", text(&c.reason), text(&c.message));
        // Ready repeats the first of the others.
        match out.iter_mut().find(|(_, other)| *other == said) {
            Some((types, _)) => *types = format!("{types}, {}", c.r#type),
            None => out.push((c.r#type.clone(), said)),
        }
    }
    out.retain(|(types, _)| !(pods_listed && types == "PodsScheduled"));
    out.into_iter().map(|(types, said)| format!("condition {types} is False ({said})")).collect()
}

fn summary(metadata: &ObjectMeta, apis: &[GlanceApiState]) -> String {
    if let Some(since) = &metadata.deletion_timestamp {
        return format!("being deleted since {}", since.0);
    }
    let (ready, wanted) = (apis.iter().map(|a| a.ready).sum::<usize>(), apis.iter().map(|a| a.wanted).sum::<u64>());
    let stuck = apis.iter().flat_map(|a| &a.pods).filter(|p| p.waiting.is_some()).count();
    let healthy = apis.iter().all(GlanceApiState::is_well);
    let pods = format!("{ready} of {wanted} pods are ready");
    match stuck {
        _ if healthy => format!("healthy: {pods}"),
        0 => pods,
        1 => format!("{pods}; no node can run 1 pod"),
        stuck => format!("{pods}; no node can run {stuck} pods"),
    }
}
