//! The record as a ConfigMap: what is in it, and under which keys.
//!
//! The agents read it back as a whole. The admission policy, which can read no JSON, has keys of its own, and so has
//! whoever looks with kubectl.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Record, Standing};

/// The key of the whole record, as JSON.
pub const RECORD: &str = "record.json";

/// The key of the bricks: a line for each pod that holds some, its ordinal and then the volumes, as in `3 gv0, gv1`.
pub const BRICKS: &str = "bricks";

/// The key of the first pod's ordinal.
pub const START: &str = "start";

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// There is none.
    #[error("data has no key {RECORD}")]
    Missing,
    /// It is not what a record is.
    #[error("data[{RECORD}]: {0}")]
    Wrong(#[from] serde_json::Error),
}

/// The name of a pool's record, and of the Lease of those who decide for it.
pub fn name(pool: &str) -> String {
    format!("{pool}-pool")
}

/// The labels of a pool's record. It has no owner: it is to be there when the StatefulSet is made anew.
pub fn labels(pool: &str) -> BTreeMap<String, String> {
    let labels = [
        ("app.kubernetes.io/name", "gluster"),
        ("app.kubernetes.io/instance", pool),
        ("app.kubernetes.io/part-of", "stead"),
    ];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The data of the ConfigMap that keeps a record; `start` is the ordinal of the StatefulSet's first pod.
pub fn data(record: &Record, start: u32) -> BTreeMap<String, String> {
    // A record has nothing that JSON cannot say.
    let json = serde_json::to_string_pretty(record).expect("keys are numbers or texts, values are numbers and texts");
    [(RECORD, json), (BRICKS, bricks(record)), (START, start.to_string())]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
}

/// The record that a ConfigMap keeps.
pub fn record(data: &BTreeMap<String, String>) -> Result<Record, Unreadable> {
    let json = data.get(RECORD).ok_or(Unreadable::Missing)?;
    Ok(serde_json::from_str(json)?)
}

/// Who has left holds nothing that a smaller pool would lose.
fn bricks(record: &Record) -> String {
    let mut lines = String::new();
    for (ordinal, member) in record.members.iter().filter(|(_, m)| m.standing == Standing::Joined) {
        let volumes: BTreeSet<&str> = member.bricks.iter().map(|b| b.volume.as_str()).collect();
        if !volumes.is_empty() {
            let volumes: Vec<&str> = volumes.into_iter().collect();
            lines.push_str(&format!("{ordinal} {}\n", volumes.join(", ")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BrickAt, Member, Order, Repair};

    fn member(standing: Standing, bricks: &[(&str, &str)]) -> Member {
        Member {
            host: "glusterfs-0.glusterfs.default.svc.cluster.local".to_owned(),
            uuid: "edb18957-b7f5-468d-baf8-19e0e02d20c7".to_owned(),
            operating_version: 100_000,
            addresses: vec!["10.0.0.7".to_owned()],
            bricks: bricks.iter().map(|(v, p)| BrickAt { volume: (*v).to_owned(), path: (*p).to_owned() }).collect(),
            standing,
            seen: "Peer in Cluster (Connected)".to_owned(),
            since: 5,
        }
    }

    fn full() -> Record {
        Record {
            members: BTreeMap::from([
                (0, member(Standing::Joined, &[("gv1", "/data/bricks/b"), ("gv0", "/data/bricks/a"), ("gv1", "/c")])),
                (1, member(Standing::Joined, &[])),
                (2, member(Standing::Left, &[("gv0", "/data/bricks/a")])),
                (10, member(Standing::Joined, &[("gv0", "/data/bricks/a")])),
            ]),
            order: Some(Order {
                id: 7,
                ordinal: 1,
                pod: "uid".to_owned(),
                repair: Repair::RestoreIdentity,
                volumes: Vec::new(),
                since: 12,
                made: None,
                reason: "its state was lost".to_owned(),
            }),
            orders: 7,
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        for record in [Record::default(), full()] {
            assert_eq!(super::record(&data(&record, 0)).expect("it can be read"), record);
        }
    }

    #[test]
    fn the_policy_gets_a_line_for_each_pod_that_holds_bricks() {
        for (record, bricks) in [(Record::default(), ""), (full(), "0 gv0, gv1\n10 gv0\n")] {
            let data = data(&record, 5);
            assert_eq!((data[BRICKS].as_str(), data[START].as_str()), (bricks, "5"));
        }
    }

    #[test]
    fn what_is_no_record_is_said() {
        let said = |data: &BTreeMap<String, String>| record(data).expect_err("it cannot be read").to_string();
        assert_eq!(said(&BTreeMap::new()), "data has no key record.json");
        let wrong = BTreeMap::from([(RECORD.to_owned(), r#"{"members": 1}"#.to_owned())]);
        assert!(said(&wrong).starts_with("data[record.json]: invalid type: integer `1`"), "{}", said(&wrong));
    }
}
