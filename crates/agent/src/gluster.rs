//! The command line of glusterd: one question at a time.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use stead_pool::parse::{self, Heal};
use stead_pool::{Peer, PeerCommand, VolumeName};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};

use crate::children::Children;

/// How long a question may take. glusterd has one thread for them, which may wait for another peer.
const ASK: Duration = Duration::from_secs(10);

/// How long it may take to tell what waits to be healed: a client of the volume is started for it.
const HEAL: Duration = Duration::from_secs(30);

/// The command line of the pod's own glusterd.
#[derive(Debug)]
pub(crate) struct Gluster {
    program: String,
    children: Children,
    turn: Mutex<()>,
}

impl Gluster {
    /// The command line by this program.
    pub(crate) fn new(program: String, children: Children) -> Gluster {
        Gluster { program, children, turn: Mutex::default() }
    }

    /// The others, as glusterd sees them; an error while it does not answer. A glusterd that has no identity yet makes
    /// one for this question, which it does not for `peer status`.
    pub(crate) async fn peers(&self) -> Result<Vec<Peer>> {
        Ok(parse::pool_list(&self.ask(&["pool", "list"], ASK).await?)?.peers)
    }

    /// What waits to be healed in a volume, brick by brick.
    pub(crate) async fn heals(&self, volume: &VolumeName) -> Result<Vec<Heal>> {
        Ok(parse::heal_summary(&self.ask(&["volume", "heal", volume, "info", "summary"], HEAL).await?)?)
    }

    /// Does something, if its turn comes in time.
    pub(crate) async fn act(&self, act: &PeerCommand, limit: Duration) -> Result<()> {
        let words = match act {
            PeerCommand::Probe { host, .. } => ["peer", "probe", host],
            PeerCommand::Detach { host, .. } => ["peer", "detach", host],
        };
        // Its answer has no peers in it, but whether it was done.
        let began = Instant::now();
        let Ok(turn) = tokio::time::timeout(limit, self.turn.lock()).await else {
            bail!("gluster {}: glusterd was busy for {} s", words.join(" "), limit.as_secs());
        };
        let answer = self.run(&words, limit.saturating_sub(began.elapsed()), &turn).await?;
        let done = parse::peer_status(&answer);
        done.map(drop).map_err(|error| anyhow!("gluster {}: {}", words.join(" "), error.reason))
    }

    async fn ask(&self, words: &[&str], limit: Duration) -> Result<String> {
        let turn = self.turn.lock().await;
        self.run(words, limit, &turn).await
    }

    async fn run(&self, words: &[&str], limit: Duration, _turn: &MutexGuard<'_, ()>) -> Result<String> {
        let mut command = Command::new(&self.program);
        // Without this, each question writes four lines into a file that nobody keeps short.
        command.args(["--log-level=WARNING", "--mode=script", "--xml"]).args(words);
        let output = self.children.output(&mut command, limit).await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if text.contains("<cliOutput>") {
            return Ok(text);
        }
        let said = if text.trim().is_empty() { String::from_utf8_lossy(&output.stderr).into_owned() } else { text };
        bail!("gluster {}: {}", words.join(" "), said.trim())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use crate::test_agent::{B, name};

    use super::*;

    #[tokio::test]
    async fn an_act_has_its_time_and_no_more() {
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
