//! Workloads, claims, volumes, budgets and namespaces: a verdict, and what their state is due to.

mod pods;
mod verdict;

use std::fmt::Write;

use serde::Serialize;
use stead_model::{ModelError, ObjectKey, Objects};

use crate::outage::Clock;
use crate::wrap::{bullet, hanging};

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
}

/// Explains a workload, claim, volume, budget or namespace; none where there is no such object.
///
/// # Errors
/// Where the object is malformed.
pub fn explain_object(
    objects: &Objects,
    key: &ObjectKey,
    clock: &Clock,
) -> Result<Option<ObjectExplanation>, ModelError> {
    let Some(verdict) = verdict::verdict(objects, key, clock.now)? else { return Ok(None) };
    let name = match key.namespace.as_str() {
        "" => key.name.clone(),
        namespace => format!("{namespace}/{}", key.name),
    };
    Ok(Some(ObjectExplanation { kind: key.kind.clone(), name, summary: verdict.summary, facts: verdict.facts }))
}

/// The explanation as text.
pub fn render_object(explanation: &ObjectExplanation) -> String {
    let mut out = String::new();
    let title = format!("{} {}: {}", explanation.kind.to_lowercase(), explanation.name, explanation.summary);
    hanging(&mut out, "", "  ", &title);
    if !explanation.facts.is_empty() {
        let _ = writeln!(out, "\nDetails");
    }
    for fact in &explanation.facts {
        bullet(&mut out, fact);
    }
    out
}
