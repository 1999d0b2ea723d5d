//! A walk-through of everything that the operator does for one control plane. Each step consists of a user's actions
//! and their expected result. The next step waits for this result, so that every walk has the same history.

mod snapshot;
mod steps;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{Objects, Stage};
pub use snapshot::NamespaceSnapshot;
pub use steps::steps;

/// An action of a user.
pub enum UserAction {
    /// Applies an object.
    Apply(Value),
    /// Patches an object: kind, name, merge patch.
    Merge(&'static str, &'static str, Value),
    /// Deletes an object: kind, name.
    Delete(&'static str, &'static str),
}

/// Actions of a user, and their expected result.
pub struct Step {
    /// A short description.
    pub name: &'static str,
    /// The user's actions, in order.
    pub actions: Vec<UserAction>,
    /// The StatefulSets at the end: name, number of pods, and the applied Topology (empty for none).
    pub stateful_sets: &'static [(&'static str, i64, &'static str)],
    /// The StatefulSets whose configuration changes.
    pub restarts: &'static [&'static str],
    /// An additional check of the result.
    pub extra_check: fn(&NamespaceSnapshot) -> bool,
}

/// The timeout of a step: long enough for a busy machine and a disturbed operator.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Creates the namespace of a walk.
pub async fn create_namespace(stage: &Stage, namespace: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    stage.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.map(drop)
}

/// Deletes the namespace of a walk with all its objects. The operator must be running.
pub async fn delete_namespace(stage: &Stage, namespace: &str) -> Result<()> {
    stage.kubectl(&["delete", "namespace", namespace, "--timeout=180s"]).await.map(drop)
}

/// Plays all steps in a namespace. Calls `say` with the name of each step before it is played.
pub async fn play(stage: &Stage, namespace: &str, mut say: impl FnMut(&str)) -> Result<()> {
    let objects = stage.objects(namespace);
    for step in steps() {
        say(step.name);
        play_step(&objects, &step).await.with_context(|| format!("step {:?} of the walk", step.name))?;
    }
    Ok(())
}

async fn play_step(objects: &Objects, step: &Step) -> Result<()> {
    let before = NamespaceSnapshot::read(objects).await?;
    for action in &step.actions {
        match action {
            UserAction::Apply(object) => objects.apply(object).await?,
            UserAction::Merge(kind, name, patch) => objects.merge(kind, name, patch).await?,
            UserAction::Delete(kind, name) => objects.delete(kind, name).await?,
        }
    }
    let end = Instant::now() + TIMEOUT;
    loop {
        let now = NamespaceSnapshot::read(objects).await?;
        let missing = now.missing(step, &before);
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("timed out after {} s: {}", TIMEOUT.as_secs(), missing.join("; "));
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
