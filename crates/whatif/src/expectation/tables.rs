//! Tables of pods and nodes, compared with the cluster.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use stead_semantics::labels::Selector;
use stead_sim::Simulation;

use super::row_matching::{FoundRow, TextTable, match_rows};
use super::{Expectation, Pattern, View};
use crate::pod_table::{COLUMNS, PodRow, age, table};

/// The labels that say in which zone a node is.
pub(crate) const ZONE_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "zone"];

/// The columns of `kubectl get nodes`.
pub(super) const NODE_COLUMNS: [&str; 5] = ["NAME", "STATUS", "ROLES", "AGE", "VERSION"];

/// The prefix of the labels that say which roles a node has.
const ROLE: &str = "node-role.kubernetes.io/";

/// The zone of a node: the value of its zone label.
pub(crate) fn zone_of(simulation: &Simulation, node: &str) -> Option<String> {
    let node = simulation.store().get::<Node>("", node)?;
    let labels = node.metadata.labels.as_ref()?;
    ZONE_LABELS.iter().find_map(|label| labels.get(*label)).cloned()
}

/// The status of a node's condition Ready.
pub(crate) fn node_ready(node: &Node) -> &str {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == "Ready").map_or("", |condition| condition.status.as_str())
}

impl View<'_> {
    /// A row as it is printed at each time that counts as now.
    fn at_all_times(self, row: impl Fn(Timestamp) -> Vec<String>) -> FoundRow {
        let (now, seconds) = (self.simulation.now(), self.age_tolerance.as_secs());
        let other = (1..=seconds).flat_map(|seconds| [seconds, -seconds]).map(SignedDuration::from_secs);
        let times = std::iter::once(now).chain(other.filter_map(|other| now.checked_add(other).ok()));
        times.map(row).collect()
    }
}

impl Expectation {
    pub(super) fn check_pods(&self, view: View<'_>) -> Result<(), String> {
        let Some(text) = &self.pods else { return Ok(()) };
        let selector = match &self.selector {
            Some(text) => Selector::parse(text).map_err(|error| error.to_string())?,
            None => Selector::everything(),
        };
        let is_chosen = |pod: &&std::sync::Arc<Pod>| {
            selector.matches(pod.metadata.labels.as_ref().unwrap_or(&Default::default()))
                && self.has_name(pod.metadata.name.as_deref().unwrap_or_default())
                && self.is_on_node(view, pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()))
        };
        let pods = view.simulation.store().all_in::<Pod>(view.namespace).filter(is_chosen);
        let rows = pods.map(|pod| view.at_all_times(|now| PodRow::of(pod, now).cells.to_vec())).collect();
        compare(view, text, &COLUMNS, rows)
    }

    fn has_name(&self, name: &str) -> bool {
        self.names.as_ref().is_none_or(|names| names.split('|').any(|pattern| Pattern::new(pattern).matches(name)))
    }

    fn is_on_node(&self, view: View<'_>, node: Option<&str>) -> bool {
        let matches = |wanted: &String| match wanted.strip_prefix("zone:") {
            Some(zone) => node.and_then(|node| zone_of(view.simulation, node)).as_deref() == Some(zone),
            None => node == Some(wanted),
        };
        self.on.is_empty() || self.on.iter().any(matches)
    }

    pub(super) fn check_nodes(&self, view: View<'_>) -> Result<(), String> {
        let Some(text) = &self.nodes else { return Ok(()) };
        let nodes = view.simulation.store().all::<Node>();
        let rows = nodes.map(|node| view.at_all_times(|now| node_row(node, now))).collect();
        compare(view, text, &NODE_COLUMNS, rows)
    }
}

/// A node as `kubectl get nodes` prints it (`printNode` of `pkg/printers/internalversion`).
fn node_row(node: &Node, now: Timestamp) -> Vec<String> {
    let metadata = &node.metadata;
    let mut status = match node_ready(node) {
        "True" => "Ready".to_owned(),
        "" => "Unknown".to_owned(),
        _ => "NotReady".to_owned(),
    };
    if node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = metadata.labels.iter().flatten();
    let roles: Vec<&str> = labels.filter_map(|(label, _)| label.strip_prefix(ROLE)).collect();
    let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    vec![
        metadata.name.clone().unwrap_or_default(),
        status,
        if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") },
        created.map_or_else(|| "<unknown>".to_owned(), |at| age(at, now)),
        info.map(|info| info.kubelet_version.clone()).unwrap_or_default(),
    ]
}

/// Compares a table with rows that have all columns.
fn compare(view: View<'_>, text: &str, columns: &[&'static str], rows: Vec<FoundRow>) -> Result<(), String> {
    let expected = TextTable::parse(text, columns)?;
    let chosen: Vec<usize> =
        expected.columns.iter().filter_map(|name| columns.iter().position(|column| column == name)).collect();
    let cells = |row: &Vec<String>| chosen.iter().map(|at| row[*at].clone()).collect();
    let rows: Vec<FoundRow> = rows.iter().map(|row| row.iter().map(cells).collect()).collect();
    let zone_of = |node: &str| zone_of(view.simulation, node);
    match_rows(&expected, &rows, &zone_of).map_err(|problem| {
        let shown: Vec<Vec<String>> = rows.iter().map(|row| row[0].clone()).collect();
        format!("{problem}\nexpected:\n{}found:\n{}", expected.render(), table(&expected.columns, &shown))
    })
}
