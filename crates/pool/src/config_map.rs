//! Stores the record in a ConfigMap.
//!
//! The agents read the record from one key. The admission policy, which cannot parse JSON, and users of kubectl have
//! further keys.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::json::{self, JsonFieldError};
use crate::{Membership, PeerId, Record};

/// The key of the complete record, as JSON.
pub const RECORD: &str = "record.json";

/// The key of the bricks: a line for each pod that holds bricks, with its ordinal and the volumes, as in `3 gv0, gv1`.
pub const BRICKS: &str = "bricks";

/// The key of the first pod's ordinal.
pub const START: &str = "start";

/// The version of the record's schema. It changes when older agents could no longer read a record correctly. A record
/// without a version has this one.
pub const SCHEMA_VERSION: u32 = 1;

/// Why a record cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// There is no record.
    #[error("data has no key {RECORD}")]
    Missing,
    /// It is not a valid record.
    #[error("data[{RECORD}]: {0}")]
    Invalid(#[from] JsonFieldError),
    /// It was written by a newer version of Stead.
    #[error(
        "data[{RECORD}]: schemaVersion {0} is newer than {SCHEMA_VERSION}, which this version of Stead reads; update Stead"
    )]
    Newer(u32),
}

/// The name of a pool's record, and of the Lease for its leader.
pub fn name(pool: &str) -> String {
    format!("{pool}-pool")
}

/// The labels of a pool's record. It has no owner: it has to exist when the StatefulSet is recreated.
pub fn labels(pool: &str) -> BTreeMap<String, String> {
    let labels = [
        ("app.kubernetes.io/name", "gluster"),
        ("app.kubernetes.io/instance", pool),
        ("app.kubernetes.io/part-of", "stead"),
    ];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Returns the data of the ConfigMap for a record; `start` is the ordinal of the StatefulSet's first pod.
pub fn data(record: &Record, start: u32) -> BTreeMap<String, String> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Stored<'a> {
        schema_version: u32,
        #[serde(flatten)]
        record: &'a Record,
    }
    let stored = Stored { schema_version: SCHEMA_VERSION, record };
    // A record can always be written as JSON.
    let json = serde_json::to_string_pretty(&stored).expect("keys are numbers or texts, values are numbers and texts");
    [(RECORD, json), (BRICKS, bricks(record)), (START, start.to_string())]
        .map(|(key, value)| (key.to_owned(), value))
        .into()
}

/// Reads the record from the data of a ConfigMap.
pub fn record(data: &BTreeMap<String, String>) -> Result<Record, RecordError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Schema {
        #[serde(default = "first_version")]
        schema_version: u32,
    }
    let json = data.get(RECORD).ok_or(RecordError::Missing)?.as_bytes();
    let Schema { schema_version } = json::read(json)?;
    if schema_version > SCHEMA_VERSION {
        return Err(RecordError::Newer(schema_version));
    }
    let mut record: Record = json::read(json)?;
    // Members without a UUID were written by older agents during the adoption of a pool: they are not members yet.
    record.members.retain(|_, member| member.uuid != PeerId::NIL);
    Ok(record)
}

fn first_version() -> u32 {
    1
}

/// Members that left hold no bricks that a smaller pool would lose.
fn bricks(record: &Record) -> String {
    let mut lines = String::new();
    for (ordinal, member) in record.members.iter().filter(|(_, m)| m.membership == Membership::Joined) {
        let volumes: BTreeSet<&str> = member.bricks.iter().map(|b| &*b.volume).collect();
        if !volumes.is_empty() {
            let volumes: Vec<&str> = volumes.into_iter().collect();
            lines.push_str(&format!("{ordinal} {}\n", volumes.join(", ")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;
    use crate::{BrickAt, InvalidName, Member, Repair, RepairOrder};

    fn name<T: FromStr<Err = InvalidName>>(text: &str) -> T {
        text.parse().expect("a valid name")
    }

    fn member(membership: Membership, bricks: &[(&str, &str)]) -> Member {
        Member {
            addresses: vec![name("10.0.0.7")],
            bricks: bricks.iter().map(|(v, p)| BrickAt { volume: name(v), path: name(p) }).collect(),
            membership,
            seen: "Peer in Cluster (Connected)".to_owned(),
            since: 5,
            ..Member::joined(
                name("glusterfs-0.glusterfs.default.svc.cluster.local"),
                name("edb18957-b7f5-468d-baf8-19e0e02d20c7"),
                100_000,
            )
        }
    }

    fn full() -> Record {
        Record {
            members: BTreeMap::from([
                (0, member(Membership::Joined, &[("gv1", "/data/bricks/b"), ("gv0", "/data/bricks/a"), ("gv1", "/c")])),
                (1, member(Membership::Joined, &[])),
                (2, member(Membership::Left, &[("gv0", "/data/bricks/a")])),
                (10, member(Membership::Joined, &[("gv0", "/data/bricks/a")])),
            ]),
            order: Some(RepairOrder {
                id: 7,
                ordinal: 1,
                pod: "uid".to_owned(),
                repair: Repair::RestoreIdentity,
                volumes: Vec::new(),
                since: 12,
                made: None,
                withdrawn: false,
                reason: "its state was lost".to_owned(),
            }),
            orders: 7,
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for record in [Record::default(), full()] {
            assert_eq!(super::record(&data(&record, 0)).expect("it can be read"), record);
        }
    }

    #[test]
    fn bricks_has_a_line_for_each_pod_that_holds_bricks() {
        for (record, bricks) in [(Record::default(), ""), (full(), "0 gv0, gv1\n10 gv0\n")] {
            let data = data(&record, 5);
            assert_eq!((data[BRICKS].as_str(), data[START].as_str()), (bricks, "5"));
        }
    }

    /// A record of an agent from before there was a schema version.
    const FIRST: &str = r#"{
      "members": {
        "0": {"host": "g-0.g.n.svc.d", "uuid": "edb18957-b7f5-468d-baf8-19e0e02d20c7", "operatingVersion": 100000,
              "addresses": ["10.0.0.7"], "bricks": [{"volume": "gv0", "path": "/data/bricks/gv0"}],
              "standing": "Joined", "seen": "Peer in Cluster (Connected)", "since": 5},
        "1": {"host": "g-1.g.n.svc.d", "uuid": "", "operatingVersion": 100000, "addresses": [], "bricks": [],
              "standing": "Joined", "seen": ""},
        "2": {"host": "g-2.g.n.svc.d", "uuid": "d77f225f-14f9-4028-9ed1-02eff28cbc4c", "operatingVersion": 100000,
              "addresses": [], "bricks": [], "standing": "Left", "seen": "detached", "since": 9}
      },
      "order": {"id": 3, "ordinal": 0, "pod": "uid", "repair": "ResyncVolumes", "since": 7, "volumes": ["gv0"],
                "reason": "it differs"},
      "orders": 3
    }"#;

    fn read(json: &str) -> Result<Record, RecordError> {
        record(&BTreeMap::from([(RECORD.to_owned(), json.to_owned())]))
    }

    #[test]
    fn a_record_of_an_older_agent_is_read() {
        let record = read(FIRST).expect("it can be read");
        assert_eq!(record.members.keys().copied().collect::<Vec<_>>(), [0, 2], "a member without UUID is dropped");
        assert_eq!(record.members[&0], member(Membership::Joined, &[("gv0", "/data/bricks/gv0")]).at("g-0.g.n.svc.d"));
        assert_eq!(record.order.map(|order| (order.id, order.repair)), Some((3, Repair::ResyncVolumes)));
    }

    impl Member {
        fn at(self, host: &str) -> Member {
            Member { host: name(host), ..self }
        }
    }

    #[test]
    fn older_agents_can_read_what_is_written() {
        #[derive(Deserialize)]
        struct First {
            members: BTreeMap<u32, serde_json::Map<String, serde_json::Value>>,
            orders: u64,
        }
        let data = data(&full(), 0);
        let first: First = serde_json::from_str(&data[RECORD]).expect("the same schema");
        assert_eq!((first.members.len(), first.orders), (4, 7));
        for key in ["host", "uuid", "operatingVersion", "addresses", "bricks", "standing", "seen", "since"] {
            assert!(first.members.values().all(|member| member.contains_key(key)), "{key}");
        }
    }

    #[test]
    fn invalid_records_are_rejected() {
        assert_eq!(record(&BTreeMap::new()), Err(RecordError::Missing));
        let wrong = |from: &str, to: &str| read(&FIRST.replace(from, to)).expect_err("it cannot be read");
        for (error, says) in [
            (read("{").expect_err("it cannot be read"), "data[record.json]: EOF while parsing"),
            (read(r#"{"members": 1}"#).expect_err("it is wrong"), "data[record.json]: members: invalid type: integer"),
            (wrong("edb18957", "../../../"), "data[record.json]: members.0.uuid: \"../../../"),
            (wrong("g-2.g.n", "g 2"), "data[record.json]: members.2.host: \"g 2"),
            (wrong("10.0.0.7", "a\\nb"), "data[record.json]: members.0.addresses[0]: \"a\\nb\""),
            (wrong("[\"gv0\"]", "[\"../gv0\"]"), "data[record.json]: order.volumes[0]: \"../gv0\""),
            (
                read(r#"{"schemaVersion": 2, "peers": []}"#).expect_err("it is newer"),
                "data[record.json]: schemaVersion 2 is newer than 1, which this version of Stead reads; update Stead",
            ),
        ] {
            assert!(error.to_string().starts_with(says), "{error}");
        }
    }
}
