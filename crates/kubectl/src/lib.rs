//! Command lines of kubectl and oc that change a cluster, parsed into data.
//!
//! [`KubectlCommand::parse`] takes one line as it is typed into a shell, [`KubectlCommand::from_words`] its words. The
//! result says what is asked for: which objects ([`Targets`]), and which change ([`Action`]). What the change does to a
//! cluster is decided by whoever executes it. Flags are kubectl's own; a flag that would change the result and is not
//! known here is an error, never ignored.
//!
//! This crate knows no cluster and no files: `-f` names are returned as they are.

mod action;
mod changes;
mod flags;
mod kinds;
mod targets;
mod words;

pub use action::{Action, Cascade, DrainOptions, PatchType, RolloutAction};
pub use changes::{KeyChange, TaintChange};
pub use kinds::kind_named;
pub use targets::{TargetName, Targets};
pub use words::split as split_words;

/// A command that changes a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct KubectlCommand {
    /// The namespace of `-n`.
    pub namespace: Option<String>,
    /// The context of `--context`.
    pub context: Option<String>,
    /// Whether `--dry-run` asks for no change.
    pub dry_run: bool,
    /// What to do.
    pub action: Action,
}

/// A command line that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KubectlError(pub(crate) String);

impl KubectlCommand {
    /// Parses a line that begins with `kubectl` or `oc`, with the quotes and escapes of a shell.
    pub fn parse(line: &str) -> Result<KubectlCommand, KubectlError> {
        KubectlCommand::from_words(&words::split(line)?)
    }

    /// Parses the words of a command line.
    pub fn from_words(words: &[String]) -> Result<KubectlCommand, KubectlError> {
        flags::parse(words)
    }
}
