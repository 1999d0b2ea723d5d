//! The operator's image: one static program in an OCI layout, made without a container engine.
//!
//! The same program gives the same digests: nothing in an image has a time, a name of a machine or an order by chance.
#![expect(clippy::print_stdout, reason = "it reports to the person who runs it")]

mod layout;
mod program;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use program::build as program;

/// What to make, and where.
#[derive(clap::Args)]
pub struct Args {
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

/// Makes the image and prints where it is, and its digest.
pub fn run(args: &Args) -> Result<()> {
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

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(PathBuf::from).unwrap_or_default()
}
