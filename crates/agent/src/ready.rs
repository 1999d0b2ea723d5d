//! Decides whether a pod is ready. Pure.
//!
//! While a pod is not ready, Kubernetes does not remove the next one: the disruption budget stops a drain, and a
//! rolling update waits. So a pod is not ready while the pool could not lose another brick of its set.

use stead_pool::{Daemon, Membership, PeerState, Record, Report, VolumeName};

/// Returns why a pod is not ready; none if it is. `record` is none if it has not been read yet.
pub(crate) fn unready(report: &Report, record: Option<&Record>) -> Option<String> {
    match report.daemon {
        Daemon::Running => {}
        Daemon::Starting => return Some("glusterd does not answer yet".into()),
        Daemon::Stopped => return Some(report.doing.clone().unwrap_or_else(|| "glusterd is stopped".into())),
    }
    if let Some(why) = why_outside_pool(report, record) {
        return Some(why);
    }
    if let Some(volume) = unknown_volume(report, record) {
        return Some(format!("this pod holds a brick of {volume}, and its glusterd does not know that volume yet"));
    }
    if let Some(path) = report.stuck_bricks.first() {
        return Some(format!("brick {path} does not answer: its disk may hang"));
    }
    match report.heals {
        Some(0) => None,
        Some(count) => Some(format!("{count} entries wait to be healed on this pod's bricks or from them")),
        None => Some("it is not known yet whether something waits to be healed on this pod's bricks".into()),
    }
}

/// Returns a volume that this pod has bricks of and its glusterd does not know: its pending heals are not known.
fn unknown_volume<'a>(report: &Report, record: Option<&'a Record>) -> Option<&'a VolumeName> {
    let bricks = &record?.members.get(&report.ordinal)?.bricks;
    let mut volumes = bricks.iter().map(|brick| &brick.volume);
    volumes.find(|name| !report.volumes.iter().any(|volume| volume.name == **name))
}

/// Returns why this pod is not in the pool.
fn why_outside_pool(report: &Report, record: Option<&Record>) -> Option<String> {
    let not_befriended = report.peers.iter().find(|peer| peer.state != PeerState::Befriended);
    if let Some(peer) = not_befriended {
        let name = peer.hosts.first().map_or("a peer without a name", |host| &**host);
        return Some(format!("{name} is not accepted as a peer by this glusterd: {}", peer.state.words()));
    }
    let Some(record) = record else {
        // Without the record, a pod with peers counts as a member.
        return report.peers.is_empty().then(|| "this glusterd has no peers, and the record cannot be read".into());
    };
    let joined = |membership| membership == Membership::Joined;
    let Some(own) = record.members.get(&report.ordinal).filter(|own| joined(own.membership)) else {
        return Some("this pod has not joined the pool yet".into());
    };
    if report.uuid != Some(own.uuid) {
        return Some(format!("this pod is peer {} of the pool, but its glusterd has another identity", own.uuid));
    }
    let mut others = record
        .members
        .iter()
        .filter(|(ordinal, member)| **ordinal != report.ordinal && joined(member.membership))
        .peekable();
    // A pool of one pod needs no connected peer.
    others.peek()?;
    if let Some((_, member)) = others.find(|(_, m)| !report.peers.iter().any(|peer| peer.uuid == Some(m.uuid))) {
        return Some(format!("this glusterd does not know {}", member.host));
    }
    let alone = !report.peers.iter().any(|peer| peer.connected);
    alone.then(|| "no other peer is connected".into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use stead_pool::{BrickAt, GlusterVolume, Member, Peer, PeerId};

    use crate::test_agent::name;

    use super::*;

    /// The identity that begins with this digit eight times.
    fn id(digit: &str) -> PeerId {
        name(&format!("{}-0000-4000-8000-000000000000", digit.repeat(8)))
    }

    fn member(uuid: &str, membership: Membership) -> Member {
        Member { membership, ..Member::joined(name(&format!("host-{uuid}")), id(uuid), 100_000) }
    }

    fn record(members: &[(u32, &str, Membership)]) -> Record {
        let members: BTreeMap<u32, Member> = members.iter().map(|(n, u, s)| (*n, member(u, *s))).collect();
        Record { members, ..Record::default() }
    }

    fn report(peers: &[(&str, PeerState, bool)]) -> Report {
        let peer = |(uuid, state, connected): &(&str, PeerState, bool)| Peer {
            uuid: Some(id(uuid)),
            hosts: vec![name(&format!("host-{uuid}"))],
            state: *state,
            connected: *connected,
        };
        Report {
            ordinal: 0,
            pod: "uid".into(),
            address: name("10.0.0.1"),
            daemon: Daemon::Running,
            uuid: Some(id("a")),
            operating_version: Some(100_000),
            peers: peers.iter().map(peer).collect(),
            volumes: Vec::new(),
            heals: Some(0),
            stuck_bricks: Vec::new(),
            done: None,
            doing: None,
        }
    }

    #[test]
    fn readiness() {
        use Membership::{Joined, Left};
        use PeerState::{Befriended, Rejected};
        let three = record(&[(0, "a", Joined), (1, "b", Joined), (2, "c", Joined)]);
        let whole = report(&[("b", Befriended, true), ("c", Befriended, true)]);
        let one_away = report(&[("b", Befriended, true), ("c", Befriended, false)]);
        let all_away = report(&[("b", Befriended, false), ("c", Befriended, false)]);
        let rejected = report(&[("b", Befriended, true), ("c", Rejected, true)]);
        let half = report(&[("b", Befriended, true)]);
        let mut holds_a_brick = three.clone();
        let bricks = vec![BrickAt { volume: name("gv0"), path: name("/data/b") }];
        holds_a_brick.members.insert(0, Member { bricks, ..member("a", Joined) });
        let gv0 =
            GlusterVolume { name: name("gv0"), version: Some(1), checksum: None, started: true, bricks: Vec::new() };
        for (report, record, why) in [
            (whole.clone(), Some(&three), None),
            (one_away, Some(&three), None),
            (all_away, Some(&three), Some("no other peer is connected")),
            (rejected, Some(&three), Some("host-c is not accepted as a peer by this glusterd: Peer Rejected")),
            (half.clone(), Some(&three), Some("this glusterd does not know host-c")),
            (half, Some(&record(&[(0, "a", Joined), (1, "b", Joined), (2, "c", Left)])), None),
            (report(&[]), Some(&record(&[(0, "a", Joined)])), None),
            (report(&[]), Some(&Record::default()), Some("this pod has not joined the pool yet")),
            (report(&[]), None, Some("this glusterd has no peers, and the record cannot be read")),
            (whole.clone(), None, None),
            (
                whole.clone(),
                Some(&record(&[(0, "f", Joined), (1, "b", Joined)])),
                Some(
                    "this pod is peer ffffffff-0000-4000-8000-000000000000 of the pool, but its glusterd has another identity",
                ),
            ),
            (
                whole.clone(),
                Some(&holds_a_brick),
                Some("this pod holds a brick of gv0, and its glusterd does not know that volume yet"),
            ),
            (Report { volumes: vec![gv0], ..whole.clone() }, Some(&holds_a_brick), None),
            (
                Report { stuck_bricks: vec![name("/data/b")], ..whole.clone() },
                Some(&three),
                Some("brick /data/b does not answer: its disk may hang"),
            ),
            (Report { daemon: Daemon::Starting, ..whole.clone() }, Some(&three), Some("glusterd does not answer yet")),
            (
                Report { heals: Some(4), ..whole.clone() },
                Some(&three),
                Some("4 entries wait to be healed on this pod's bricks or from them"),
            ),
            (
                Report { heals: None, ..whole.clone() },
                Some(&three),
                Some("it is not known yet whether something waits to be healed on this pod's bricks"),
            ),
        ] {
            assert_eq!(unready(&report, record).as_deref(), why);
        }
    }
}
