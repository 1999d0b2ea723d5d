//! The gluster command: one call at a time.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use stead_pool::parse::{self, Heal};
use stead_pool::{Peer, PeerCommand, VolumeName};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};

use crate::children::Children;

/// The time limit of a query. glusterd handles queries in one thread, which may wait for another peer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The time limit of a query for pending heals: Gluster starts a client of the volume for it.
const HEAL_TIMEOUT: Duration = Duration::from_secs(30);

/// The gluster command for the pod's own glusterd.
#[derive(Debug)]
pub(crate) struct Gluster {
    program: String,
    children: Children,
    turn: Mutex<()>,
}

impl Gluster {
    /// Runs this program as the gluster command.
    pub(crate) fn new(program: String, children: Children) -> Gluster {
        Gluster { program, children, turn: Mutex::default() }
    }

    /// Returns the other peers as glusterd sees them; an error while it does not answer. Unlike `peer status`, this
    /// query makes a glusterd without identity create one.
    pub(crate) async fn peers(&self) -> Result<Vec<Peer>> {
        Ok(parse::pool_list(&self.query(&["pool", "list"], QUERY_TIMEOUT).await?)?.peers)
    }

    /// Returns the pending heals of a volume, for each brick.
    pub(crate) async fn heals(&self, volume: &VolumeName) -> Result<Vec<Heal>> {
        Ok(parse::heal_summary(&self.query(&["volume", "heal", volume, "info", "summary"], HEAL_TIMEOUT).await?)?)
    }

    /// Runs a peer command; fails if glusterd is busy for longer than `limit`.
    pub(crate) async fn act(&self, act: &PeerCommand, limit: Duration) -> Result<()> {
        let words = match act {
            PeerCommand::Probe { host, .. } => ["peer", "probe", host],
            PeerCommand::Detach { host, .. } => ["peer", "detach", host],
        };
        // The output contains no peers, only whether the command succeeded.
        let began = Instant::now();
        let Ok(turn) = tokio::time::timeout(limit, self.turn.lock()).await else {
            bail!("gluster {}: glusterd was busy for {} s", words.join(" "), limit.as_secs());
        };
        let answer = self.run(&words, limit.saturating_sub(began.elapsed()), &turn).await?;
        let done = parse::peer_status(&answer);
        done.map(drop).map_err(|error| anyhow!("gluster {}: {}", words.join(" "), error.reason))
    }

    async fn query(&self, words: &[&str], limit: Duration) -> Result<String> {
        let turn = self.turn.lock().await;
        self.run(words, limit, &turn).await
    }

    async fn run(&self, words: &[&str], limit: Duration, _turn: &MutexGuard<'_, ()>) -> Result<String> {
        let mut command = Command::new(&self.program);
        // At the default log level, each call adds four lines to a log file that is never rotated.
        command.args(["--log-level=WARNING", "--mode=script", "--xml"]).args(words);
        let output = self.children.output(&mut command, limit).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains("<cliOutput>") {
            return Ok(text);
        }
        let message = if text.trim().is_empty() { String::from_utf8_lossy(&output.stderr).into_owned() } else { text };
        bail!("gluster {}: {}", words.join(" "), message.trim())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::test_agent::{B, name};

    use super::*;

    #[tokio::test]
    async fn a_peer_command_waits_for_its_turn_within_its_limit() {
        let gluster = Gluster::new("/no/such/program".into(), Children);
        let act = PeerCommand::Detach { ordinal: 1, host: name("g-1"), uuid: name(B) };
        let turn = gluster.turn.lock().await;
        let late = gluster.act(&act, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(late.to_string(), "gluster peer detach g-1: glusterd was busy for 0 s");
        drop(turn);
        let other = gluster.act(&act, Duration::from_secs(3600)).await.unwrap_err();
        assert_eq!(other.to_string(), "running /no/such/program");
    }
}
