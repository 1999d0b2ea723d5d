//! `stead place -f`.
use crate::args::{Format, SourceArgs};
use crate::output::Outcome;
use std::path::Path;
pub(crate) fn run(_pod: &Path, _source: &SourceArgs, _format: Format) -> anyhow::Result<Outcome> {
    Ok(Outcome::Yes)
}
