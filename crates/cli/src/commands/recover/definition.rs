//! The definition of NodeRecovery, which a recovery brings with it where it is not there.

use std::time::{Duration, Instant};

use anyhow::bail;
use stead_manifests::{Manifest, is_ours, recovery};

use crate::output;
use crate::server::Server;

/// How often it is looked at.
const PACE: Duration = Duration::from_millis(100);

/// How the definition stands.
pub(super) struct Definition {
    manifest: Manifest,
    missing: bool,
}

pub(super) async fn look(server: &Server) -> anyhow::Result<Definition> {
    let manifest = recovery();
    let there = server.get(&manifest.path()).await?;
    if there.as_ref().is_some_and(|there| !is_ours(there)) {
        bail!("{manifest} belongs to somebody else: Stead cannot keep its record there, and does nothing without one");
    }
    Ok(Definition { manifest, missing: there.is_none() })
}

impl Definition {
    pub(super) fn is_missing(&self) -> bool {
        self.missing
    }

    /// Applies it, and waits until the server has the kind.
    pub(super) async fn bring(&self, server: &Server, timeout: Duration) -> anyhow::Result<()> {
        if self.missing {
            server.apply(&self.manifest.path(), &self.manifest.object, false).await?;
            output::complain("note", &format!("created {}", self.manifest));
        }
        let until = Instant::now() + timeout;
        loop {
            let live = server.get(&self.manifest.path()).await?.unwrap_or_default();
            let mut conditions = live["status"]["conditions"].as_array().into_iter().flatten();
            if conditions.any(|c| c["type"] == "Established" && c["status"] == "True") {
                return Ok(());
            }
            if Instant::now() >= until {
                bail!("{} is not established after {}s", self.manifest, timeout.as_secs());
            }
            tokio::time::sleep(PACE).await;
        }
    }
}
