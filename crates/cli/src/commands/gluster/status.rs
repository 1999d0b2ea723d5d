//! `stead gluster status`: how a pool stands.

use crate::args::GlusterStatusArgs;
use crate::output::Outcome;

pub(crate) fn run(_args: &GlusterStatusArgs) -> anyhow::Result<Outcome> {
    Ok(Outcome::No)
}
