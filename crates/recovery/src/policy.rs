//! What is allowed.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::record::EvidenceKind;

/// What a cluster's owners allow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Policy {
    /// The kinds of evidence that will do.
    pub accept: BTreeSet<EvidenceKind>,
    /// How many nodes may be recovered at a time.
    pub at_once: usize,
    /// How many of one zone.
    pub at_once_per_zone: usize,
    /// Whether pods that cannot be kept from the taint may lose their place though their successors would find none.
    pub allow_pending: bool,
    /// Drivers for which detaching a volume revokes the machine's access to it, besides those that are known.
    pub detach_revokes: BTreeSet<String>,
    /// Whether pods that tolerate the taint are taken from the node too.
    pub include_tolerating: bool,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            accept: BTreeSet::from([EvidenceKind::Person]),
            at_once: 2,
            at_once_per_zone: 1,
            allow_pending: false,
            detach_revokes: BTreeSet::new(),
            include_tolerating: false,
        }
    }
}
