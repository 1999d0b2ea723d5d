//! `stead gluster agent`: one pod of a pool, looked after.

use std::time::Duration;

use anyhow::{Context, ensure};
use stead_agent::{PoolPod, Settings, ordinal};
use stead_operator::log;

use crate::args::{GlusterAgentArgs, LogFormat};
use crate::connect;
use crate::output::Outcome;
use crate::stop_signal::stop_signal;

pub(crate) fn run(args: GlusterAgentArgs) -> anyhow::Result<Outcome> {
    let format = match args.log_format {
        LogFormat::Human => log::LogFormat::Human,
        LogFormat::Json => log::LogFormat::Json,
    };
    log::begin(format, &args.log_level)?;
    // One thread: the agent waits for others nearly all of its time, and shares its memory with the bricks.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()
        .context("starting a runtime")?;
    runtime.block_on(look_after(args))?;
    Ok(Outcome::Yes)
}

async fn look_after(args: GlusterAgentArgs) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let config = connect::config(&args.connect).await?;
    let ordinal = ordinal(&args.pool, &args.pod_name)
        .with_context(|| format!("--pod-name: {} is no pod of the StatefulSet {}", args.pod_name, args.pool))?;
    let glusterd: Vec<String> = args.glusterd_command.split_whitespace().map(str::to_owned).collect();
    ensure!(!glusterd.is_empty(), "--glusterd-command: there is no program in it");
    let settings = Settings {
        namespace: args.namespace.unwrap_or_else(|| config.namespace().to_owned()),
        pool: args.pool,
        service: args.service,
        cluster_domain: args.cluster_domain,
        pod: PoolPod {
            name: args.pod_name,
            ordinal,
            uid: args.pod_uid,
            address: args.pod_ip.parse().context("--pod-ip")?,
        },
        state_dir: args.state_dir,
        listen: args.listen,
        glusterd,
        gluster: args.gluster_program,
        key_secret: args.key_secret,
        leave: Duration::from_secs(args.leave_seconds),
    };
    stead_agent::run(config, settings, stop).await
}
