//! A field report, played on a real control plane with `stead operator` running.

use anyhow::{Context, Result, ensure};
use stead_reports::cinder::Timers;
use stead_testbed::Binaries;

use crate::{Outcome, cargo};

/// Which report.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The report to play.
    #[arg(value_enum)]
    report: Report,

    /// On a control plane with Kubernetes' own waiting times, not with a tenth of them (cinder alone)
    #[arg(long)]
    real_timers: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Report {
    /// Glance in three zones by Topologies, from one node to a node that falls silent and is recovered.
    Glance,
    /// A Gluster pool that scales, loses pods and nodes, and comes back as itself.
    Gluster,
    /// An application with one Cinder volume, and machines that are shut down, deleted and recovered from.
    Cinder,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    ensure!(!args.real_timers || matches!(args.report, Report::Cinder), "--real-timers: only with cinder");
    let Some(binaries) = Binaries::find() else {
        println!("report: the real Kubernetes is not here; `cargo xtask kubernetes` gets it");
        return Ok(Outcome::Failed);
    };
    let stead = cargo::stead()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?;
    let mut out = std::io::stdout();
    match args.report {
        Report::Glance => {
            runtime.block_on(stead_reports::glance::play(&binaries, &stead, &mut out))?;
            if !stead_machines::Machines::can_run_or_skip() {
                return Ok(Outcome::Failed);
            }
            let demo = cargo::program("cinder-demo")?;
            runtime.block_on(stead_reports::glance::recover(&binaries, &stead, &demo, &mut out))?;
        }
        Report::Gluster if !stead_stage::pool::can_run_or_skip() => return Ok(Outcome::Failed),
        Report::Cinder if !stead_machines::Machines::can_run_or_skip() => return Ok(Outcome::Failed),
        Report::Cinder => {
            let demo = cargo::program("cinder-demo")?;
            let timers = if args.real_timers { Timers::Kubernetes } else { Timers::Fast };
            runtime.block_on(stead_reports::cinder::play(&binaries, &stead, &demo, timers, &mut out))?;
        }
        Report::Gluster => runtime.block_on(stead_reports::gluster::play(&binaries, &stead, &mut out))?,
    }
    Ok(Outcome::Passed)
}
