//! The operator's image: one static program in an OCI layout, built without a container engine.
//!
//! The image is reproducible: the same program results in the same digests.
#![expect(clippy::print_stdout, reason = "it reports to the person who runs it")]

mod layout;
mod program;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use program::build as program;

/// Options of the image build.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the layout; an existing layout is replaced.
    #[arg(long, value_name = "FOLDER")]
    layout: Option<PathBuf>,
    /// Also write an archive of the layout, for `podman load` and `skopeo copy oci-archive:`.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Use this program instead of building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Builds the image, and prints its path and digest.
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
