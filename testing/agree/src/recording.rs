//! A run on the real control plane as a file: where it starts, what was done, and every change that was seen.
//!
//! The file is JSON lines, compressed with gzip. The first line is the [`Header`], then the objects of the snapshot follow,
//! one in each line, then everything that happened, in the order of the API server's versions.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stead_testbed::ClusterSpec;

/// The version of the format.
const FORMAT: u32 = 1;

/// What a run starts from, besides objects.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Header {
    /// The version of the format.
    pub format: u32,
    /// The name of the run: the seed and the number of its situation.
    pub name: String,
    /// The situation in words.
    pub situation: String,
    /// The kinds of actions of the situation, for statistics.
    pub actions: Vec<String>,
    /// The kinds of workloads of the situation, for statistics.
    pub workloads: Vec<String>,
    /// Whether a volume is attached to a node.
    pub attached: bool,
    /// Whether a node fails.
    pub node_fails: bool,
    /// Whether the waiting times are Kubernetes' own, or a tenth of them.
    pub real_timers: bool,
    /// The machines, the storage and their delays.
    pub cluster: ClusterSpec,
    /// Whether the containers of Jobs fail.
    pub jobs_fail: bool,
    /// The time of the snapshot.
    pub began: Timestamp,
    /// How long the run was followed after the snapshot, in milliseconds.
    pub length: i64,
    /// A moment at which the pod garbage collector ran.
    pub pod_gc_run: Option<Timestamp>,
    /// The machines that do not report at the time of the snapshot.
    pub down: BTreeMap<String, Downtime>,
    /// The errors of volumes that cannot be detached at the time of the snapshot.
    pub detach_errors: BTreeMap<String, String>,
    /// The errors of drivers that do not work at the time of the snapshot.
    pub driver_errors: BTreeMap<String, String>,
}

/// Why a machine does not report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Downtime {
    /// It is suspended.
    Suspended,
    /// It is off.
    Off,
}

/// Something that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Deed {
    /// A command line of kubectl.
    Kubectl {
        /// The line.
        line: String,
        /// The objects of its standard input, for `-f -`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        input: Vec<Value>,
    },
    /// An eviction was requested, as `kubectl drain` does.
    Evict {
        /// The namespace of the pod.
        namespace: String,
        /// The name of the pod.
        pod: String,
    },
    /// A machine stops reporting.
    Fail {
        /// The node.
        node: String,
        /// Why.
        how: Downtime,
    },
    /// A machine reports again.
    Heal {
        /// The node.
        node: String,
    },
    /// Detaching a volume fails from now on, or works again.
    DetachError {
        /// The PersistentVolume.
        volume: String,
        /// The error.
        message: Option<String>,
    },
    /// Every call to a driver fails from now on, or works again.
    DriverError {
        /// The driver.
        driver: String,
        /// The error.
        message: Option<String>,
    },
}

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Milliseconds since the snapshot.
    pub at: i64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum What {
    /// An object was created.
    Created(Value),
    /// An object was changed: its key, and the changes as a merge patch.
    Changed(String, Value),
    /// An object was removed.
    Removed(String),
    /// Something was done.
    Did {
        /// The kind of action that it is part of, for statistics.
        action: String,
        /// What.
        deed: Deed,
        /// Why it was refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
}

/// A recorded run.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// What it starts from.
    pub header: Header,
    /// The objects at the time of the snapshot.
    pub snapshot: Vec<Value>,
    /// What happened since.
    pub moments: Vec<Moment>,
}

/// An object's key in a recording: kind, namespace and name.
pub(crate) fn key_of(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    format!("{}/{}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))
}

impl Header {
    /// The version of the format that is written.
    pub const FORMAT: u32 = FORMAT;

    /// A moment of the run.
    pub fn time(&self, at: i64) -> Timestamp {
        self.began + SignedDuration::from_millis(at)
    }
}

impl Recording {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Recording> {
        let file = std::fs::File::open(path).with_context(|| format!("reading {}", path.display()))?;
        let mut lines = BufReader::new(GzDecoder::new(file)).lines();
        let first = lines.next().context("an empty recording")??;
        let header: Header = serde_json::from_str(&first).with_context(|| format!("{}: line 1", path.display()))?;
        ensure!(header.format == FORMAT, "{}: format {} is not known", path.display(), header.format);
        let (mut snapshot, mut moments) = (Vec::new(), Vec::new());
        for (number, line) in lines.enumerate() {
            let place = || format!("{}: line {}", path.display(), number + 2);
            let value: Value = serde_json::from_str(&line?).with_context(place)?;
            if value["apiVersion"].is_string() {
                snapshot.push(value);
            } else {
                moments.push(serde_json::from_value(value).with_context(place)?);
            }
        }
        Ok(Recording { header, snapshot, moments })
    }

    /// Writes a file. The same recording gives the same bytes.
    pub fn write(&self, path: &Path) -> Result<()> {
        let file = std::fs::File::create(path).with_context(|| format!("writing {}", path.display()))?;
        let mut out = GzEncoder::new(file, Compression::best());
        let moments = self.moments.iter().map(serde_json::to_string);
        let lines = std::iter::once(serde_json::to_string(&self.header));
        let lines = lines.chain(self.snapshot.iter().map(serde_json::to_string)).chain(moments);
        for line in lines {
            writeln!(out, "{}", line?)?;
        }
        out.finish().with_context(|| format!("writing {}", path.display()))?;
        Ok(())
    }
}

/// The merge patch that makes `after` of `before`.
pub(crate) fn difference(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return after.clone() };
    let mut patch = serde_json::Map::new();
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in new {
        match old.get(name) {
            Some(same) if same == value => {}
            Some(other) => drop(patch.insert(name.clone(), difference(other, value))),
            None => drop(patch.insert(name.clone(), value.clone())),
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_difference_is_a_merge_patch() {
        for (before, after, patch) in [
            (
                json!({ "a": 1, "b": { "c": 2, "d": 3 } }),
                json!({ "a": 1, "b": { "c": 4 } }),
                json!({ "b": { "c": 4, "d": null } }),
            ),
            (json!({ "a": [1] }), json!({ "a": [1, 2], "e": {} }), json!({ "a": [1, 2], "e": {} })),
            (json!({ "a": 1 }), json!({ "a": 1 }), json!({})),
        ] {
            assert_eq!(difference(&before, &after), patch);
            let mut merged = before.clone();
            json_patch::merge(&mut merged, &patch);
            assert_eq!(merged, after);
        }
    }

    #[test]
    fn a_moment_is_one_line() {
        let deed = Deed::Evict { namespace: "play".into(), pod: "web-0".into() };
        let what = What::Did { action: "drain".into(), deed, refused: None };
        let moment = Moment { at: 17, what };
        let text = r#"{"at":17,"did":{"action":"drain","deed":{"evict":{"namespace":"play","pod":"web-0"}}}}"#;
        assert_eq!(serde_json::to_string(&moment).expect("JSON"), text);
        assert_eq!(serde_json::from_str::<Moment>(text).expect("a moment"), moment);
    }
}
