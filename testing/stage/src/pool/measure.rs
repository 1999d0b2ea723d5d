//! Measures how fast peers connect, and the CPU time and memory of an agent.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::peer_status::CONNECTED;
use super::scenes::lose_state;
use super::{CONTAINER, NAMESPACE, PoolStage, TIMEOUT, host, pod};
use crate::wait_until;

/// The measurements of a pool.
#[derive(Debug, Clone)]
pub struct Measurements {
    /// The times from a running new pod to a peer that all others list as connected.
    pub joined: Vec<Duration>,
    /// The same times for peers that lost their state.
    pub restored: Vec<Duration>,
    /// CPU time of an idle container in a minute, with glusterd and the commands that the agent runs.
    pub container: Duration,
    /// CPU time of the agent alone in the same minute.
    pub agent: Duration,
    /// The largest peak memory of an agent, in bytes.
    pub memory: u64,
}

/// Measures a pool of three peers: adds two, deletes the state of three one after the other, and waits for an idle
/// minute.
pub async fn measure(stage: &PoolStage) -> Result<Measurements> {
    stage.install(&[]).await?;
    stage.wait_until_healthy(3, TIMEOUT).await?;
    let mut joined = Vec::new();
    for ordinal in [3, 4] {
        stage.scale(ordinal + 1).await?;
        joined.push(time_to_connect(stage, ordinal, ordinal + 1).await?);
        stage.wait_until_healthy(ordinal + 1, TIMEOUT).await?;
    }
    let mut restored = Vec::new();
    for ordinal in [0, 1, 4] {
        lose_state(stage, ordinal).await?;
        restored.push(time_to_connect(stage, ordinal, 5).await?);
        stage.wait_until_healthy(5, TIMEOUT).await?;
    }
    let before = (stage.machines.usage(NAMESPACE, &pod(1), CONTAINER).await?.cpu, agent_usage(stage, 1).await?.0);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let after = (stage.machines.usage(NAMESPACE, &pod(1), CONTAINER).await?.cpu, agent_usage(stage, 1).await?.0);
    let mut memory = 0;
    for ordinal in 0..5 {
        memory = memory.max(agent_usage(stage, ordinal).await?.1);
    }
    let (container, agent) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    Ok(Measurements { joined, restored, container, agent, memory })
}

/// Returns an agent's CPU time and peak memory so far. The agent is the first process of its container.
async fn agent_usage(stage: &PoolStage, ordinal: u32) -> Result<(Duration, u64)> {
    let stat = stage.exec(ordinal, &["cat", "/proc/1/stat"]).await?;
    // After the name in parentheses, the 12th and 13th fields are user and system time in hundredths of a second.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).context("/proc/1/stat");
    let status = stage.exec(ordinal, &["cat", "/proc/1/status"]).await?;
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let peak: u64 = peak.context("VmHWM in /proc/1/status")?;
    Ok((Duration::from_millis(10 * (ticks(11)? + ticks(12)?)), peak * 1024))
}

/// Waits until a pod runs; returns the time from then until all other peers list it as connected.
async fn time_to_connect(stage: &PoolStage, ordinal: u32, replicas: u32) -> Result<Duration> {
    wait_until("the pod runs", TIMEOUT, async || {
        let found = stage.pod(ordinal).await?;
        Ok(found.is_some_and(|found| found["status"]["containerStatuses"][0]["state"]["running"].is_object()))
    })
    .await?;
    let began = Instant::now();
    wait_until("all other peers list it as connected", TIMEOUT, async || {
        for other in (0..replicas).filter(|other| *other != ordinal) {
            if !stage.peers(other).await?.iter().any(|f| f.host == host(ordinal) && f.state == CONNECTED) {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await?;
    Ok(began.elapsed())
}
