//! Renders the status of a pool as text.

use super::{PeerStatus, Status};
use crate::{Daemon, Membership, Severity};

/// Renders the status of a pool as text.
pub fn render(status: &Status) -> String {
    let Status { namespace, pool, .. } = status;
    let mut text = format!("pool {namespace}/{pool} is {}\n", if status.whole { "healthy" } else { "not healthy" });
    let answer = status.peers.iter().filter(|p| p.silent.is_none()).count();
    let joined = status.peers.iter().filter(|p| p.membership == Some(Membership::Joined)).count();
    text.push_str(&format!("  {} wanted, {joined} recorded, {answer} answering\n", peers(status.wanted)));
    text.push_str(&match &status.decider {
        Some(pod) => format!("  leader: {pod}\n"),
        None => "  leader: none (nobody holds the Lease)\n".to_owned(),
    });
    text.push_str("\nPeers\n");
    text.push_str(&table(&rows(status)));
    if status.peers.iter().any(|p| p.sees.is_some()) {
        text.push_str("\nPeer status, as each peer reports it (one row per peer)\n");
        text.push_str("  ok: connected; away: in the pool, not connected; ?: no answer\n");
        text.push_str(&table(&matrix(status)));
        if status.peers.iter().filter_map(|p| p.sees.as_ref()).flat_map(|s| s.values()).any(|s| s.disputed) {
            text.push_str("  ! other peers report a different state\n");
        }
    }
    section(&mut text, "Bricks", status.volumes.iter().map(|(volume, at)| format!("{volume}: {}", at.join(", "))));
    section(&mut text, "Problems", status.troubles.iter().cloned());
    section(
        &mut text,
        "Repair in progress",
        status.repair.iter().map(|r| format!("{}, for {} s: {} ({})", r.pod, r.seconds, r.what, r.reason)),
    );
    section(&mut text, "Agents", status.peers.iter().flat_map(doing));
    section(&mut text, "Leader", status.notes.iter().map(|n| format!("{}{}: {}", mark(&n.severity), n.reason, n.text)));
    section(
        &mut text,
        "Recent events",
        status.events.iter().map(|e| format!("{} {}{} {}: {}", e.time, mark(&e.severity), e.pod, e.reason, e.text)),
    );
    text
}

fn peers(count: u32) -> String {
    if count == 1 { "1 peer".to_owned() } else { format!("{count} peers") }
}

fn mark(severity: &str) -> &'static str {
    if severity == Severity::Warning.as_str() { "! " } else { "" }
}

fn section(text: &mut String, head: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        text.push_str(&format!("\n{head}\n"));
        for line in lines {
            text.push_str(&format!("  {line}\n"));
        }
    }
}

fn doing(peer: &PeerStatus) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(peer.doing.iter().map(|doing| format!("{}: {doing}", peer.pod)));
    let unready = peer.unready.iter().filter(|why| peer.doing.as_ref() != Some(*why));
    lines.extend(unready.map(|why| format!("{} is not ready: {why}", peer.pod)));
    lines
}

fn rows(status: &Status) -> Vec<Vec<String>> {
    let head = ["", "POD", "NODE", "GLUSTERD", "UUID", "BRICKS OF", "TO HEAL"];
    let or = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let row = |peer: &PeerStatus| {
        let daemon = peer.glusterd.map(|daemon| match daemon {
            Daemon::Running => "running",
            Daemon::Starting => "starting",
            Daemon::Stopped => "stopped",
        });
        vec![
            peer.pod.clone(),
            peer.pod_state.clone(),
            or(peer.node.clone()),
            daemon.unwrap_or("no answer").to_owned(),
            or(peer.uuid.map(|uuid| uuid.to_string())),
            or(Some(peer.bricks.join(",")).filter(|b| !b.is_empty())),
            or(peer.heals.map(|count| count.to_string())),
        ]
    };
    std::iter::once(head.map(str::to_owned).to_vec()).chain(status.peers.iter().map(row)).collect()
}

fn matrix(status: &Status) -> Vec<Vec<String>> {
    let head = std::iter::once(String::new()).chain(status.peers.iter().map(|p| p.pod.clone())).collect();
    let row = |peer: &PeerStatus| {
        let cell = |other: &PeerStatus| match (&peer.sees, peer.pod == other.pod) {
            (_, true) => "-".to_owned(),
            (None, false) => "?".to_owned(),
            (Some(sees), false) => sees.get(&other.pod).map_or("?".to_owned(), |peer_view| {
                format!("{}{}", peer_view.word.as_str(), if peer_view.disputed { " !" } else { "" })
            }),
        };
        std::iter::once(peer.pod.clone()).chain(status.peers.iter().map(cell)).collect()
    };
    std::iter::once(head).chain(status.peers.iter().map(row)).collect()
}

/// Renders a table with columns as wide as their content.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |i: usize| rows.iter().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let line: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}   ")).collect();
        text.push_str(format!("  {line}").trim_end());
        text.push('\n');
    }
    text
}
