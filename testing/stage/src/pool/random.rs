//! Random faults, two at a time, on a pool of five.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use stead_machines::Api;

use super::scenes::lose_state;
use super::watch::Watch;
use super::{CONTAINER, Client, NAMESPACE, PATIENCE, PoolStage, pod};
use crate::disturb::SeededRandom;

/// Of five two may be away, and three are still a majority.
const REPLICAS: u32 = 5;

/// What is done to a pod or its node.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The pod is deleted, in good order.
    Deleted,
    /// The pod is deleted by force.
    Forced,
    /// The pod is deleted with its claim for glusterd's state.
    StateLost,
    /// The agent is killed, and all of its container with it.
    AgentKilled,
    /// glusterd is killed.
    GlusterdKilled,
    /// The node falls silent for a while.
    Silenced,
    /// The node loses power, and comes back.
    PowerLost,
    /// The node is cut off from the others for a while, with or without the API server.
    CutOff(Api),
}

const FAULTS: [Fault; 9] = [
    Fault::Deleted,
    Fault::Forced,
    Fault::StateLost,
    Fault::AgentKilled,
    Fault::GlusterdKilled,
    Fault::Silenced,
    Fault::PowerLost,
    Fault::CutOff(Api::Reachable),
    Fault::CutOff(Api::Unreachable),
];

/// So many runs from a seed, on one pool; `say` hears of each.
pub async fn runs(stage: &PoolStage, count: u32, seed: u64, say: &mut (impl FnMut(&str) + Send)) -> Result<()> {
    stage.install(&["--replicas", "5"]).await?;
    stage.whole(REPLICAS, PATIENCE).await?;
    let mut client = Client::mount(stage).await?;
    let identities = stage.identities(REPLICAS).await?;
    for number in 0..count {
        let mut random = SeededRandom(seed.wrapping_mul(1_000_003).wrapping_add(number.into()));
        let began = Instant::now();
        client.connected().await?;
        client.writes().await?;
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
        let watch = Watch::new(stage, identities.clone());
        let played = async {
            strike(stage, &[first, second], &mut random).await?;
            stage.whole(REPLICAS, PATIENCE).await?;
            let after = stage.identities(REPLICAS).await?;
            ensure!(after == identities, "other identities: {after:?}, not {identities:?}");
            client.connected().await?;
            client.reads().await
        };
        let outcome = tokio::select! {
            outcome = played => outcome,
            removed = watch.removed() => Err(anyhow::anyhow!("{removed}")),
        };
        if let Err(error) = outcome {
            bail!("{run}: {error:#}");
        }
        say(&format!("{run}: whole again after {:.0} s", began.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// Both at once; then all that lasts is ended.
async fn strike(stage: &PoolStage, faults: &[(u32, Fault); 2], random: &mut SeededRandom) -> Result<()> {
    let mut nodes = Vec::new();
    for (ordinal, fault) in faults {
        nodes.push((stage.node_of(*ordinal).await?, *ordinal, *fault));
    }
    for (node, ordinal, fault) in &nodes {
        begin(stage, node, *ordinal, *fault).await.with_context(|| format!("{fault:?} at {}", pod(*ordinal)))?;
    }
    tokio::time::sleep(random.up_to(Duration::from_secs(12))).await;
    for (node, ordinal, fault) in &nodes {
        end(stage, node, *fault).await.with_context(|| format!("the end of {fault:?} at {}", pod(*ordinal)))?;
    }
    stage.machines.ready().await
}

async fn begin(stage: &PoolStage, node: &str, ordinal: u32, fault: Fault) -> Result<()> {
    let name = pod(ordinal);
    match fault {
        Fault::Deleted => stage.kubectl(&["delete", "pod", &name, "--wait=false"]).await.map(drop),
        Fault::Forced => stage.kubectl(&["delete", "pod", &name, "--wait=false", "--force"]).await.map(drop),
        Fault::StateLost => lose_state(stage, ordinal).await,
        Fault::AgentKilled => stage.machines.kill_container(NAMESPACE, &name, CONTAINER).await,
        // It may be that it does not run just now: the other fault was here before.
        Fault::GlusterdKilled => {
            let _ = stage.inside(ordinal, &["pkill", "-9", "-x", "glusterd"]).await;
            Ok(())
        }
        Fault::Silenced => stage.machines.silence(node).await,
        Fault::PowerLost => stage.machines.kill(node).await,
        Fault::CutOff(api) => stage.machines.cut(&[node], api).await,
    }
}

async fn end(stage: &PoolStage, node: &str, fault: Fault) -> Result<()> {
    match fault {
        Fault::Silenced => stage.machines.resume(node).await,
        Fault::PowerLost => stage.machines.boot(node).await,
        Fault::CutOff(_) => stage.machines.mend().await,
        _ => Ok(()),
    }
}
