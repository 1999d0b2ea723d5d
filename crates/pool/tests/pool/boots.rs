//! What the state directory of a pod needs before its glusterd starts.

use std::collections::BTreeMap;

use crate::names::{id, name};
use stead_pool::{
    Boot, Daemon, Member, Membership, Peer, PeerFile, PeerState, PoolSpec, Record, Report, StateDir, boot,
};

/// A UUID that no pod of the pool has.
const OTHER_ID: u32 = 100;

fn wanted() -> PoolSpec {
    PoolSpec::new("pool", "pool.svc", 3, 0).unwrap()
}

fn record(membership: Membership) -> Record {
    let member = |o: u32, membership| Member {
        addresses: vec![name(format!("address-{o}"))],
        membership,
        ..Member::joined(wanted().host(o), id(o), 100_000)
    };
    let members = [(0, member(0, Membership::Joined)), (1, member(1, Membership::Joined)), (2, member(2, membership))];
    Record { members: members.into(), ..Record::default() }
}

/// The reports of pods 0 and 1, which list pod 2 or not.
fn reports(lists_pod_2: bool) -> BTreeMap<u32, Report> {
    let peer = |o: u32| Peer {
        uuid: Some(id(o)),
        hosts: vec![wanted().host(o)],
        state: PeerState::Befriended,
        connected: o != 2,
    };
    let report = |o: u32| Report {
        ordinal: o,
        pod: format!("pod-{o}"),
        address: name(format!("address-{o}")),
        daemon: Daemon::Running,
        uuid: Some(id(o)),
        operating_version: Some(100_000),
        peers: [1 - o].into_iter().chain(lists_pod_2.then_some(2)).map(peer).collect(),
        volumes: Vec::new(),
        heals: None,
        stuck_bricks: Vec::new(),
        done: None,
        doing: None,
    };
    [(0, report(0)), (1, report(1))].into()
}

fn state(uuid: Option<u32>, peers: &[u32]) -> StateDir {
    let file = |o: &u32| PeerFile { uuid: id(*o), state: 3, hosts: vec![wanted().host(*o)] };
    StateDir { uuid: uuid.map(id), peers: peers.iter().map(file).collect(), ..StateDir::default() }
}

/// Adds a volume that no other pod has.
fn with_volume(state: StateDir) -> StateDir {
    StateDir { volumes: [(name("gv0"), vec![name("/brick")])].into(), ..state }
}

/// Describes the action, with the identity and the number of peers.
fn describe(boot: Boot) -> String {
    match boot {
        Boot::Start => "start".to_owned(),
        Boot::Restore(identity) => {
            let ordinal = (0..OTHER_ID).find(|o| id(*o) == identity.uuid);
            format!("restore {ordinal:?} with {} peers", identity.peers.len())
        }
        Boot::Forget => "forget".to_owned(),
        Boot::Wait(_) => "wait".to_owned(),
    }
}

#[test]
fn boot_actions() {
    use Membership::{Joined, Left};
    let nobody = BTreeMap::new();
    let mut misnamed = state(Some(2), &[0, 1]);
    misnamed.peers[0].hosts.insert(0, name("address-0"));
    let mut old_peer = state(Some(2), &[0, 1]);
    old_peer.peers[1].uuid = id(OTHER_ID);
    let mut at_an_address = old_peer.clone();
    at_an_address.peers[1].hosts = vec![name("address-1")];
    let mut foreign_peer = old_peer.clone();
    foreign_peer.peers[1].hosts = vec![name("elsewhere")];
    let no_identity = with_volume(state(None, &[]));
    let half_restored = with_volume(state(None, &[0, 1]));
    let stranger = with_volume(state(Some(OTHER_ID), &[]));
    let table = [
        ("a new pod of a new pool", state(None, &[]), Record::default(), nobody.clone(), "start"),
        (
            "state lost, nobody answers",
            state(None, &[]),
            record(Joined),
            nobody.clone(),
            "restore Some(2) with 2 peers",
        ),
        (
            "state lost, the others list it",
            state(None, &[]),
            record(Joined),
            reports(true),
            "restore Some(2) with 2 peers",
        ),
        ("state and record lost", state(None, &[]), Record::default(), reports(true), "restore Some(2) with 2 peers"),
        (
            "only volumes left, nobody answers",
            no_identity.clone(),
            record(Joined),
            nobody.clone(),
            "restore Some(2) with 2 peers",
        ),
        (
            "only volumes left, the others list it",
            no_identity.clone(),
            record(Joined),
            reports(true),
            "restore Some(2) with 2 peers",
        ),
        (
            "only volumes left, no record",
            no_identity.clone(),
            Record::default(),
            reports(true),
            "restore Some(2) with 2 peers",
        ),
        ("only volumes left, a new pool", no_identity.clone(), Record::default(), nobody.clone(), "start"),
        ("only volumes left, detached in the meantime", no_identity, record(Left), reports(false), "wait"),
        ("an interrupted restore", half_restored, record(Joined), nobody.clone(), "restore Some(2) with 2 peers"),
        ("another identity, with a volume", stranger, record(Joined), reports(true), "start"),
        (
            "state lost, and started with a new identity",
            state(Some(OTHER_ID), &[]),
            record(Joined),
            reports(true),
            "restore Some(2) with 2 peers",
        ),
        ("state lost, and detached in the meantime", state(None, &[]), record(Joined), reports(false), "start"),
        ("unchanged", state(Some(2), &[0, 1]), record(Joined), reports(true), "start"),
        ("one peer is enough", state(Some(2), &[0]), record(Joined), nobody.clone(), "start"),
        ("peers lost", state(Some(2), &[]), record(Joined), reports(true), "restore Some(2) with 2 peers"),
        ("an address before the name", misnamed, record(Joined), reports(true), "restore Some(2) with 2 peers"),
        ("detached while disconnected", state(Some(2), &[0, 1]), record(Left), reports(false), "forget"),
        ("detached, and a peer has another identity since", old_peer, record(Left), reports(false), "forget"),
        ("detached, and that peer is listed by address", at_an_address, record(Left), reports(false), "forget"),
        ("detached, and lists a peer of another pool", foreign_peer, record(Left), reports(false), "wait"),
        ("detached while running", state(Some(2), &[]), record(Left), reports(false), "start"),
        ("a copy of another pod's state", state(Some(1), &[0]), record(Joined), reports(true), "wait"),
    ];
    for (what, state, record, reports, expected) in table {
        assert_eq!(describe(boot(&wanted(), 2, &state, &record, &reports)), expected, "{what}");
    }
}
