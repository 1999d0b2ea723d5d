//! How fast peers connect, and what an agent costs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::friends::WELL;
use super::scenes::lose_state;
use super::{CONTAINER, NAMESPACE, PATIENCE, PoolStage, host, pod};
use crate::until;

/// What was measured.
#[derive(Debug, Clone)]
pub struct Figures {
    /// From a new pod that runs to a peer that all others see connected, for each that was looked at.
    pub joined: Vec<Duration>,
    /// The same for one that lost its state.
    pub restored: Vec<Duration>,
    /// CPU time of a container at rest, with glusterd and what the agent asks it, in a minute.
    pub container: Duration,
    /// CPU time of the agent alone in that minute.
    pub agent: Duration,
    /// The most memory that an agent had, in bytes.
    pub memory: u64,
}

/// Measures a pool: three peers, two more, three that lose their state one after the other, and a minute at rest.
pub async fn measure(stage: &PoolStage) -> Result<Figures> {
    stage.install(&[]).await?;
    stage.whole(3, PATIENCE).await?;
    let mut joined = Vec::new();
    for ordinal in [3, 4] {
        stage.scale(ordinal + 1).await?;
        joined.push(until_connected(stage, ordinal, ordinal + 1).await?);
        stage.whole(ordinal + 1, PATIENCE).await?;
    }
    let mut restored = Vec::new();
    for ordinal in [0, 1, 4] {
        lose_state(stage, ordinal).await?;
        restored.push(until_connected(stage, ordinal, 5).await?);
        stage.whole(5, PATIENCE).await?;
    }
    let before = (stage.machines.usage(NAMESPACE, &pod(1), CONTAINER).await?.cpu, agent(stage, 1).await?.0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = (stage.machines.usage(NAMESPACE, &pod(1), CONTAINER).await?.cpu, agent(stage, 1).await?.0);
    let mut memory = 0;
    for ordinal in 0..5 {
        memory = memory.max(agent(stage, ordinal).await?.1);
    }
    let (container, agent) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    Ok(Figures { joined, restored, container, agent, memory })
}

/// An agent's CPU time so far, and the most memory that it had. It is its container's first process.
async fn agent(stage: &PoolStage, ordinal: u32) -> Result<(Duration, u64)> {
    let stat = stage.inside(ordinal, &["cat", "/proc/1/stat"]).await?;
    // After the name, which is in brackets, user and system time are the 12th and the 13th, in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).context("/proc/1/stat");
    let status = stage.inside(ordinal, &["cat", "/proc/1/status"]).await?;
    let most =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let most: u64 = most.context("VmHWM in /proc/1/status")?;
    Ok((Duration::from_millis(10 * (ticks(11)? + ticks(12)?)), most * 1024))
}

/// Waits until a pod runs, and from then on until all others see it connected.
async fn until_connected(stage: &PoolStage, ordinal: u32, replicas: u32) -> Result<Duration> {
    until("the pod runs", PATIENCE, async || {
        let found = stage.pod(ordinal).await?;
        Ok(found.is_some_and(|found| found["status"]["containerStatuses"][0]["state"]["running"].is_object()))
    })
    .await?;
    let began = Instant::now();
    until("all others see it", PATIENCE, async || {
        for other in (0..replicas).filter(|other| *other != ordinal) {
            if !stage.friends(other).await?.iter().any(|f| f.host == host(ordinal) && f.state == WELL) {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await?;
    Ok(began.elapsed())
}
