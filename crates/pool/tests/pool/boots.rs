//! What a pod's state has to be before its glusterd starts.

use std::collections::BTreeMap;

use crate::names::{id, name};
use stead_pool::{
    Boot, Daemon, Member, Membership, Peer, PeerFile, PeerState, PoolSpec, Record, Report, StateDir, boot,
};

/// The identity of nobody else.
const ANOTHER: u32 = 100;

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

/// Pods 0 and 1 of the pool, with pod 2 among their friends or not.
fn reports(know: bool) -> BTreeMap<u32, Report> {
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
        peers: [1 - o].into_iter().chain(know.then_some(2)).map(peer).collect(),
        volumes: Vec::new(),
        heals: None,
        stuck_bricks: Vec::new(),
        done: None,
        doing: None,
    };
    [(0, report(0)), (1, report(1))].into()
}

fn state(uuid: Option<u32>, friends: &[u32]) -> StateDir {
    let file = |o: &u32| PeerFile { uuid: id(*o), state: 3, hosts: vec![wanted().host(*o)] };
    StateDir { uuid: uuid.map(id), peers: friends.iter().map(file).collect(), ..StateDir::default() }
}

/// The same, with a volume that none of the others has.
fn with_volume(state: StateDir) -> StateDir {
    StateDir { volumes: [(name("gv0"), vec![name("/brick")])].into(), ..state }
}

/// What happens, in a word, with the identity and the number of friends.
fn says(boot: Boot) -> String {
    match boot {
        Boot::Start => "start".to_owned(),
        Boot::Restore(identity) => {
            let ordinal = (0..ANOTHER).find(|o| id(*o) == identity.uuid);
            format!("restore {ordinal:?} with {} peers", identity.peers.len())
        }
        Boot::Forget => "forget".to_owned(),
        Boot::Wait(_) => "wait".to_owned(),
    }
}

#[test]
fn before_the_first_start() {
    use Membership::{Joined, Left};
    let nobody = BTreeMap::new();
    let mut misnamed = state(Some(2), &[0, 1]);
    misnamed.peers[0].hosts.insert(0, name("address-0"));
    let mut old_friend = state(Some(2), &[0, 1]);
    old_friend.peers[1].uuid = id(ANOTHER);
    let mut at_an_address = old_friend.clone();
    at_an_address.peers[1].hosts = vec![name("address-1")];
    let mut foreign_friend = old_friend.clone();
    foreign_friend.peers[1].hosts = vec![name("elsewhere")];
    let no_identity = with_volume(state(None, &[]));
    let half_restored = with_volume(state(None, &[0, 1]));
    let stranger = with_volume(state(Some(ANOTHER), &[]));
    let table = [
        ("a fresh pod of a pool that is not there yet", state(None, &[]), Record::default(), nobody.clone(), "start"),
        ("lost, nobody answers", state(None, &[]), record(Joined), nobody.clone(), "restore Some(2) with 2 peers"),
        ("lost, the others know it", state(None, &[]), record(Joined), reports(true), "restore Some(2) with 2 peers"),
        ("lost with the record", state(None, &[]), Record::default(), reports(true), "restore Some(2) with 2 peers"),
        (
            "only volumes left, nobody answers",
            no_identity.clone(),
            record(Joined),
            nobody.clone(),
            "restore Some(2) with 2 peers",
        ),
        (
            "only volumes left, the others know it",
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
        ("only volumes left, detached since", no_identity, record(Left), reports(false), "wait"),
        ("a restore that was cut short", half_restored, record(Joined), nobody.clone(), "restore Some(2) with 2 peers"),
        ("another's identity, with a volume", stranger, record(Joined), reports(true), "start"),
        (
            "lost and started without asking",
            state(Some(ANOTHER), &[]),
            record(Joined),
            reports(true),
            "restore Some(2) with 2 peers",
        ),
        ("lost, and detached meanwhile", state(None, &[]), record(Joined), reports(false), "start"),
        ("as it was", state(Some(2), &[0, 1]), record(Joined), reports(true), "start"),
        ("one friend is enough", state(Some(2), &[0]), record(Joined), nobody.clone(), "start"),
        ("friends lost", state(Some(2), &[]), record(Joined), reports(true), "restore Some(2) with 2 peers"),
        ("an address before the name", misnamed, record(Joined), reports(true), "restore Some(2) with 2 peers"),
        ("detached while it was away", state(Some(2), &[0, 1]), record(Left), reports(false), "forget"),
        ("detached, and a friend is another since", old_friend, record(Left), reports(false), "forget"),
        ("detached, and that friend by its address", at_an_address, record(Left), reports(false), "forget"),
        ("detached, and has a friend elsewhere", foreign_friend, record(Left), reports(false), "wait"),
        ("detached while it ran", state(Some(2), &[]), record(Left), reports(false), "start"),
        ("a copy of another's state", state(Some(1), &[0]), record(Joined), reports(true), "wait"),
    ];
    for (what, state, record, reports, expected) in table {
        assert_eq!(says(boot(&wanted(), 2, &state, &record, &reports)), expected, "{what}");
    }
}
