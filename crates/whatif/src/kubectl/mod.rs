//! kubectl's commands, executed on a simulated cluster.
//!
//! Each command does what kubectl does with its requests: reads, decides, writes. A command ends at once, except for
//! `drain`, which goes on until the node is empty, as kubectl does.

mod drain;
mod edit;
mod files;
mod nodes;
mod rollout;
mod selection;

use stead_kubectl::{Action, Cascade, KubectlCommand};
use stead_sim::{ApiError, DeleteOptions, DeletePropagation, LimitReached, SimKey, SimObject, Simulation, Write};

pub use files::Manifests;

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The API server refused a request.
    #[error("Error from server ({reason}): {0}", reason = .0.reason())]
    Refused(#[from] ApiError),
    /// kubectl itself refuses.
    #[error("error: {0}")]
    Client(String),
    /// What a real kubectl printed.
    #[error("{0}")]
    Printed(String),
    /// The simulation stopped.
    #[error(transparent)]
    Limit(#[from] LimitReached),
}

/// What `delete --force` warns of.
const FORCE_WARNING: &str = "Warning: Immediate deletion does not wait for confirmation that the running resource has been \
                             terminated. The resource may continue to run on the cluster indefinitely.";

/// Executes a command. Gives the lines that kubectl prints.
pub fn execute(
    simulation: &mut Simulation,
    command: &KubectlCommand,
    manifests: &Manifests,
) -> Result<Vec<String>, CommandError> {
    if command.dry_run {
        return Ok(vec!["nothing is changed (dry run)".to_owned()]);
    }
    let namespace = command.namespace.as_deref().unwrap_or("default");
    let mut run = Command { simulation, namespace, manifests, printed: Vec::new() };
    match &command.action {
        Action::Apply { files, .. } => run.apply(files)?,
        Action::Create { files } => run.create(files)?,
        Action::CreateNamespace { name } => run.create_namespace(name)?,
        Action::Replace { files, force } => run.replace(files, *force)?,
        Action::Delete { targets, grace, force, cascade, ignore_not_found, .. } => {
            let options =
                DeleteOptions { grace: *grace, propagation: propagation(*cascade), ..DeleteOptions::default() };
            if *force {
                run.printed.push(FORCE_WARNING.to_owned());
            }
            for key in run.select(targets)? {
                run.delete(&key, options.clone(), *force, *ignore_not_found)?;
            }
        }
        Action::Scale { targets, replicas, current_replicas } => {
            for key in run.select(targets)? {
                run.scale(&key, *replicas, *current_replicas)?;
            }
        }
        Action::Label { targets, changes, overwrite } => {
            for key in run.select(targets)? {
                run.change_keys(&key, "labels", changes, *overwrite)?;
            }
        }
        Action::Annotate { targets, changes, overwrite } => {
            for key in run.select(targets)? {
                run.change_keys(&key, "annotations", changes, *overwrite)?;
            }
        }
        Action::Taint { targets, changes, overwrite } => {
            for key in run.select(targets)? {
                run.taint(&key, changes, *overwrite)?;
            }
        }
        Action::Cordon { targets, unschedulable } => {
            for key in run.select(targets)? {
                run.cordon(&key, *unschedulable)?;
            }
        }
        Action::Drain { targets, options } => {
            let nodes = run.select(targets)?;
            for key in &nodes {
                run.cordon(key, true)?;
            }
            for key in &nodes {
                run.drain(key, options)?;
            }
        }
        Action::Patch { targets, patch, patch_type, subresource } => {
            for key in run.select(targets)? {
                run.patch(&key, patch, *patch_type, subresource.as_deref())?;
            }
        }
        Action::SetImage { targets, images } => {
            for key in run.select(targets)? {
                run.set_image(&key, images)?;
            }
        }
        Action::SetResources { targets, containers, limits, requests } => {
            for key in run.select(targets)? {
                run.set_resources(&key, containers, limits, requests)?;
            }
        }
        Action::Rollout { targets, action } => {
            for key in run.select(targets)? {
                run.rollout(&key, *action)?;
            }
        }
    }
    Ok(run.printed)
}

/// A command that is being executed.
struct Command<'a> {
    simulation: &'a mut Simulation,
    namespace: &'a str,
    manifests: &'a Manifests,
    printed: Vec<String>,
}

fn propagation(cascade: Cascade) -> DeletePropagation {
    match cascade {
        Cascade::Background => DeletePropagation::Background,
        Cascade::Foreground => DeletePropagation::Foreground,
        Cascade::Orphan => DeletePropagation::Orphan,
    }
}

/// The name of an object in kubectl's output: `deployment.apps/web`.
fn shown(key: &SimKey) -> String {
    let (kind, group) = (key.kind.name().to_lowercase(), key.kind.entry().group());
    if group.is_empty() { format!("{kind}/{}", key.name) } else { format!("{kind}.{group}/{}", key.name) }
}

impl Command<'_> {
    fn print(&mut self, key: &SimKey, done: &str) {
        self.printed.push(format!("{} {done}", shown(key)));
    }

    fn object(&self, key: &SimKey) -> Result<SimObject, CommandError> {
        self.simulation.store().object(key).cloned().ok_or_else(|| ApiError::NotFound(key.clone()).into())
    }

    /// Writes an object that was read and changed. Gives whether that changed anything.
    fn write(&mut self, object: SimObject) -> Result<bool, CommandError> {
        Ok(self.simulation.request(Write::Replace(object))?.is_some())
    }

    fn delete(
        &mut self,
        key: &SimKey,
        options: DeleteOptions,
        force: bool,
        ignore_not_found: bool,
    ) -> Result<(), CommandError> {
        match self.simulation.request(Write::Delete(key.clone(), options)) {
            Err(ApiError::NotFound(_)) if ignore_not_found => return Ok(()),
            answer => drop(answer?),
        }
        let (kind, group) = (key.kind.name().to_lowercase(), key.kind.entry().group());
        let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
        let done = if force { "force deleted" } else { "deleted" };
        let place = if key.namespace.is_empty() { String::new() } else { format!(" from {} namespace", key.namespace) };
        self.printed.push(format!("{kind} \"{}\" {done}{place}", key.name));
        Ok(())
    }
}
