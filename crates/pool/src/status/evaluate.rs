//! Evaluates whether a pool is healthy, and if not, why.

use std::collections::{BTreeMap, BTreeSet};

use super::matrix::Matrix;
use super::{PeerCondition, PeerStatus, PeerView, RepairStatus, Status, StatusInput};
use crate::{BrickPath, Daemon, HostName, Member, Membership, Record, Repair, Report, VolumeName};

/// Computes the status of a pool.
pub fn status(input: &StatusInput) -> Status {
    let empty = Record::default();
    let record = input.record.as_ref().ok().and_then(Option::as_ref).unwrap_or(&empty);
    let ordinals = ordinals(input, record);
    let mut matrix = Matrix::new(input, &ordinals);
    let volumes = volumes(input, record);
    let peers: Vec<PeerStatus> = ordinals.iter().map(|o| peer(input, record, &volumes, &mut matrix, *o)).collect();
    let repair = record.order.as_ref().map(|order| RepairStatus {
        pod: input.wanted.pod(order.ordinal),
        what: describe_repair(&order.repair).to_owned(),
        reason: order.reason.clone(),
        seconds: input.now.saturating_sub(order.since),
    });
    let mut troubles = Vec::new();
    match &input.record {
        Err(why) => troubles.push(format!("the record cannot be read: {why}")),
        Ok(None) => troubles.push("there is no record yet".to_owned()),
        Ok(Some(_)) => {}
    }
    for peer in &peers {
        troubles.extend(peer_problems(peer, &peers));
    }
    troubles.extend(repair.as_ref().map(|r| format!("{} is being repaired: {}", r.pod, r.what)));
    let decider = |ordinal: &u32| Some(input.wanted.pod(*ordinal)) == input.decider;
    let answered = input.answers.iter().filter_map(|(o, a)| Some((o, a.as_ref().ok()?)));
    let notes = answered.filter(|(o, _)| decider(o)).flat_map(|(_, a)| a.notes.clone()).collect();
    Status {
        pool: input.wanted.name().to_owned(),
        namespace: input.namespace.clone(),
        whole: troubles.is_empty(),
        wanted: input.wanted.replicas,
        decider: input.decider.clone(),
        peers,
        volumes: volumes.into_iter().map(|(volume, bricks)| (volume, brick_names(input, &bricks))).collect(),
        troubles,
        repair,
        notes,
        events: input.events.clone(),
    }
}

/// The ordinals that are wanted, are members, or have a pod.
fn ordinals(input: &StatusInput, record: &Record) -> Vec<u32> {
    let start = input.wanted.start;
    let wanted = start..start.saturating_add(input.wanted.replicas);
    let joined = record.joined().map(|(ordinal, _)| ordinal);
    let all: BTreeSet<u32> = wanted.chain(joined).chain(input.pods.keys().copied()).collect();
    all.into_iter().collect()
}

/// The holder of a brick.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    /// A pod of this pool.
    Pod(u32),
    /// Another host.
    Host(HostName),
}

/// The holders and directories of the bricks of each volume.
type Bricks = BTreeMap<VolumeName, BTreeSet<(Holder, BrickPath)>>;

/// The bricks that the peers report; for volumes that nobody reports, the recorded ones.
fn volumes(input: &StatusInput, record: &Record) -> Bricks {
    let mut volumes = Bricks::new();
    for (ordinal, member) in record.joined() {
        for brick in &member.bricks {
            volumes.entry(brick.volume.clone()).or_default().insert((Holder::Pod(ordinal), brick.path.clone()));
        }
    }
    let mut reported = Bricks::new();
    for report in input.answers.values().filter_map(|a| a.as_ref().ok()).map(|a| &a.report) {
        for volume in &report.volumes {
            let bricks = reported.entry(volume.name.clone()).or_default();
            for brick in &volume.bricks {
                let by_uuid = || {
                    let uuid = brick.uuid?;
                    record.joined().find(|(_, m)| m.uuid == uuid).map(|(o, _)| o)
                };
                let holder = input.wanted.ordinal(&brick.host).or_else(by_uuid);
                let holder = holder.map_or_else(|| Holder::Host(brick.host.clone()), Holder::Pod);
                bricks.insert((holder, brick.path.clone()));
            }
        }
    }
    volumes.extend(reported);
    volumes
}

fn brick_names(input: &StatusInput, bricks: &BTreeSet<(Holder, BrickPath)>) -> Vec<String> {
    let name = |holder: &Holder| match holder {
        Holder::Pod(ordinal) => input.wanted.pod(*ordinal),
        Holder::Host(host) => host.to_string(),
    };
    bricks.iter().map(|(holder, path)| format!("{}:{path}", name(holder))).collect()
}

fn peer(input: &StatusInput, record: &Record, volumes: &Bricks, matrix: &mut Matrix, ordinal: u32) -> PeerStatus {
    let member: Option<&Member> = record.members.get(&ordinal);
    let pod = input.pods.get(&ordinal);
    let answer = input.answers.get(&ordinal);
    let answered = answer.and_then(|a| a.as_ref().ok());
    let report: Option<&Report> = answered.map(|a| &a.report);
    let holds = |bricks: &BTreeSet<(Holder, BrickPath)>| bricks.iter().any(|(who, _)| *who == Holder::Pod(ordinal));
    let sees = matrix.rows.remove(&ordinal).map(|row| by_pod(input, row));
    PeerStatus {
        pod: input.wanted.pod(ordinal),
        wanted: input.wanted.includes(ordinal),
        membership: member.map(|m| m.membership),
        pod_state: pod.map_or("no pod".to_owned(), |p| p.state.clone()),
        node: pod.and_then(|p| p.node.clone()),
        glusterd: report.map(|r| r.daemon),
        uuid: report.and_then(|r| r.uuid).or_else(|| member.map(|m| m.uuid)),
        bricks: volumes.iter().filter(|(_, bricks)| holds(bricks)).map(|(volume, _)| volume.clone()).collect(),
        heals: report.and_then(|r| r.heals),
        stuck_bricks: report.map(|r| r.stuck_bricks.clone()).unwrap_or_default(),
        sees,
        strangers: matrix.strangers.remove(&ordinal).unwrap_or_default(),
        doing: report.and_then(|r| r.doing.clone()),
        unready: answered.and_then(|a| a.unready.clone()),
        silent: match answer {
            Some(Err(why)) => Some(why.to_string()),
            Some(Ok(_)) => None,
            None if pod.is_some() => Some("it was not asked".to_owned()),
            None => Some("it has no pod".to_owned()),
        },
    }
}

fn by_pod(input: &StatusInput, row: BTreeMap<u32, PeerView>) -> BTreeMap<String, PeerView> {
    row.into_iter().map(|(ordinal, peer_view)| (input.wanted.pod(ordinal), peer_view)).collect()
}

/// The problems of one peer, from its own report and from how it sees the others.
fn peer_problems(peer: &PeerStatus, peers: &[PeerStatus]) -> Vec<String> {
    let pod = &peer.pod;
    let mut troubles = Vec::new();
    if !peer.wanted {
        let holds = if peer.bricks.is_empty() {
            String::new()
        } else {
            format!("; it holds bricks of {}", peer.bricks.join(", "))
        };
        troubles.push(match peer.membership {
            Some(Membership::Joined) => {
                format!("{pod} was scaled away and is still in the pool{holds}")
            }
            _ => format!("{pod} was scaled away and its pod still exists"),
        });
    }
    if let Some(why) = peer.silent.as_ref().filter(|_| peer.wanted) {
        troubles.push(format!("{pod} does not answer: {why}"));
    }
    match peer.glusterd {
        Some(Daemon::Stopped) => troubles.push(format!("{pod}: glusterd is not running")),
        Some(Daemon::Starting) => troubles.push(format!("{pod}: glusterd is starting")),
        Some(Daemon::Running) | None => {}
    }
    troubles.extend(peer.stuck_bricks.iter().map(|path| format!("{pod}: brick {path} does not answer")));
    if let Some(count) = peer.heals.filter(|count| *count > 0) {
        let entries = if count == 1 { "entry" } else { "entries" };
        troubles.push(format!("{pod}: {count} {entries} to heal"));
    }
    if peer.wanted && peer.silent.is_none() && peer.membership != Some(Membership::Joined) {
        troubles.push(format!("{pod} has not joined the pool"));
    }
    troubles.extend(view_problems(peer, peers));
    for stranger in &peer.strangers {
        troubles.push(format!("{pod} has a peer {stranger} that is not a pod of this pool"));
    }
    troubles
}

/// The problems in how a peer sees the others that are wanted or members.
fn view_problems(peer: &PeerStatus, peers: &[PeerStatus]) -> Vec<String> {
    let mut troubles = Vec::new();
    // A glusterd that is not running sees nobody, which is reported already.
    let Some(sees) = peer.sees.as_ref().filter(|_| peer.glusterd == Some(Daemon::Running)) else { return troubles };
    for other in peers.iter().filter(|o| o.wanted || o.membership == Some(Membership::Joined)) {
        let Some(peer_view) = sees.get(&other.pod) else { continue };
        match &peer_view.words {
            None => troubles.push(format!("{} does not know {}", peer.pod, other.pod)),
            Some(words) if peer_view.word != PeerCondition::Ok => {
                troubles.push(format!("{} sees {} as {words}", peer.pod, other.pod))
            }
            Some(_) => {}
        }
        let own = other.uuid.as_ref().filter(|_| other.silent.is_none());
        if let (Some(expected), Some(own)) = (&peer_view.uuid, own)
            && expected != own
        {
            troubles.push(format!("{} knows {} as {expected}, but it is {own}", peer.pod, other.pod));
        }
    }
    troubles
}

fn describe_repair(repair: &Repair) -> &'static str {
    match repair {
        Repair::RestoreIdentity => "restoring its identity and its peers",
        Repair::ResyncVolumes => "fetching volume definitions from the other peers",
        Repair::Forget => "moving aside the state of the pool that it was detached from",
        Repair::CorrectNames => "replacing the addresses of its peers with their names",
    }
}
