//! When a recorded brick is removed from the record.

use std::collections::BTreeMap;

use crate::names::{id, name};
use stead_pool::{
    Brick, BrickAt, Daemon, DecisionInput, GlusterVolume, Member, Peer, PeerState, PoolSpec, Record, Report, decide,
};

fn wanted() -> PoolSpec {
    PoolSpec::new("pool", "pool.svc", 3, 0).unwrap()
}

/// A pool of three pods, of which the last holds a brick.
fn record() -> Record {
    let member = |o: u32| Member {
        bricks: if o == 2 { vec![BrickAt { volume: name("gv0"), path: name("/brick") }] } else { Vec::new() },
        ..Member::joined(wanted().host(o), id(o), 100_000)
    };
    Record { members: (0..3).map(|o| (o, member(o))).collect(), ..Record::default() }
}

/// The report of a pod: it lists the others as befriended, and knows the volume with bricks on these pods, if any.
fn report(ordinal: u32, running: usize, volume: Option<&[u32]>) -> Report {
    let peer = |o: u32| Peer {
        uuid: Some(id(o)),
        hosts: vec![wanted().host(o)],
        state: PeerState::Befriended,
        connected: (o as usize) < running,
    };
    let brick = |o: &u32| Brick { host: wanted().host(*o), uuid: None, path: name("/brick") };
    let volume = volume.map(|at| GlusterVolume {
        name: name("gv0"),
        version: Some(1),
        checksum: None,
        started: true,
        bricks: at.iter().map(brick).collect(),
    });
    Report {
        ordinal,
        pod: format!("pod-{ordinal}"),
        address: name(format!("address-{ordinal}")),
        daemon: Daemon::Running,
        uuid: Some(id(ordinal)),
        operating_version: Some(100_000),
        peers: (0..3).filter(|o| *o != ordinal).map(peer).collect(),
        volumes: volume.into_iter().collect(),
        heals: None,
        stuck_bricks: Vec::new(),
        done: None,
        doing: None,
    }
}

#[test]
fn a_brick_is_removed_only_if_the_reports_prove_it() {
    /// For each pod that answers, the holders of the brick that it knows.
    type Reported<'a> = &'a [Option<&'a [u32]>];
    let table: [(&str, Reported<'_>, bool); 6] = [
        ("all know it", &[Some(&[2]), Some(&[2]), Some(&[2])], true),
        ("the holder is disconnected, and one peer knows the volume", &[Some(&[2]), None], true),
        ("the holder is disconnected, and the others lost their state", &[None, None], true),
        ("the holder is disconnected, and only one peer reports a move", &[Some(&[0]), None], true),
        ("the holder is disconnected, and the brick was moved", &[Some(&[0]), Some(&[0])], false),
        ("all answer, and the volume was deleted", &[None, None, None], false),
    ];
    for (what, volumes, kept) in table {
        let report = |(o, v): (usize, &Option<&[u32]>)| (o as u32, report(o as u32, volumes.len(), *v));
        let reports: BTreeMap<u32, Report> = volumes.iter().enumerate().map(report).collect();
        let pods = reports.iter().map(|(o, r)| (*o, r.pod.clone())).collect();
        let (wanted, record) = (wanted(), record());
        let view =
            DecisionInput { wanted: &wanted, record: &record, reports: &reports, pods: &pods, decider: 0, now: 1000 };
        let after = decide(&view).record.unwrap_or(record.clone());
        assert_eq!(!after.members[&2].bricks.is_empty(), kept, "{what}");
    }
}
