//! The status of pools as users see it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::str::FromStr;

use expect_test::{Expect, expect, expect_file};
use stead_pool::config_map::RecordError;
use stead_pool::status::{AgentAnswer, NoAgentAnswer, NoteText, PodSummary, PoolEvent, StatusInput, render, status};
use stead_pool::{
    Brick, BrickAt, Daemon, GlusterVolume, Member, Membership, Peer, PeerId, PeerState, PoolSpec, Record, Repair,
    RepairOrder, Report,
};

fn name<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("a valid name")
}

fn uuid(ordinal: u32) -> PeerId {
    name(&format!("{ordinal}0000000-0000-4000-8000-00000000000{ordinal}"))
}

fn wanted(replicas: u32) -> PoolSpec {
    PoolSpec::new("glusterfs", "glusterfs.default.svc.cluster.local", replicas, 0).expect("host names")
}

fn member(ordinal: u32) -> Member {
    Member {
        addresses: vec![name(&format!("10.0.0.{ordinal}"))],
        bricks: if ordinal < 3 {
            vec![BrickAt { volume: name("gv0"), path: name("/data/bricks/gv0") }]
        } else {
            Vec::new()
        },
        seen: "Peer in Cluster (Connected)".to_owned(),
        ..Member::joined(wanted(1).host(ordinal), uuid(ordinal), 100_000)
    }
}

fn peer(ordinal: u32) -> Peer {
    Peer {
        uuid: Some(uuid(ordinal)),
        hosts: vec![wanted(1).host(ordinal), name(&format!("10.0.0.{ordinal}"))],
        state: PeerState::Befriended,
        connected: true,
    }
}

fn report(ordinal: u32, size: u32) -> Report {
    let brick = |o: u32| Brick { host: wanted(1).host(o), uuid: Some(uuid(o)), path: name("/data/bricks/gv0") };
    Report {
        ordinal,
        pod: format!("uid-{ordinal}"),
        address: name(&format!("10.0.0.{ordinal}")),
        daemon: Daemon::Running,
        uuid: Some(uuid(ordinal)),
        operating_version: Some(100_000),
        peers: (0..size).filter(|o| *o != ordinal).map(peer).collect(),
        volumes: vec![GlusterVolume {
            name: name("gv0"),
            version: Some(2),
            checksum: Some("1".to_owned()),
            started: true,
            bricks: (0..size.min(3)).map(brick).collect(),
        }],
        heals: Some(0),
        stuck_bricks: Vec::new(),
        done: None,
        doing: None,
    }
}

/// A healthy pool.
fn healthy(size: u32) -> StatusInput {
    let answer = |o: u32| Ok(AgentAnswer { report: report(o, size), unready: None, notes: Vec::new() });
    let pod = |o: u32| PodSummary { node: Some(format!("worker-{o}")), state: "ready".to_owned() };
    StatusInput {
        namespace: "default".to_owned(),
        wanted: wanted(size),
        record: Ok(Some(Record { members: (0..size).map(|o| (o, member(o))).collect(), order: None, orders: 0 })),
        decider: Some("glusterfs-0".to_owned()),
        pods: (0..size).map(|o| (o, pod(o))).collect(),
        answers: (0..size).map(|o| (o, answer(o))).collect(),
        events: Vec::new(),
        now: 1000,
    }
}

/// The answer of a pod, to change it.
fn answer_of(input: &mut StatusInput, ordinal: u32) -> &mut AgentAnswer {
    input.answers.get_mut(&ordinal).and_then(|a| a.as_mut().ok()).expect("it answers")
}

fn record(input: &mut StatusInput) -> &mut Record {
    input.record.as_mut().ok().and_then(Option::as_mut).expect("there is a record")
}

/// How a pod sees another one, to change it.
fn peer_view(input: &mut StatusInput, who: u32, whom: u32) -> &mut Peer {
    answer_of(input, who).report.peers.iter_mut().find(|p| p.uuid == Some(uuid(whom))).expect("it knows it")
}

fn check(input: &StatusInput, whole: bool, text: Expect) {
    let status = status(input);
    text.assert_eq(&render(&status));
    assert_eq!(status.whole, whole);
}

#[test]
fn a_healthy_pool() {
    check(
        &healthy(3),
        true,
        expect![[r#"
            pool default/glusterfs is healthy
              3 peers wanted, 3 recorded, 3 answering
              leader: glusterfs-0

            Peers
                            POD     NODE       GLUSTERD   UUID                                   BRICKS OF   TO HEAL
              glusterfs-0   ready   worker-0   running    00000000-0000-4000-8000-000000000000   gv0         0
              glusterfs-1   ready   worker-1   running    10000000-0000-4000-8000-000000000001   gv0         0
              glusterfs-2   ready   worker-2   running    20000000-0000-4000-8000-000000000002   gv0         0

            Peer status, as each peer reports it (one row per peer)
              ok: connected; away: in the pool, not connected; ?: no answer
                            glusterfs-0   glusterfs-1   glusterfs-2
              glusterfs-0   -             ok            ok
              glusterfs-1   ok            -             ok
              glusterfs-2   ok            ok            -

            Bricks
              gv0: glusterfs-0:/data/bricks/gv0, glusterfs-1:/data/bricks/gv0, glusterfs-2:/data/bricks/gv0
        "#]],
    );
}

/// As in the field report: a pod came back without its state, and the others reject it.
#[test]
fn a_lost_state_is_being_restored() {
    let mut input = healthy(3);
    let lost = answer_of(&mut input, 1);
    lost.report.uuid = Some(name("deadbeef-0000-4000-8000-000000000001"));
    lost.report.peers.clear();
    lost.report.volumes.clear();
    lost.report.doing = Some("order 4: glusterd is stopped to write its identity back".to_owned());
    lost.unready = Some("this glusterd has no peers".to_owned());
    for who in [0, 2] {
        peer_view(&mut input, who, 1).state = PeerState::Rejected;
    }
    input.pods.insert(1, PodSummary { node: Some("worker-1".to_owned()), state: "not ready".to_owned() });
    record(&mut input).order = Some(RepairOrder {
        id: 4,
        ordinal: 1,
        pod: "uid-1".to_owned(),
        repair: Repair::RestoreIdentity,
        volumes: Vec::new(),
        since: 988,
        made: None,
        withdrawn: false,
        reason: "it came back with another identity".to_owned(),
    });
    answer_of(&mut input, 0).notes = vec![NoteText {
        ordinal: Some(1),
        reason: "Rejected".to_owned(),
        text: "glusterfs-1 is rejected by the others: it gets its identity back".to_owned(),
        severity: "Warning".to_owned(),
    }];
    input.events = vec![PoolEvent {
        time: "2026-01-02T03:04:05Z".to_owned(),
        pod: "glusterfs-1".to_owned(),
        reason: "Rejected".to_owned(),
        text: "glusterfs-1 is rejected by the others: it gets its identity back".to_owned(),
        severity: "Warning".to_owned(),
    }];
    check(
        &input,
        false,
        expect![[r#"
            pool default/glusterfs is not healthy
              3 peers wanted, 3 recorded, 3 answering
              leader: glusterfs-0

            Peers
                            POD         NODE       GLUSTERD   UUID                                   BRICKS OF   TO HEAL
              glusterfs-0   ready       worker-0   running    00000000-0000-4000-8000-000000000000   gv0         0
              glusterfs-1   not ready   worker-1   running    deadbeef-0000-4000-8000-000000000001   gv0         0
              glusterfs-2   ready       worker-2   running    20000000-0000-4000-8000-000000000002   gv0         0

            Peer status, as each peer reports it (one row per peer)
              ok: connected; away: in the pool, not connected; ?: no answer
                            glusterfs-0   glusterfs-1   glusterfs-2
              glusterfs-0   -             rejected      ok
              glusterfs-1   unknown !     -             unknown !
              glusterfs-2   ok            rejected      -
              ! other peers report a different state

            Bricks
              gv0: glusterfs-0:/data/bricks/gv0, glusterfs-1:/data/bricks/gv0, glusterfs-2:/data/bricks/gv0

            Problems
              glusterfs-0 sees glusterfs-1 as Peer Rejected (Connected)
              glusterfs-0 knows glusterfs-1 as 10000000-0000-4000-8000-000000000001, but it is deadbeef-0000-4000-8000-000000000001
              glusterfs-1 does not know glusterfs-0
              glusterfs-1 does not know glusterfs-2
              glusterfs-2 sees glusterfs-1 as Peer Rejected (Connected)
              glusterfs-2 knows glusterfs-1 as 10000000-0000-4000-8000-000000000001, but it is deadbeef-0000-4000-8000-000000000001
              glusterfs-1 is being repaired: restoring its identity and its peers

            Repair in progress
              glusterfs-1, for 12 s: restoring its identity and its peers (it came back with another identity)

            Agents
              glusterfs-1: order 4: glusterd is stopped to write its identity back
              glusterfs-1 is not ready: this glusterd has no peers

            Leader
              ! Rejected: glusterfs-1 is rejected by the others: it gets its identity back

            Recent events
              2026-01-02T03:04:05Z ! glusterfs-1 Rejected: glusterfs-1 is rejected by the others: it gets its identity back
        "#]],
    );
    let json = serde_json::to_string_pretty(&status(&input)).expect("JSON");
    expect_file!["golden/status.json"].assert_eq(&format!("{json}\n"));
}

#[test]
fn a_node_was_lost() {
    let mut input = healthy(3);
    input.answers.insert(2, Err(NoAgentAnswer::Refused("dial tcp 10.0.0.2:24080: i/o timeout".to_owned())));
    input.pods.insert(2, PodSummary { node: Some("worker-2".to_owned()), state: "ending".to_owned() });
    for who in [0, 1] {
        peer_view(&mut input, who, 2).connected = false;
        answer_of(&mut input, who).report.heals = Some(u64::from(who));
    }
    check(
        &input,
        false,
        expect![[r#"
            pool default/glusterfs is not healthy
              3 peers wanted, 3 recorded, 2 answering
              leader: glusterfs-0

            Peers
                            POD      NODE       GLUSTERD    UUID                                   BRICKS OF   TO HEAL
              glusterfs-0   ready    worker-0   running     00000000-0000-4000-8000-000000000000   gv0         0
              glusterfs-1   ready    worker-1   running     10000000-0000-4000-8000-000000000001   gv0         1
              glusterfs-2   ending   worker-2   no answer   20000000-0000-4000-8000-000000000002   gv0         -

            Peer status, as each peer reports it (one row per peer)
              ok: connected; away: in the pool, not connected; ?: no answer
                            glusterfs-0   glusterfs-1   glusterfs-2
              glusterfs-0   -             ok            away
              glusterfs-1   ok            -             away
              glusterfs-2   ?             ?             -

            Bricks
              gv0: glusterfs-0:/data/bricks/gv0, glusterfs-1:/data/bricks/gv0, glusterfs-2:/data/bricks/gv0

            Problems
              glusterfs-0 sees glusterfs-2 as Peer in Cluster (Disconnected)
              glusterfs-1: 1 entry to heal
              glusterfs-1 sees glusterfs-2 as Peer in Cluster (Disconnected)
              glusterfs-2 does not answer: dial tcp 10.0.0.2:24080: i/o timeout
        "#]],
    );
}

#[test]
fn peers_with_different_views() {
    let mut input = healthy(4);
    peer_view(&mut input, 3, 1).state = PeerState::Rejected;
    peer_view(&mut input, 0, 2).connected = false;
    answer_of(&mut input, 1).report.peers.retain(|p| p.uuid != Some(uuid(3)));
    answer_of(&mut input, 2).report.peers.push(Peer {
        uuid: None,
        hosts: vec![name("old.example")],
        state: PeerState::RequestSent,
        connected: false,
    });
    input.decider = None;
    check(
        &input,
        false,
        expect![[r#"
            pool default/glusterfs is not healthy
              4 peers wanted, 4 recorded, 4 answering
              leader: none (nobody holds the Lease)

            Peers
                            POD     NODE       GLUSTERD   UUID                                   BRICKS OF   TO HEAL
              glusterfs-0   ready   worker-0   running    00000000-0000-4000-8000-000000000000   gv0         0
              glusterfs-1   ready   worker-1   running    10000000-0000-4000-8000-000000000001   gv0         0
              glusterfs-2   ready   worker-2   running    20000000-0000-4000-8000-000000000002   gv0         0
              glusterfs-3   ready   worker-3   running    30000000-0000-4000-8000-000000000003   -           0

            Peer status, as each peer reports it (one row per peer)
              ok: connected; away: in the pool, not connected; ?: no answer
                            glusterfs-0   glusterfs-1   glusterfs-2   glusterfs-3
              glusterfs-0   -             ok            away !        ok
              glusterfs-1   ok            -             ok            unknown !
              glusterfs-2   ok            ok            -             ok
              glusterfs-3   ok            rejected !    ok            -
              ! other peers report a different state

            Bricks
              gv0: glusterfs-0:/data/bricks/gv0, glusterfs-1:/data/bricks/gv0, glusterfs-2:/data/bricks/gv0

            Problems
              glusterfs-0 sees glusterfs-2 as Peer in Cluster (Disconnected)
              glusterfs-1 does not know glusterfs-3
              glusterfs-2 has a peer old.example that is not a pod of this pool
              glusterfs-3 sees glusterfs-1 as Peer Rejected (Connected)
        "#]],
    );
}

#[test]
fn a_scale_down_left_bricks_behind() {
    let mut input = healthy(4);
    input.wanted.replicas = 2;
    for gone in [2, 3] {
        input.pods.remove(&gone);
        input.answers.remove(&gone);
        for who in [0, 1] {
            peer_view(&mut input, who, gone).connected = false;
        }
    }
    check(
        &input,
        false,
        expect![[r#"
            pool default/glusterfs is not healthy
              2 peers wanted, 4 recorded, 2 answering
              leader: glusterfs-0

            Peers
                            POD      NODE       GLUSTERD    UUID                                   BRICKS OF   TO HEAL
              glusterfs-0   ready    worker-0   running     00000000-0000-4000-8000-000000000000   gv0         0
              glusterfs-1   ready    worker-1   running     10000000-0000-4000-8000-000000000001   gv0         0
              glusterfs-2   no pod   -          no answer   20000000-0000-4000-8000-000000000002   gv0         -
              glusterfs-3   no pod   -          no answer   30000000-0000-4000-8000-000000000003   -           -

            Peer status, as each peer reports it (one row per peer)
              ok: connected; away: in the pool, not connected; ?: no answer
                            glusterfs-0   glusterfs-1   glusterfs-2   glusterfs-3
              glusterfs-0   -             ok            away          away
              glusterfs-1   ok            -             away          away
              glusterfs-2   ?             ?             -             ?
              glusterfs-3   ?             ?             ?             -

            Bricks
              gv0: glusterfs-0:/data/bricks/gv0, glusterfs-1:/data/bricks/gv0, glusterfs-2:/data/bricks/gv0

            Problems
              glusterfs-0 sees glusterfs-2 as Peer in Cluster (Disconnected)
              glusterfs-0 sees glusterfs-3 as Peer in Cluster (Disconnected)
              glusterfs-1 sees glusterfs-2 as Peer in Cluster (Disconnected)
              glusterfs-1 sees glusterfs-3 as Peer in Cluster (Disconnected)
              glusterfs-2 was scaled away and is still in the pool; it holds bricks of gv0
              glusterfs-3 was scaled away and is still in the pool
        "#]],
    );
}

#[test]
fn a_new_pool() {
    let mut input = healthy(1);
    input.record = Ok(None);
    input.wanted.replicas = 2;
    input.decider = None;
    let first = answer_of(&mut input, 0);
    first.report.daemon = Daemon::Starting;
    first.report.uuid = None;
    first.report.volumes.clear();
    first.report.heals = None;
    input.pods.insert(1, PodSummary { node: None, state: "Pending".to_owned() });
    check(
        &input,
        false,
        expect![[r#"
            pool default/glusterfs is not healthy
              2 peers wanted, 0 recorded, 1 answering
              leader: none (nobody holds the Lease)

            Peers
                            POD       NODE       GLUSTERD    UUID   BRICKS OF   TO HEAL
              glusterfs-0   ready     worker-0   starting    -      -           -
              glusterfs-1   Pending   -          no answer   -      -           -

            Peer status, as each peer reports it (one row per peer)
              ok: connected; away: in the pool, not connected; ?: no answer
                            glusterfs-0   glusterfs-1
              glusterfs-0   -             unknown
              glusterfs-1   ?             -

            Problems
              there is no record yet
              glusterfs-0: glusterd is starting
              glusterfs-0 has not joined the pool
              glusterfs-1 does not answer: it was not asked
        "#]],
    );
}

/// Peers are listed by address before they are listed by name.
#[test]
fn a_peer_is_found_by_its_address() {
    let mut input = healthy(3);
    peer_view(&mut input, 1, 0).hosts = vec![name("10.0.0.0")];
    peer_view(&mut input, 2, 0).hosts = vec![name("192.0.2.7")];
    assert!(status(&input).whole, "{}", render(&status(&input)));
    let mut stranger = healthy(3);
    let peer = peer_view(&mut stranger, 1, 0);
    (peer.uuid, peer.hosts) = (Some(uuid(9)), vec![name("192.0.2.7")]);
    let troubles = status(&stranger).troubles;
    assert_eq!(
        troubles,
        ["glusterfs-1 does not know glusterfs-0", "glusterfs-1 has a peer 192.0.2.7 that is not a pod of this pool",]
    );
}

/// Each of these alone makes a pool not healthy.
#[test]
fn conditions_of_a_pool_that_is_not_healthy() {
    let table: BTreeMap<&str, fn(&mut StatusInput)> = BTreeMap::from([
        ("no record", (|s| s.record = Ok(None)) as fn(&mut StatusInput)),
        ("a record that cannot be read", |s| s.record = Err(RecordError::Missing)),
        ("an agent without address", |s| drop(s.answers.insert(1, Err(NoAgentAnswer::NoAddress)))),
        ("no answer", |s| drop(s.answers.remove(&1))),
        ("a stopped glusterd", |s| answer_of(s, 1).report.daemon = Daemon::Stopped),
        ("a pending heal", |s| answer_of(s, 1).report.heals = Some(1)),
        ("a brick that does not answer", |s| answer_of(s, 1).report.stuck_bricks = vec![name("/data/bricks/gv0")]),
        ("a disconnected peer", |s| peer_view(s, 0, 1).connected = false),
        ("another identity", |s| answer_of(s, 1).report.uuid = Some(uuid(9))),
        ("one more pod is wanted", |s| s.wanted.replicas = 4),
        ("one pod less is wanted", |s| s.wanted.replicas = 2),
        ("a member has left", |s| record(s).members.get_mut(&1).expect("a member").membership = Membership::Left),
    ]);
    assert!(status(&healthy(3)).whole);
    for (what, change) in table {
        let mut input = healthy(3);
        change(&mut input);
        assert!(!status(&input).whole, "{what}");
    }
}
