//! `stead gluster copy-agent`: this program, put where another image can run it.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::args::CopyAgentArgs;
use crate::output::Outcome;

pub(crate) fn run(args: &CopyAgentArgs) -> anyhow::Result<Outcome> {
    let from = std::env::current_exe().context("finding this program")?;
    // A container that is restarted may find its program in use: a file takes its place at once.
    let mut half = args.to.clone().into_os_string();
    half.push(".part");
    let half = PathBuf::from(half);
    fs::copy(&from, &half).with_context(|| format!("copying {} to {}", from.display(), half.display()))?;
    fs::rename(&half, &args.to).with_context(|| format!("making {}", args.to.display()))?;
    Ok(Outcome::Yes)
}
