//! A real control plane with stand-in nodes, to experiment with.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, Nodes, Options, Outcome};
use tokio::signal::unix::{SignalKind, signal};

use crate::{root, runtime};

/// Which cluster to start.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A tenth of the timeouts: a node is unreachable after 8 s
    #[arg(long)]
    fast: bool,
    /// Nodes and storage drivers, as JSON [default: testdata/cluster/nodes.json]
    #[arg(long)]
    nodes: Option<PathBuf>,
    /// Storage classes, or anything else to apply [default: testdata/cluster/storage.yaml]
    #[arg(long)]
    storage: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped) };
    let runtime = runtime()?;
    runtime.block_on(serve(args, &binaries))?;
    Ok(Outcome::Passed)
}

async fn serve(args: &Args, binaries: &Binaries) -> Result<()> {
    let mut terminated = signal(SignalKind::terminate()).context("listening for signals")?;
    tokio::select! {
        result = up(args, binaries) => result,
        interrupted = tokio::signal::ctrl_c() => interrupted.context("listening for signals"),
        _ = terminated.recv() => Ok(()),
    }
}

/// Runs the cluster until one of its programs exits.
async fn up(args: &Args, binaries: &Binaries) -> Result<()> {
    let named =
        |path: &Option<PathBuf>, file: &str| path.clone().unwrap_or_else(|| root().join("testdata/cluster").join(file));
    let spec = read(&named(&args.nodes, "nodes.json"))?;
    let spec: ClusterSpec = serde_json::from_str(&spec).context("parsing the nodes")?;
    let storage = read(&named(&args.storage, "storage.yaml"))?;
    println!("starting the control plane");
    let mut plane = ControlPlane::start(binaries, Options { fast: args.fast, ..Options::default() }).await?;
    plane.kubectl_with(&["apply", "-f", "-"], &storage).await?.ok().context("applying the storage classes")?;
    let nodes = Nodes::start(&plane, spec).await?;
    nodes.ready().await?;
    println!("server      {}", plane.server());
    println!("token       {}", plane.token());
    println!("kubeconfig  {}", plane.kubeconfig().display());
    println!("logs        {}", plane.folder().display());
    println!("\nexport KUBECONFIG={}", plane.kubeconfig().display());
    println!("{} get nodes --show-labels", binaries.program("kubectl").display());
    println!("\nCtrl-C stops it and removes everything");
    loop {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        plane.check_running()?;
    }
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
