//! The release artifacts, built without a container engine or other tools than cargo and git.
//!
//! `artifacts.rs` writes all of them to a folder, from a static program and the sources. Everything is reproducible: the
//! same commit results in the same bytes, in any folder. Times come from the commit, contents from Cargo.lock, archives
//! have no user names. `check.rs` builds twice and compares.
//!
//! The objects in the chart and in the bundle come from `stead-manifests`, so they are those of `stead install`. The
//! chart's templates are generated into `charts/stead` ([`chart`]); a test fails if they are out of date.
#![expect(clippy::print_stdout, reason = "it reports to the person who runs it")]

mod archive;
mod artifacts;
mod bundle;
mod certificates;
pub mod chart;
mod check;
mod krew;
mod layout;
mod package;
mod program;
mod release;
mod sbom;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub use program::build as program;
use release::Release;

/// Options of `cargo xtask dist`.
#[derive(clap::Args)]
pub struct DistArgs {
    /// The image's repository, such as registry.example/stead; without it, `stead install` and the chart need an image
    #[arg(long, value_name = "REPO", value_parser = release::repository)]
    image: Option<String>,
    /// The address of the folder that the archives will be downloaded from, for the plugin manifest
    #[arg(long, value_name = "URL", value_parser = release::address, default_value = release::NO_ADDRESS)]
    base_url: String,
    /// The page about the project, for the chart, the image and the plugin manifest; without it, they name none
    #[arg(long, value_name = "URL", value_parser = release::address)]
    homepage: Option<String>,
    /// The folder of the artifacts; its content is replaced
    #[arg(long, value_name = "FOLDER", default_value = "dist")]
    output: PathBuf,
    /// Build again from a copy of the sources in another folder, and compare every byte
    #[arg(long)]
    check: bool,
    /// Use this program instead of building one, to try the other artifacts
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    program: Option<PathBuf>,
}

/// Writes the artifacts.
pub fn dist(args: &DistArgs) -> Result<()> {
    let release = Release {
        repository: args.image.clone(),
        base_url: args.base_url.clone(),
        homepage: args.homepage.clone(),
        ..Release::of(&root())?
    };
    let output = if args.output.is_relative() { root().join(&args.output) } else { args.output.clone() };
    artifacts::write(&release, args.program.as_deref(), &output)?;
    if args.check { check::reproducible(&release, &output) } else { Ok(()) }
}

/// Options of `cargo xtask image`.
#[derive(clap::Args)]
pub struct ImageArgs {
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

/// Builds only the image, and prints its path and digest.
pub fn image(args: &ImageArgs) -> Result<()> {
    let release = Release::of(&root())?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => program::build_release(&release)?,
    };
    let program = std::fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    let image = layout::Image::new(&program, &certificates::bundle(), &release)?;
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
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(PathBuf::from).unwrap_or_default()
}
