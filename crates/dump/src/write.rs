//! Writes a dump: JSON documents, one per line.
//!
//! The first line says what wrote the dump and when, then there is one list for each kind, and the last line says what was
//! read completely and what could not be read. A dump without its last line was truncated.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};

use crate::sanitize::sanitize;

/// The version of the format. A reader refuses newer ones.
pub const FORMAT: u64 = 1;

/// The API group of the first and the last line.
pub(crate) const API_VERSION: &str = "dump.stead.dev/v1";

/// The kind of the first line.
pub(crate) const START: &str = "DumpStart";

/// The kind of the last line.
pub(crate) const END: &str = "DumpEnd";

/// What wrote a dump, and of which cluster.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DumpOrigin {
    /// The program and its version.
    pub tool: String,
    /// When, as RFC 3339.
    pub taken: String,
    /// The version of the cluster, such as `v1.31.4`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<String>,
    /// Whether names were replaced.
    pub redacted: bool,
}

/// A kind that could not be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadKind {
    /// The kind, or its name in a path.
    pub kind: String,
    /// The reason.
    pub reason: String,
}

/// Writes a dump to a stream.
pub struct DumpWriter<W: Write> {
    out: W,
    kinds: BTreeSet<String>,
    unread: Vec<UnreadKind>,
    objects: usize,
}

impl<W: Write> DumpWriter<W> {
    /// Writes the first line.
    ///
    /// # Errors
    /// If the stream cannot be written.
    pub fn new(mut out: W, origin: &DumpOrigin) -> io::Result<DumpWriter<W>> {
        let mut line = serde_json::to_value(origin)?;
        line["apiVersion"] = API_VERSION.into();
        line["kind"] = START.into();
        line["format"] = FORMAT.into();
        writeln!(out, "{line}")?;
        Ok(DumpWriter { out, kinds: BTreeSet::new(), unread: Vec::new(), objects: 0 })
    }

    /// Writes all objects of a kind, without what does not belong into a dump: values of environment variables, commands,
    /// arguments, the last applied configuration, and the data of Secrets and ConfigMaps, whose kinds are not written at all.
    ///
    /// # Errors
    /// If the stream cannot be written.
    pub fn list(&mut self, api_version: &str, kind: &str, objects: Vec<Value>) -> io::Result<()> {
        self.kinds.insert(kind.to_owned());
        if matches!(kind, "Secret" | "ConfigMap") {
            return Ok(());
        }
        write!(
            self.out,
            "{{\"apiVersion\":{},\"kind\":{},\"items\":[",
            json!(api_version),
            json!(format!("{kind}List"))
        )?;
        for (i, mut object) in objects.into_iter().enumerate() {
            sanitize(&mut object);
            self.objects += 1;
            write!(self.out, "{}{object}", if i == 0 { "" } else { "," })?;
        }
        writeln!(self.out, "]}}")
    }

    /// Notes that a kind was read completely although it has no list, such as one that the cluster does not have.
    pub fn read_completely(&mut self, kind: &str) {
        self.kinds.insert(kind.to_owned());
    }

    /// Notes that a kind could not be read.
    pub fn unread(&mut self, kind: &str, reason: &str) {
        self.unread.push(UnreadKind { kind: kind.to_owned(), reason: reason.to_owned() });
    }

    /// The number of objects so far.
    pub fn objects(&self) -> usize {
        self.objects
    }

    /// Writes the last line. Returns the stream.
    ///
    /// # Errors
    /// If the stream cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        let end = json!({
            "apiVersion": API_VERSION, "kind": END,
            "kinds": self.kinds, "objects": self.objects, "unread": self.unread,
        });
        writeln!(self.out, "{end}")?;
        self.out.flush()?;
        Ok(self.out)
    }
}
