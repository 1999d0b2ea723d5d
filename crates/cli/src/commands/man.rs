//! `stead man`: writes the manual pages, for packages.

use anyhow::Context as _;

use crate::args::{self, ManArgs};
use crate::output::Outcome;

pub(crate) fn run(args: &ManArgs) -> anyhow::Result<Outcome> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    clap_mangen::generate_to(args::command(None), folder)
        .with_context(|| format!("writing manual pages to {}", folder.display()))?;
    Ok(Outcome::Yes)
}
