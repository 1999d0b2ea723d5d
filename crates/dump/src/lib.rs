//! Reads clusters from files: `kubectl get … -o yaml|json` output, folders of it, must-gathers.
//!
//! The way of the data: `input` turns a path into texts (it unpacks gzip and tar, walks folders
//! and tells a must-gather from other folders), `yaml` and `serde_json` turn a text into
//! documents, `collect` takes lists apart and keeps the one newest copy of each wanted object.
//!
//! This crate knows what every Kubernetes object has (`apiVersion`, `kind`, `metadata`) and
//! nothing about any one kind. Which kinds matter, and what their fields mean, is the caller's.

mod collect;
mod error;
mod input;
mod outline;
mod scalar;
mod yaml;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use collect::{Collector, Strictness};
pub use error::{DumpError, YamlError};
use serde_json::Value;

/// Which objects the caller can use, by `apiVersion` and `kind`.
///
/// The others are left out, and a fault in a file that holds only others is no error where the
/// file was found rather than named.
pub type Wanted<'a> = &'a dyn Fn(&str, &str) -> bool;

/// Where an object was found. Its `Display` form is meant for messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    /// The file; for one inside an archive, `ARCHIVE: PATH INSIDE`.
    pub file: Arc<str>,
    /// The document in the file, counted from 1.
    pub document: usize,
    /// The item in the document's list, counted from 1, if the document is a list.
    pub item: Option<usize>,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.document)?;
        match self.item {
            Some(item) => write!(f, ", item {item}"),
            None => Ok(()),
        }
    }
}

/// One object as it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The whole object. It always has non-empty strings at `apiVersion`, `kind` and
    /// `metadata.name`; what a typed list leaves out of its items has been filled in.
    pub value: Value,
    /// Where it was found.
    pub source: Source,
}

/// What a set of files says about a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dump {
    /// The wanted objects, each once, sorted by API group, kind, namespace and name.
    pub items: Vec<Item>,
    /// The wanted kinds of which the files hold objects or a list, even an empty one. A kind that
    /// is missing here was not asked for when the files were made: nothing is known about it.
    pub kinds: BTreeSet<String>,
    /// What was passed over, and what the files contradict each other in, in the order of reading.
    pub warnings: Vec<String>,
}

/// Reads files, folders and archives into one dump.
///
/// A path is one of
/// - a file with YAML or JSON, one document or many, plain or gzipped;
/// - `-`, the same from standard input;
/// - a folder: every `.yaml`, `.yml` and `.json` file below it (gzipped ones too), in sorted order;
/// - an OpenShift must-gather or `oc adm inspect` output, as a folder or as a tar archive.
///
/// In a folder or an archive a file that cannot be read is an error only if it mentions a wanted
/// kind; otherwise it is a warning, and nothing at all outside a must-gather's resource folders.
/// A file that is named itself has to be right.
///
/// # Errors
/// The first thing that is wrong with a file, with the file, the document, the item and the field.
pub fn read(paths: &[PathBuf], wanted: Wanted<'_>) -> Result<Dump, DumpError> {
    let mut collector = Collector::new(wanted);
    for path in paths {
        input::read_path(path, &mut collector)?;
    }
    Ok(collector.finish())
}

/// Reads one text, JSON or YAML, one document or many. `name` stands for the file in messages.
///
/// # Errors
/// The first thing that is wrong with the text, with the document, the item and the field.
pub fn read_str(name: &str, text: &str, wanted: Wanted<'_>) -> Result<Dump, DumpError> {
    let mut collector = Collector::new(wanted);
    collector.text(&Arc::from(name), text, Strictness::Named)?;
    Ok(collector.finish())
}
