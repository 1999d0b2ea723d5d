//! Who sees whom.

use std::collections::BTreeMap;

use super::{PeerCondition, PeerView, StatusInput};
use crate::{Peer, PeerState, Report};

/// How one sees another.
fn peer_view(peer: Option<&Peer>) -> PeerView {
    let Some(peer) = peer else {
        return PeerView { words: None, word: PeerCondition::Unknown, uuid: None, disputed: false };
    };
    let connection = if peer.connected { "Connected" } else { "Disconnected" };
    let word = match (peer.state, peer.connected) {
        (PeerState::Befriended, true) => PeerCondition::Ok,
        (PeerState::Befriended, false) => PeerCondition::Away,
        (PeerState::Rejected, _) => PeerCondition::Rejected,
        (PeerState::UnfriendSent, _) => PeerCondition::Leaving,
        _ => PeerCondition::Joining,
    };
    PeerView { words: Some(format!("{} ({connection})", peer.state.words())), word, uuid: peer.uuid, disputed: false }
}

/// How those who answered see the others: by who looks, then by whom they look at. Also the names of those that are no
/// pods of this pool.
pub(super) struct Matrix {
    pub(super) rows: BTreeMap<u32, BTreeMap<u32, PeerView>>,
    pub(super) strangers: BTreeMap<u32, Vec<String>>,
}

impl Matrix {
    /// Of these peers; each row has all but the one who looks.
    pub(super) fn new(seen: &StatusInput, ordinals: &[u32]) -> Matrix {
        let mut matrix = Matrix { rows: BTreeMap::new(), strangers: BTreeMap::new() };
        for (who, answer) in &seen.answers {
            let Ok(answer) = answer else { continue };
            let mut known: BTreeMap<u32, &Peer> = BTreeMap::new();
            let mut strangers = Vec::new();
            for peer in &answer.report.peers {
                match ordinal(seen, peer) {
                    // Two of one name: the one that is not fine is the one to show.
                    Some(ordinal)
                        if known.get(&ordinal).is_none_or(|p| peer_view(Some(p)).word == PeerCondition::Ok) =>
                    {
                        known.insert(ordinal, peer);
                    }
                    Some(_) => {}
                    None => strangers.push(name(peer)),
                }
            }
            let others = ordinals.iter().filter(|o| *o != who);
            matrix.rows.insert(*who, others.map(|o| (*o, peer_view(known.get(o).copied()))).collect());
            matrix.strangers.insert(*who, strangers);
        }
        for ordinal in ordinals {
            matrix.dispute(*ordinal);
        }
        matrix
    }

    /// Marks what most do not say of a peer, or, where there is no most, what is not fine.
    fn dispute(&mut self, ordinal: u32) {
        let mut counts: BTreeMap<PeerCondition, usize> = BTreeMap::new();
        for peer_view in self.rows.values().filter_map(|row| row.get(&ordinal)) {
            *counts.entry(peer_view.word).or_default() += 1;
        }
        let total: usize = counts.values().sum();
        if counts.len() < 2 {
            return;
        }
        let most = counts.iter().find(|(_, count)| **count * 2 > total).map(|(word, _)| *word);
        let agreed = most.unwrap_or(PeerCondition::Ok);
        for peer_view in self.rows.values_mut().filter_map(|row| row.get_mut(&ordinal)) {
            peer_view.disputed = peer_view.word != agreed;
        }
    }
}

/// What to call a peer that is no pod of the pool.
fn name(peer: &Peer) -> String {
    match (peer.hosts.first(), peer.uuid) {
        (Some(host), _) => host.to_string(),
        (None, Some(uuid)) => uuid.to_string(),
        (None, None) => "without a name".to_owned(),
    }
}

/// The pod that a peer is: by its name, or by the identity or the address that a pod of the pool has.
fn ordinal(seen: &StatusInput, peer: &Peer) -> Option<u32> {
    let by_name = peer.hosts.iter().find_map(|host| seen.wanted.ordinal(host));
    let reports = || seen.answers.values().filter_map(|a| a.as_ref().ok()).map(|a| &a.report);
    let has =
        |report: &&Report| (report.uuid.is_some() && report.uuid == peer.uuid) || peer.hosts.contains(&report.address);
    let by_report = || reports().find(has).map(|r| r.ordinal);
    let by_record = || {
        let record = seen.record.as_ref().ok()?.as_ref()?;
        record.joined().find(|(_, member)| Some(member.uuid) == peer.uuid).map(|(ordinal, _)| ordinal)
    };
    by_name.or_else(by_report).or_else(by_record)
}
