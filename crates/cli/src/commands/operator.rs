//! `stead operator`: the loops, on a real cluster.

use std::time::Duration;

use anyhow::Context;
use stead_loops::LoopSettings;
use stead_operator::{LoopSet, Options, log};

use crate::args::{AntiAffinity, LogFormat, OperatorArgs};
use crate::connect;
use crate::output::Outcome;
use crate::stop_signal::stop_signal;

pub(crate) fn run(args: OperatorArgs) -> anyhow::Result<Outcome> {
    let format = match args.log_format {
        LogFormat::Human => log::LogFormat::Human,
        LogFormat::Json => log::LogFormat::Json,
    };
    log::begin(format, &args.log_level)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(operate(args))?;
    Ok(Outcome::Yes)
}

async fn operate(args: OperatorArgs) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let config = connect::config(&args.connect).await?;
    let options = Options {
        settings: LoopSettings {
            replace_default_anti_affinity: args.default_anti_affinity == AntiAffinity::Replace,
            glance_image: args.glance_image,
            cluster_domain: args.cluster_domain,
        },
        namespace: args.namespace.unwrap_or_else(|| config.namespace().to_owned()),
        namespaces: args.namespaces,
        leader_elect: args.leader_elect,
        listen: args.listen,
        workers: args.workers.into(),
        watch_timeout: Duration::from_secs(args.watch_timeout),
        loops: LoopSet::STEAD,
    };
    stead_operator::run(config, options, stop).await
}
