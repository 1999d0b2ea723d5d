//! What the owners of a cluster allow.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::record::EvidenceKind;

/// What the owners of a cluster allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RecoveryPolicy {
    /// The accepted kinds of evidence.
    pub accept: BTreeSet<EvidenceKind>,
    /// How many nodes may be recovered at the same time.
    pub at_once: usize,
    /// How many nodes of one zone.
    pub at_once_per_zone: usize,
    /// Whether Terminating pods are released although no node can run their replacements at present.
    pub allow_pending: bool,
    /// Further drivers for which detaching a volume revokes the machine's access to it.
    pub detach_revokes: BTreeSet<String>,
    /// Whether pods that tolerate the taint are released, too.
    pub include_tolerating: bool,
}

impl Default for RecoveryPolicy {
    fn default() -> RecoveryPolicy {
        RecoveryPolicy {
            accept: BTreeSet::from([EvidenceKind::Person]),
            at_once: 2,
            at_once_per_zone: 1,
            allow_pending: false,
            detach_revokes: BTreeSet::new(),
            include_tolerating: false,
        }
    }
}
