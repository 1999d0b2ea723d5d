//! Plays the recordings of the OpenStack operators on a real control plane with Stead's operator running.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use stead_stage::Stage;
use stead_stage::program;
use stead_testbed::{Binaries, ClusterSpec, Options, Outcome, skip};

use crate::{root, runtime};

/// Which recordings to play, and how much to show.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only the cases whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Of how many cases to show the differences
    #[arg(long, default_value_t = 10)]
    show: usize,
    /// How many differences of each step
    #[arg(long, default_value_t = 6)]
    lines: usize,
    /// How many cases to play at the same time
    #[arg(long, default_value_t = 10)]
    workers: usize,
    /// Other recordings, in the same form
    #[arg(long)]
    recordings: Option<PathBuf>,
}

impl Default for Args {
    fn default() -> Args {
        Args { only: String::new(), show: 10, lines: 6, workers: 10, recordings: None }
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped) };
    let Some(python) = python()? else { return Ok(Outcome::Skipped) };
    let stead = program("stead")?;
    let runtime = runtime()?;
    let agreed = runtime.block_on(play(args, &binaries, &stead, &python))?;
    println!("operators: {}", if agreed { "passed" } else { "FAILED" });
    Ok(if agreed { Outcome::Passed } else { Outcome::Failed })
}

async fn play(args: &Args, binaries: &Binaries, stead: &Path, python: &Path) -> Result<bool> {
    println!("starting the control plane, nodes and the operator");
    let stage = Stage::open(binaries, stead, Options::default(), ClusterSpec::seven()).await?;
    let storage = root().join("testdata/cluster/storage.yaml");
    stage.kubectl(&["apply", "-f", storage.to_str().context("the path is not UTF-8")?]).await?;
    stage.install_definitions().await?;
    stage.wait_for_garbage_collector().await?;
    let operator = stage.start_operator(&stage.plane.kubeconfig(), &["--default-anti-affinity=replace"]).await?;
    let recorded = root().join("testdata/operators");
    let recordings = args.recordings.clone().unwrap_or_else(|| recorded.join("recordings.jsonl.gz"));
    let mut player = tokio::process::Command::new(python);
    player
        .arg(root().join("real/operators.py"))
        .args([stage.plane.server(), stage.plane.token()])
        .arg(recordings)
        .args(["--only", &args.only, "--show", &args.show.to_string(), "--lines", &args.lines.to_string()])
        .args(["--workers", &args.workers.to_string(), "--ours"])
        .arg(recorded.join("differences.tsv"))
        .kill_on_drop(true);
    let status = player.status().await.context("running the player")?;
    operator.stop().await?;
    Ok(status.success())
}

/// Finds a Python with the modules that the player needs: the installed one, or a virtual environment_python in the
/// user's cache.
fn python() -> Result<Option<PathBuf>> {
    let has = |python: &Path| {
        let output = Command::new(python).args(["-c", "import requests"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let installed = PathBuf::from("python3");
    if has(&installed) {
        return Ok(Some(installed));
    }
    let Some(cache) = Binaries::directory() else { return Ok(None) };
    let folder = cache.join("player");
    let environment_python = folder.join("bin/python");
    if !has(&environment_python) {
        println!("installing Python's requests");
        let created = Command::new("python3").args(["-m", "venv"]).arg(&folder).status().is_ok_and(|s| s.success());
        let ready = created
            && Command::new(&environment_python).args(["-m", "pip", "install", "-q", "requests"]).status()?.success();
        if !ready {
            skip("Python's requests cannot be installed");
            return Ok(None);
        }
    }
    Ok(Some(environment_python))
}
