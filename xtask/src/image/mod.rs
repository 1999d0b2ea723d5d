//! The operator's image: one static program in an OCI layout, made without a container engine.
//!
//! The same program gives the same digests: nothing in an image has a time, a name of a machine or an order by chance.

mod layout;
mod program;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::root;

pub(crate) use program::build as program;

/// What to make, and where.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder of the layout; it is made anew.
    #[arg(long, value_name = "FOLDER")]
    layout: Option<PathBuf>,
    /// An archive of the layout beside it, as `podman load` and `skopeo copy oci-archive:` take it.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A program that was built before, in place of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => program::build()?,
    };
    let bytes = std::fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    let image = layout::Image::new(&bytes, program::architecture(), env!("CARGO_PKG_VERSION"))?;
    let folder = args.layout.clone().unwrap_or_else(|| root().join("target").join("image").join("oci"));
    image.write(&folder)?;
    println!("{}", folder.display());
    if let Some(output) = &args.output {
        image.archive(output)?;
        println!("{}", output.display());
    }
    println!("{}", image.digest());
    Ok(())
}
