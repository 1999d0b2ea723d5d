//! Notes and orders when something keeps the pool from being healthy.

use std::collections::BTreeMap;

use crate::names::{id, name};
use stead_pool::{
    BrickAt, Daemon, Decision, DecisionInput, GlusterVolume, Member, NoteReason, Peer, PeerCommand, PeerState,
    PoolSpec, Record, Repair, RepairOrder, Report, decide, still_needed,
};

fn wanted() -> PoolSpec {
    PoolSpec::new("pool", "pool.svc", 4, 0).unwrap()
}

fn peer(ordinal: u32) -> Peer {
    Peer { uuid: Some(id(ordinal)), hosts: vec![wanted().host(ordinal)], state: PeerState::Befriended, connected: true }
}

/// A healthy pool of this many pods.
struct Pool {
    wanted: PoolSpec,
    record: Record,
    reports: BTreeMap<u32, Report>,
}

impl Pool {
    fn of(count: u32) -> Pool {
        let member = |o: u32| Member {
            seen: "Peer in Cluster (Connected)".to_owned(),
            ..Member::joined(wanted().host(o), id(o), 100_000)
        };
        let report = |o: u32| Report {
            ordinal: o,
            pod: format!("pod-{o}"),
            address: name(format!("address-{o}")),
            daemon: Daemon::Running,
            uuid: Some(id(o)),
            operating_version: Some(100_000),
            peers: (0..count).filter(|other| *other != o).map(peer).collect(),
            volumes: Vec::new(),
            heals: None,
            stuck_bricks: Vec::new(),
            done: None,
            doing: None,
        };
        Pool {
            wanted: PoolSpec::new("pool", "pool.svc", count, 0).unwrap(),
            record: Record { members: (0..count).map(|o| (o, member(o))).collect(), ..Record::default() },
            reports: (0..count).map(|o| (o, report(o))).collect(),
        }
    }

    /// How a pod sees another one, to change it.
    fn peer_view(&mut self, who: u32, whom: u32) -> &mut Peer {
        let peers = &mut self.reports.get_mut(&who).unwrap().peers;
        peers.iter_mut().find(|p| p.uuid == Some(id(whom))).unwrap()
    }

    /// The decision of the first pod, after one that updates the record.
    fn decide(&mut self) -> Decision {
        self.decide_at(900);
        self.decide_at(1000)
    }

    fn decide_at(&mut self, now: u64) -> Decision {
        let pods = self.reports.iter().map(|(o, r)| (*o, r.pod.clone())).collect();
        let (wanted, record, reports) = (&self.wanted, &self.record, &self.reports);
        let decision = decide(&DecisionInput { wanted, record, reports, pods: &pods, decider: 0, now });
        self.record = decision.record.clone().unwrap_or(self.record.clone());
        decision
    }
}

fn order(ordinal: u32, pod: &str, since: u64) -> RepairOrder {
    RepairOrder {
        id: 1,
        ordinal,
        pod: pod.to_owned(),
        repair: Repair::RestoreIdentity,
        since,
        made: None,
        withdrawn: false,
        volumes: Vec::new(),
        reason: "it is rejected".to_owned(),
    }
}

fn note_text(decision: &Decision, reason: NoteReason) -> Option<String> {
    decision.notes.iter().find(|n| n.reason == reason).map(|n| n.text.clone())
}

#[test]
fn a_detach_waits_for_disconnected_peers_and_names_only_them() {
    type Fault = fn(&mut Pool);
    let table: [(Fault, Option<&str>); 3] = [
        (|_| {}, None),
        (
            |pool| {
                pool.reports.remove(&2);
                [0, 1, 3].iter().for_each(|o| pool.peer_view(*o, 2).connected = false);
            },
            Some("pool-3 was scaled away; glusterd detaches no peer while another is disconnected: waiting for pool-2"),
        ),
        (
            |pool| {
                pool.peer_view(1, 2).connected = false;
                pool.peer_view(2, 1).connected = false;
            },
            Some(
                "pool-3 was scaled away; it is detached when all other peers answer and are connected: waiting for pool-1, pool-2",
            ),
        ),
    ];
    for (fault, waits) in table {
        let mut pool = Pool::of(4);
        pool.wanted.replicas = 3;
        fault(&mut pool);
        let decision = pool.decide();
        assert_eq!(note_text(&decision, NoteReason::DetachWaits).as_deref(), waits);
        assert_eq!(decision.act.is_some(), waits.is_none());
    }
}

#[test]
fn a_peer_with_an_old_address_of_another_gets_the_right_names() {
    for (first, connected, corrected) in
        [("address-old", false, true), ("address-old", true, false), ("address-2", false, false)]
    {
        let mut pool = Pool::of(3);
        let peer_view = pool.peer_view(1, 2);
        (peer_view.hosts, peer_view.connected) = (vec![name(first), wanted().host(2)], connected);
        pool.decide();
        let order = pool.record.order.map(|o| (o.ordinal, o.repair));
        assert_eq!(order, corrected.then_some((1, Repair::CorrectNames)), "{first}, {connected}");
    }
}

#[test]
fn without_a_majority_only_facts_from_kubernetes_are_recorded() {
    for (pod, known, waits, ordered) in
        [("pod-0", true, true, true), ("pod-before", true, true, false), ("pod-before", false, false, false)]
    {
        let mut pool = Pool::of(2);
        pool.wanted.replicas = 1;
        pool.reports.remove(&1);
        match known {
            true => pool.peer_view(0, 1).connected = false,
            false => pool.reports.get_mut(&0).unwrap().peers.clear(),
        }
        pool.record.order = Some(order(0, pod, 900));
        let decision = pool.decide();
        assert_eq!(note_text(&decision, NoteReason::NoMajority).is_some(), waits, "{pod}, {known}");
        assert_eq!(pool.record.order.is_some(), ordered, "{pod}, {known}");
        assert_eq!(pool.record.joined_as(1).is_some(), known, "{pod}, {known}");
    }
}

#[test]
fn a_detach_waits_until_nothing_has_changed_for_a_while() {
    let mut pool = Pool::of(4);
    pool.wanted.replicas = 3;
    pool.record.members.get_mut(&1).unwrap().since = 990;
    for (now, detaches) in [(1000, false), (1004, false), (1005, true)] {
        let decision = pool.decide_at(now);
        assert_eq!(decision.act.is_some(), detaches, "{now}");
        assert_eq!(note_text(&decision, NoteReason::DetachWaits).is_some(), !detaches, "{now}");
    }
}

#[test]
fn a_detach_waits_for_connections_in_both_directions() {
    let mut pool = Pool::of(4);
    pool.wanted.replicas = 3;
    // The decider is connected to it: the connection in the other direction is missing.
    pool.peer_view(1, 0).connected = false;
    assert_eq!(pool.decide().act, None);
    pool.peer_view(1, 0).connected = true;
    pool.decide_at(2000);
    assert!(matches!(pool.decide_at(3000).act, Some(PeerCommand::Detach { ordinal: 3, .. })));
}

/// An agent may have stopped its glusterd after the report on which the decision is based.
#[test]
fn an_order_is_removed_only_when_the_agent_is_done_with_it() {
    for (age, done, withdrawn) in
        [(100, None, Some(false)), (200, None, Some(true)), (100, Some(1), None), (200, Some(1), None)]
    {
        let mut pool = Pool::of(3);
        pool.record.order = Some(order(1, "pod-1", 1000 - age));
        pool.record.orders = 1;
        pool.reports.get_mut(&1).unwrap().done = done;
        pool.decide_at(1000);
        assert_eq!(pool.record.order.map(|o| o.withdrawn), withdrawn, "{age} s, done: {done:?}");
    }
}

#[test]
fn a_disconnected_befriended_peer_does_not_count_as_healthy() {
    for (connected, needed) in [(true, false), (false, true)] {
        let mut pool = Pool::of(3);
        pool.peer_view(2, 0).connected = connected;
        pool.peer_view(2, 1).state = PeerState::Rejected;
        assert_eq!(still_needed(&order(2, "pod-2", 900), &pool.record, &pool.reports[&2]), needed, "{connected}");
    }
}

#[test]
fn a_decider_without_volumes_leaves_the_pool_to_a_peer_that_has_some() {
    for (with_volume, steps_down) in [(1, true), (0, false)] {
        let mut pool = Pool::of(2);
        pool.reports.values_mut().for_each(|report| report.peers.clear());
        let volume =
            GlusterVolume { name: name("gv0"), version: Some(1), checksum: None, started: true, bricks: Vec::new() };
        pool.reports.get_mut(&with_volume).unwrap().volumes.push(volume);
        assert_eq!(pool.decide().step_down, steps_down, "{with_volume} has a volume");
    }
}

#[test]
fn a_peer_that_nobody_lists_leaves_the_pool_unless_it_holds_bricks() {
    for (holds_bricks, times) in
        [(false, [(900, true), (904, true), (905, false)]), (true, [(900, true), (905, true), (2000, true)])]
    {
        let mut pool = Pool::of(3);
        pool.reports.remove(&2);
        [0, 1].iter().for_each(|o| pool.reports.get_mut(o).unwrap().peers.retain(|p| p.uuid != Some(id(2))));
        if holds_bricks {
            let brick = BrickAt { volume: name("gv0"), path: name("/brick") };
            pool.record.members.get_mut(&2).unwrap().bricks.push(brick);
        }
        for (now, joined) in times {
            pool.decide_at(now);
            assert_eq!(pool.record.joined_as(2).is_some(), joined, "holds bricks: {holds_bricks}, {now}");
        }
    }
}

/// One half of the pool has lost its knowledge of the other: a probe reconnects them.
#[test]
fn a_member_that_lists_the_decider_and_is_not_listed_is_probed() {
    let mut pool = Pool::of(4);
    for (who, whom) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
        pool.reports.get_mut(&who).unwrap().peers.retain(|p| p.uuid != Some(id(whom)));
        pool.peer_view(whom, who).connected = false;
    }
    assert!(matches!(pool.decide().act, Some(PeerCommand::Probe { ordinal: 2, .. })));
}
