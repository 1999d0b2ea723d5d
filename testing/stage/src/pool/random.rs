//! Random faults, two at a time, on a pool of five peers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use stead_machines::Api;

use super::membership::MembershipWatch;
use super::scenes::lose_state;
use super::{CONTAINER, Client, NAMESPACE, PoolStage, TIMEOUT, pod};
use crate::disturb::SeededRandom;

/// With five peers, three are still a majority when two are down.
const REPLICAS: u32 = 5;

/// A fault of a pod or its node.
#[derive(Debug, Clone, Copy)]
enum PoolFault {
    /// The pod is deleted.
    Deleted,
    /// The pod is force-deleted.
    ForceDeleted,
    /// The pod and the claim with glusterd's state are deleted.
    StateLost,
    /// The agent is killed, and with it all processes of its container.
    AgentKilled,
    /// glusterd is killed.
    GlusterdKilled,
    /// The node is suspended for a while.
    Suspended,
    /// The node loses power, and boots again.
    PowerLost,
    /// The node is disconnected from the other nodes for a while; the API server stays reachable or not.
    Disconnected(Api),
}

const FAULTS: [PoolFault; 9] = [
    PoolFault::Deleted,
    PoolFault::ForceDeleted,
    PoolFault::StateLost,
    PoolFault::AgentKilled,
    PoolFault::GlusterdKilled,
    PoolFault::Suspended,
    PoolFault::PowerLost,
    PoolFault::Disconnected(Api::Reachable),
    PoolFault::Disconnected(Api::Unreachable),
];

/// Plays `count` random runs on one pool. Calls `say` with the result of each.
pub async fn play_random(stage: &PoolStage, count: u32, seed: u64, say: &mut (impl FnMut(&str) + Send)) -> Result<()> {
    stage.install(&["--replicas", "5"]).await?;
    stage.wait_until_healthy(REPLICAS, TIMEOUT).await?;
    let mut client = Client::mount(stage).await?;
    let identities = stage.identities(REPLICAS).await?;
    for number in 0..count {
        let mut random = SeededRandom(seed.wrapping_mul(1_000_003).wrapping_add(number.into()));
        let began = Instant::now();
        client.wait_until_connected().await?;
        client.write_file().await?;
        let first = (random.below(REPLICAS), FAULTS[random.below(FAULTS.len() as u32) as usize]);
        let second =
            ((first.0 + 1 + random.below(REPLICAS - 1)) % REPLICAS, FAULTS[random.below(FAULTS.len() as u32) as usize]);
        let run = format!(
            "run {number} of seed {seed}: {:?} at {}, {:?} at {}",
            first.1,
            pod(first.0),
            second.1,
            pod(second.0)
        );
        let watch = MembershipWatch::new(stage, identities.clone());
        let played = async {
            inject(stage, &[first, second], &mut random).await?;
            stage.wait_until_healthy(REPLICAS, TIMEOUT).await?;
            let after = stage.identities(REPLICAS).await?;
            ensure!(after == identities, "the UUIDs changed from {identities:?} to {after:?}");
            client.wait_until_connected().await?;
            client.check_files().await
        };
        let outcome = tokio::select! {
            outcome = played => outcome,
            removal = watch.wait_for_removal() => Err(anyhow::anyhow!("{removal}")),
        };
        if let Err(error) = outcome {
            bail!("{run}: {error:#}");
        }
        say(&format!("{run}: healthy again after {:.0} s", began.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Starts both faults, waits for a random time, and ends those that last.
async fn inject(stage: &PoolStage, faults: &[(u32, PoolFault); 2], random: &mut SeededRandom) -> Result<()> {
    let mut nodes = Vec::new();
    for (ordinal, fault) in faults {
        nodes.push((stage.node_of(*ordinal).await?, *ordinal, *fault));
    }
    for (node, ordinal, fault) in &nodes {
        start_fault(stage, node, *ordinal, *fault).await.with_context(|| format!("{fault:?} at {}", pod(*ordinal)))?;
    }
    tokio::time::sleep(random.up_to(Duration::from_secs(12))).await;
    for (node, ordinal, fault) in &nodes {
        end_fault(stage, node, *fault).await.with_context(|| format!("ending {fault:?} at {}", pod(*ordinal)))?;
    }
    stage.machines.ready().await
}

async fn start_fault(stage: &PoolStage, node: &str, ordinal: u32, fault: PoolFault) -> Result<()> {
    let name = pod(ordinal);
    match fault {
        PoolFault::Deleted => stage.kubectl(&["delete", "pod", &name, "--wait=false"]).await.map(drop),
        PoolFault::ForceDeleted => stage.kubectl(&["delete", "pod", &name, "--wait=false", "--force"]).await.map(drop),
        PoolFault::StateLost => lose_state(stage, ordinal).await,
        PoolFault::AgentKilled => stage.machines.kill_container(NAMESPACE, &name, CONTAINER).await,
        // The command fails if the other fault has already stopped the pod.
        PoolFault::GlusterdKilled => {
            let _ = stage.exec(ordinal, &["pkill", "-9", "-x", "glusterd"]).await;
            Ok(())
        }
        PoolFault::Suspended => stage.machines.suspend(node).await,
        PoolFault::PowerLost => stage.machines.kill(node).await,
        PoolFault::Disconnected(api) => stage.machines.cut(&[node], api).await,
    }
}

async fn end_fault(stage: &PoolStage, node: &str, fault: PoolFault) -> Result<()> {
    match fault {
        PoolFault::Suspended => stage.machines.resume(node).await,
        PoolFault::PowerLost => stage.machines.boot(node).await,
        PoolFault::Disconnected(_) => stage.machines.rejoin_all().await,
        _ => Ok(()),
    }
}
