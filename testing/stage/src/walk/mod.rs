//! A walk-through of everything that the operator does for one control plane. Each step is an action of a user and its
//! expected result. The next step waits for this result, so that every walk has the same history.

mod scene;
mod steps;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::{Objects, Stage};
pub use scene::Scene;
pub use steps::steps;

/// Something that a user does.
pub enum Act {
    /// Applies an object.
    Apply(Value),
    /// Changes fields of an object: kind, name, merge patch.
    Merge(&'static str, &'static str, Value),
    /// Asks for the end of an object: kind, name.
    Delete(&'static str, &'static str),
}

/// Something that a user does, and what comes of it.
pub struct Step {
    /// What it is, in a few words.
    pub name: &'static str,
    /// What the user does, in this order.
    pub acts: Vec<Act>,
    /// The StatefulSets that there are in the end, with their pods, and the Topology that places them (or none).
    pub sets: &'static [(&'static str, i64, &'static str)],
    /// Those of them whose configuration is another than before.
    pub restarts: &'static [&'static str],
    /// What else has to hold.
    pub and: fn(&Scene) -> bool,
}

/// So long may a step take, on a machine with much else to do and an operator that is disturbed.
const PATIENCE: Duration = Duration::from_secs(180);

/// Makes the namespace that a walk is played in.
pub async fn begin(stage: &Stage, namespace: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    stage.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.map(drop)
}

/// Ends the namespace with all that is in it; an operator has to run.
pub async fn end(stage: &Stage, namespace: &str) -> Result<()> {
    stage.kubectl(&["delete", "namespace", namespace, "--timeout=180s"]).await.map(drop)
}

/// Plays all steps in a namespace. Says each step to `say` before it is played.
pub async fn play(stage: &Stage, namespace: &str, mut say: impl FnMut(&str)) -> Result<()> {
    let objects = stage.objects(namespace);
    for step in steps() {
        say(step.name);
        play_step(&objects, &step).await.with_context(|| format!("step {:?} of the walk", step.name))?;
    }
    Ok(())
}

async fn play_step(objects: &Objects, step: &Step) -> Result<()> {
    let before = Scene::look(objects).await?;
    for act in &step.acts {
        match act {
            Act::Apply(object) => objects.apply(object).await?,
            Act::Merge(kind, name, patch) => objects.merge(kind, name, patch).await?,
            Act::Delete(kind, name) => objects.delete(kind, name).await?,
        }
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let scene = Scene::look(objects).await?;
        let missing = scene.missing(step, &before);
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("not within {} s: {}", PATIENCE.as_secs(), missing.join("; "));
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
