//! Workloads, claims, volumes, budgets and namespaces: a verdict, and what their state is due to.

mod pods;
mod stuck;
mod verdict;

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;
use stead_model::{ModelError, ObjectKey, Objects};

use crate::outage::Clock;
use crate::suggested_command::{ClientAtHand, SuggestsCommands};
use crate::wrap::{bullet, hanging};

pub use stuck::CauseOfPods;

/// The state of an object, and what it is due to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectExplanation {
    /// The kind.
    pub kind: String,
    /// The name, with the namespace where it has one.
    pub name: String,
    /// The verdict, in a sentence.
    pub summary: String,
    /// Facts about the object, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<String>,
    /// Why the object or its pods are stuck, the most severe cause first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<CauseOfPods>,
}

impl SuggestsCommands for ObjectExplanation {
    fn use_client(&mut self, client: &ClientAtHand) {
        self.causes.iter_mut().for_each(|cause| cause.action.use_client(client));
    }
}

/// Explains a workload, claim, volume, budget or namespace; none where there is no such object. `kinds` are the kinds that
/// were read.
///
/// # Errors
/// Where the object is malformed.
pub fn explain_object(
    objects: &Objects,
    key: &ObjectKey,
    kinds: &BTreeSet<String>,
    clock: &Clock,
) -> Result<Option<ObjectExplanation>, ModelError> {
    let Some(verdict) = verdict::verdict(objects, key, clock.now)? else { return Ok(None) };
    let name = match key.namespace.as_str() {
        "" => key.name.clone(),
        namespace => format!("{namespace}/{}", key.name),
    };
    let causes = stuck::causes(objects, key, kinds, clock);
    let summary = stuck::verdict(verdict.summary, &causes);
    Ok(Some(ObjectExplanation { kind: key.kind.clone(), name, summary, facts: verdict.facts, causes }))
}

/// The explanation as text.
pub fn render_object(explanation: &ObjectExplanation) -> String {
    let mut out = String::new();
    let title = format!("{} {}: {}", explanation.kind.to_lowercase(), explanation.name, explanation.summary);
    hanging(&mut out, "", "  ", &title);
    stuck::render(&mut out, &explanation.causes);
    if !explanation.facts.is_empty() {
        let _ = writeln!(out, "\nDetails");
    }
    for fact in &explanation.facts {
        bullet(&mut out, fact);
    }
    out
}
