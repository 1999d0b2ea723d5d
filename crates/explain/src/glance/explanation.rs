//! The whole answer about one Glance, or about one of its APIs.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::references::{Chosen, chosen, controller, entry, titled};
use crate::topology::{stateful_set, there_are};
use crate::workload_pods::{Observer, PodStanding};
use stead_model::{ModelError, ObjectKey, Objects};

/// How a Glance stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GlanceExplanation {
    /// The kind that was asked about: Glance, or GlanceAPI.
    pub kind: String,
    /// Namespace and name.
    pub name: String,
    /// How it stands, in a sentence.
    pub summary: String,
    /// What its own conditions say that is not well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// What conditions say that its pods do not wait for, such as a neighbour that is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Its APIs.
    pub apis: Vec<Api>,
    /// What the answer depends on and was not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(skip)]
    pub(super) namespace: String,
}

/// One API, as far as it has pods of its own: a split one is two.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Api {
    /// The entry of `glanceAPIs`.
    pub entry: String,
    /// The GlanceAPI's name; none where it has not been made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// single, external, internal or edge; split where nothing has been made.
    #[serde(rename = "type")]
    pub sort: String,
    /// Pods that are ready.
    pub ready: usize,
    /// Pods that are wanted.
    pub wanted: u64,
    /// The Topology that is meant for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Chosen>,
    /// Where its pods keep data.
    pub storage: String,
    /// What is not well, a line each; the pods that wait are below.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
    /// Its pods.
    pub pods: Vec<PodStanding>,
}

impl Api {
    /// Whether all is well with it.
    pub fn is_well(&self) -> bool {
        self.faults.is_empty() && u64::try_from(self.ready).is_ok_and(|ready| ready >= self.wanted)
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
    let Some(object) = objects.raw(key) else { return Ok(None) };
    let mut observer = Observer::new(objects, kinds);
    let mut apis = Vec::new();
    let made: Vec<(&ObjectKey, &Value)> = objects
        .raw_of_kind("GlanceAPI")
        .filter(|(api, value)| match key.kind.as_str() {
            "Glance" => controller(objects, value, "Glance").is_some_and(|(glance, _)| glance == *key),
            _ => *api == key,
        })
        .collect();
    for (api_key, api) in &made {
        apis.push(one(objects, kinds, &mut observer, api_key, api)?);
    }
    if key.kind == "Glance" {
        apis.extend(not_made(object, &apis));
        apis.sort_by(|a, b| (&a.entry, &a.name).cmp(&(&b.entry, &b.name)));
    }
    let needs = ["GlanceAPI", "StatefulSet", "Pod"];
    let missing: Vec<&str> = needs.into_iter().filter(|k| !kinds.contains(*k)).collect();
    let notes = if missing.is_empty() { Vec::new() } else { vec![format!("no {} were read", missing.join(", "))] };
    let mut remarks: Vec<String> = Vec::new();
    for said in made.iter().map(|(_, api)| *api).chain([object]).flat_map(self::remarks) {
        // A Glance says in short what its APIs say in full.
        if !remarks.iter().any(|other| other.starts_with(&said)) {
            remarks.push(said);
        }
    }
    Ok(Some(GlanceExplanation {
        kind: key.kind.clone(),
        name: format!("{}/{}", key.namespace, key.name),
        summary: summary(object, &apis),
        conditions: if key.kind == "Glance" { conditions(object) } else { Vec::new() },
        remarks,
        apis,
        notes,
        namespace: key.namespace.clone(),
    }))
}

fn one(
    objects: &Objects,
    kinds: &BTreeSet<String>,
    observer: &mut Observer<'_>,
    key: &ObjectKey,
    api: &Value,
) -> Result<Api, ModelError> {
    let topology = chosen(objects, key, api);
    let rules = topology.as_ref().and_then(|c| c.topology.as_deref());
    let found = rules.map(|name| objects.raw(&ObjectKey::new("Topology", &key.namespace, name)));
    let domain = found.flatten().and_then(spread_key);
    let set = stateful_set(objects, key);
    let pods = match &set {
        Some((set, _)) => observer.pods_of(set, domain)?,
        None => Vec::new(),
    };
    let wanted = api["spec"]["replicas"].as_u64().unwrap_or(1);
    let mut faults = Vec::new();
    if let (Some(name), Some(None), true) = (rules, found, kinds.contains("Topology")) {
        let there = there_are(objects, &key.namespace);
        faults.push(format!("Topology {name} does not exist: {}; {there}", refers(topology.as_ref())));
    }
    match &set {
        None => faults.push("it has no StatefulSet yet".to_owned()),
        Some((set, _)) => {
            let made = u64::try_from(pods.len()).unwrap_or(u64::MAX);
            if made < wanted {
                faults.push(format!("{} has made {made} of {wanted} pods so far", titled(set)));
            }
        }
    }
    if let Some(since) = api["metadata"]["deletionTimestamp"].as_str() {
        faults.push(format!("it is being deleted since {since}"));
    }
    // The pods that wait are told one by one, with more than the condition says.
    let told = pods.iter().any(|pod| pod.waiting.is_some());
    faults.extend(conditions(api).into_iter().filter(|c| !(told && c.starts_with("condition PodsScheduled "))));
    let glance = controller(objects, api, "Glance").map_or(&Value::Null, |(_, glance)| glance);
    Ok(Api {
        entry: entry(key, api, glance).unwrap_or_default().to_owned(),
        name: Some(key.name.clone()),
        sort: api["spec"]["apiType"].as_str().unwrap_or("single").to_owned(),
        ready: pods.iter().filter(|p| p.ready).count(),
        wanted,
        topology,
        storage: storage(&api["spec"]["storage"]),
        faults,
        pods,
    })
}

fn refers(chosen: Option<&Chosen>) -> String {
    chosen.map_or(String::new(), |c| format!("{} names it ({})", c.reference, c.level.as_str()))
}

fn spread_key(topology: &Value) -> Option<&str> {
    let rules = crate::topology::constraints(topology).1.as_array()?;
    rules.iter().filter_map(|r| r["topologyKey"].as_str()).find(|k| *k != "kubernetes.io/hostname")
}

/// The entries of a Glance's spec for which nothing has been made.
fn not_made(glance: &Value, made: &[Api]) -> Vec<Api> {
    let entries = glance["spec"]["glanceAPIs"].as_object().into_iter().flatten();
    entries
        .filter(|(entry, _)| !made.iter().any(|a| a.entry == **entry))
        .map(|(entry, template)| Api {
            entry: entry.clone(),
            name: None,
            sort: template["type"].as_str().unwrap_or("split").to_owned(),
            ready: 0,
            wanted: template["replicas"].as_u64().unwrap_or(1),
            topology: None,
            storage: "-".into(),
            faults: vec!["no GlanceAPI has been made for it yet".into()],
            pods: Vec::new(),
        })
        .collect()
}

/// Where pods keep data, in a few words.
fn storage(storage: &Value) -> String {
    if storage["external"] == true {
        return "external".into();
    }
    match (storage["storageRequest"].as_str(), storage["storageClass"].as_str().filter(|c| !c.is_empty())) {
        (Some(size), Some(class)) => format!("{size} of {class}"),
        (Some(size), None) => format!("{size} of the default class"),
        (None, _) => "-".into(),
    }
}

/// The reason of a condition about something that Glance can start without.
const MISSING: &str = "Missing";

fn unmet(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten().filter(|c| c["status"] == "False")
}

/// What conditions say that nothing waits for, in words.
fn remarks(object: &Value) -> Vec<String> {
    let missing = unmet(object).filter(|c| c["reason"] == MISSING);
    missing.filter_map(|c| c["message"].as_str()).map(str::to_owned).collect()
}

/// The conditions that are not well, in words.
fn conditions(object: &Value) -> Vec<String> {
    let mut out: Vec<(String, String)> = Vec::new();
    for c in unmet(object).filter(|c| c["reason"] != MISSING) {
        let text = |field: &str| c[field].as_str().unwrap_or_default();
        let said = format!("{}: {}", text("reason"), text("message"));
        // Ready repeats the first of the others.
        match out.iter_mut().find(|(_, other)| *other == said) {
            Some((types, _)) => *types = format!("{types}, {}", text("type")),
            None => out.push((text("type").to_owned(), said)),
        }
    }
    out.into_iter().map(|(types, said)| format!("condition {types} is False ({said})")).collect()
}

fn summary(object: &Value, apis: &[Api]) -> String {
    if let Some(since) = object["metadata"]["deletionTimestamp"].as_str() {
        return format!("it is being deleted since {since}");
    }
    let (ready, wanted) = (apis.iter().map(|a| a.ready).sum::<usize>(), apis.iter().map(|a| a.wanted).sum::<u64>());
    let stuck = apis.iter().flat_map(|a| &a.pods).filter(|p| p.waiting.is_some()).count();
    let ill = apis.iter().filter(|a| !a.is_well()).count();
    let pods = format!("{ready} of {wanted} pods are ready");
    match (ill, stuck) {
        (0, _) => format!("all is well: {pods}"),
        (_, 0) => pods,
        (_, 1) => format!("{pods}; 1 waits because no node takes it"),
        _ => format!("{pods}; {stuck} wait because no node takes them"),
    }
}
