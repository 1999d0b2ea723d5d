//! Reads clusters from files: `kubectl get … -o yaml|json` output, directories of it, must-gathers.
//!
//! Data flow: `input` turns a path into texts (it unpacks gzip, xz and tar, walks directories and
//! recognizes must-gathers), `yaml` turns YAML into JSON text, `json` finds the parts of JSON text,
//! and `collect` splits lists into items and keeps the newest copy of each wanted object. Objects
//! stay text: most of a large dump is never asked for. `budget` limits what is read in total.
//!
//! This crate knows what every Kubernetes object has (`apiVersion`, `kind`, `metadata`) and nothing
//! about specific kinds. The caller decides which kinds matter and what their fields mean.

mod block_yaml;
mod budget;
mod collect;
mod describe;
mod error;
mod input;
mod json;
mod located;
mod outline;
mod redact;
mod sanitize;
mod scalar;
mod skip;
mod text_table;
mod write;
mod yaml;
mod yaml_writer;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use budget::Budget;
use collect::{Collector, Origin};
pub use describe::pod as described_pod;
pub use error::{DumpError, FileKind, YamlError, YamlProblem};
pub use located::{LocatedDocument, Position, located_documents};
pub use redact::{Redaction, redact};
use serde_json::Value;
use stead_model::ObjectText;
pub use write::{DumpOrigin, DumpWriter, FORMAT, UnreadKind};

/// Which objects the caller wants, by `apiVersion` and `kind`.
///
/// Others are dropped. In a directory or an archive, a broken file that contains only others is not
/// an error.
pub type KindFilter<'a> = &'a dyn Fn(&str, &str) -> bool;

/// Where an object was found. `Display` is for messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ItemSource {
    /// The file; for one inside an archive, `ARCHIVE: PATH INSIDE`.
    pub file: Arc<str>,
    /// The document in the file, counted from 1.
    pub document: usize,
    /// The item in the document's list, counted from 1, if the document is a list.
    pub item: Option<usize>,
}

impl fmt::Display for ItemSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.document)?;
        match self.item {
            Some(item) => write!(f, ", item {item}"),
            None => Ok(()),
        }
    }
}

/// One object as it was found.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its text, and which object it is.
    pub object: ObjectText,
    /// Where it was found.
    pub source: ItemSource,
    resource_version: Option<Box<str>>,
}

impl Item {
    /// The whole object. It always has non-empty strings at `apiVersion`, `kind` and
    /// `metadata.name`; what a typed list leaves out of its items has been filled in.
    pub fn value(&self) -> Value {
        self.object.value()
    }
}

/// The objects that a set of files contains.
#[derive(Debug, Clone, Default)]
pub struct Dump {
    /// The wanted objects, each once, sorted by API group, kind, namespace and name.
    pub items: Vec<Item>,
    /// The wanted kinds of which the files contain objects or a list, even an empty one. A kind
    /// that is missing here was not dumped: nothing is known about it.
    pub kinds: BTreeSet<String>,
    /// What was skipped, and where the files contradict each other, in the order of reading.
    pub warnings: Vec<String>,
    /// When it was taken, as RFC 3339, if the files say so; of several, the last.
    pub taken: Option<String>,
    /// The version of the cluster, if the files say so.
    pub kubernetes: Option<String>,
}

/// The default of `max_size` in [`read`]: 2 GiB.
pub const DEFAULT_MAX_SIZE: u64 = 2 << 30;

/// Reads files, directories and archives into one dump.
///
/// A path is one of
/// - a file with YAML or JSON, one document or many, plain or gzipped;
/// - `-`, the same from standard input;
/// - a directory: every `.yaml`, `.yml` and `.json` file below it (gzipped ones too), in sorted order;
/// - the output of `oc adm inspect`, `oc adm must-gather`, an OpenStack must-gather, `kubectl cluster-info dump` or a support
///   bundle, as a directory or as a tar archive; of older OpenStack must-gathers also
///   pods and claims, which are text.
///
/// In a directory or an archive a file that cannot be read is an error only if it mentions a wanted
/// kind; otherwise it is a warning, and ignored outside the resource directories of a must-gather.
/// A file that is named itself has to be valid.
///
/// All files together may have at most `max_size` bytes. Compressed files and archives count with
/// their decompressed size.
///
/// # Errors
/// The first problem, with the file, the document, the item and the field.
pub fn read(paths: &[PathBuf], wanted: KindFilter<'_>, max_size: u64) -> Result<Dump, DumpError> {
    let budget = Budget::new(max_size);
    let mut collector = Collector::new(wanted);
    for path in paths {
        input::read_path(path, &budget, &mut collector)?;
    }
    collector.check_ends()?;
    Ok(collector.finish())
}

/// Reads one text, JSON or YAML, one document or many. `name` is the file's name in messages.
///
/// # Errors
/// The first problem, with the document, the item and the field.
pub fn read_str(name: &str, text: &str, wanted: KindFilter<'_>) -> Result<Dump, DumpError> {
    let mut collector = Collector::new(wanted);
    collector.text(&Arc::from(name), &Arc::new(text.to_owned()), Origin::Named)?;
    Ok(collector.finish())
}
