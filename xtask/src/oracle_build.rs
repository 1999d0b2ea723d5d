//! Builds the real kube-scheduler as a judge, from Go's module registry, into the user's cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::kubernetes::go;
use crate::{oracle, root};

/// Where to.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build it even if it is there.
    #[arg(long)]
    again: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = oracle::default_path().context("neither XDG_CACHE_HOME nor HOME is set")?;
    if program.is_file() && !args.again {
        println!("{}", program.display());
        return Ok(());
    }
    let work = program.with_file_name("oracle-src");
    copy(&root().join("real"), &work)?;
    println!("[1/2] getting Kubernetes' modules");
    go(&work, &["mod", "tidy", "-e"])?;
    println!("[2/2] building (a few minutes)");
    let output = program.to_str().context("a cache whose path is no text")?;
    go(&work, &["build", "-o", output, "./oracle"])?;
    println!("{}", program.display());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in ["go.mod", "oracle/main.go", "oracle/bench.go"] {
        let target: PathBuf = to.join(file);
        let folder = target.parent().context("a file is in a folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        std::fs::copy(from.join(file), &target).with_context(|| format!("writing {}", target.display()))?;
    }
    Ok(())
}
