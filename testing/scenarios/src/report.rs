//! Plays a field report on a real control plane with `stead operator` running.

use anyhow::{Result, ensure};
use stead_reports::cinder::Timers;
use stead_stage::program;
use stead_testbed::{Binaries, Outcome};

use crate::runtime;

/// Which report to play.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The report to play
    #[arg(value_enum)]
    report: Report,

    /// Use Kubernetes' own timeouts, not a tenth of them (cinder only)
    #[arg(long)]
    real_timers: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Report {
    /// Glance in three zones by Topologies, up to a node that becomes unreachable and is recovered
    Glance,
    /// A Gluster pool that scales, loses pods and nodes, and keeps its identity
    Gluster,
    /// An application with one Cinder volume, and machines that are shut down, deleted and recovered
    Cinder,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    ensure!(!args.real_timers || matches!(args.report, Report::Cinder), "--real-timers: only with cinder");
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped) };
    let stead = program("stead")?;
    let runtime = runtime()?;
    let mut out = std::io::stdout();
    match args.report {
        Report::Glance => {
            runtime.block_on(stead_reports::glance::play(&binaries, &stead, &mut out))?;
            if !stead_machines::Machines::can_run_or_skip() {
                return Ok(Outcome::Skipped);
            }
            let demo = program("cinder-demo")?;
            runtime.block_on(stead_reports::glance::recover(&binaries, &stead, &demo, &mut out))?;
        }
        Report::Gluster if !stead_stage::pool::can_run_or_skip() => return Ok(Outcome::Skipped),
        Report::Cinder if !stead_machines::Machines::can_run_or_skip() => return Ok(Outcome::Skipped),
        Report::Cinder => {
            let demo = program("cinder-demo")?;
            let timers = if args.real_timers { Timers::Kubernetes } else { Timers::Fast };
            runtime.block_on(stead_reports::cinder::play(&binaries, &stead, &demo, timers, &mut out))?;
        }
        Report::Gluster => runtime.block_on(stead_reports::gluster::play(&binaries, &stead, &mut out))?,
    }
    Ok(Outcome::Passed)
}
