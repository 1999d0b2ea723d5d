//! How each peer sees the others.

use std::collections::BTreeMap;

use super::{PeerCondition, PeerView, StatusInput};
use crate::{Peer, PeerState, Report};

/// How a pod sees a peer.
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

/// How each pod that answered sees the others: by the pod that looks, then by the pod it looks at. Also the names of
/// peers that are not pods of this pool.
pub(super) struct Matrix {
    pub(super) rows: BTreeMap<u32, BTreeMap<u32, PeerView>>,
    pub(super) strangers: BTreeMap<u32, Vec<String>>,
}

impl Matrix {
    /// Builds the matrix for these ordinals; each row has all others.
    pub(super) fn new(input: &StatusInput, ordinals: &[u32]) -> Matrix {
        let mut matrix = Matrix { rows: BTreeMap::new(), strangers: BTreeMap::new() };
        for (who, answer) in &input.answers {
            let Ok(answer) = answer else { continue };
            let mut known: BTreeMap<u32, &Peer> = BTreeMap::new();
            let mut strangers = Vec::new();
            for peer in &answer.report.peers {
                match ordinal(input, peer) {
                    // If two peers have the same name, the one with a problem is shown.
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
            matrix.mark_disputed(*ordinal);
        }
        matrix
    }

    /// Marks states that differ from the majority's, or, without a majority, from `Ok`.
    fn mark_disputed(&mut self, ordinal: u32) {
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

/// The name of a peer that is not a pod of the pool.
fn name(peer: &Peer) -> String {
    match (peer.hosts.first(), peer.uuid) {
        (Some(host), _) => host.to_string(),
        (None, Some(uuid)) => uuid.to_string(),
        (None, None) => "without a name".to_owned(),
    }
}

/// Returns the pod of a peer: by name, or by the UUID or address of a pod.
fn ordinal(input: &StatusInput, peer: &Peer) -> Option<u32> {
    let by_name = peer.hosts.iter().find_map(|host| input.wanted.ordinal(host));
    let reports = || input.answers.values().filter_map(|a| a.as_ref().ok()).map(|a| &a.report);
    let has =
        |report: &&Report| (report.uuid.is_some() && report.uuid == peer.uuid) || peer.hosts.contains(&report.address);
    let by_report = || reports().find(has).map(|r| r.ordinal);
    let by_record = || {
        let record = input.record.as_ref().ok()?.as_ref()?;
        record.joined().find(|(_, member)| Some(member.uuid) == peer.uuid).map(|(ordinal, _)| ordinal)
    };
    by_name.or_else(by_report).or_else(by_record)
}
