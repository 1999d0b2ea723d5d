//! Builds the release artifacts: `cargo xtask dist`, `cargo xtask image`, `cargo xtask chart`.

use clap::Parser;

/// Build what is released.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Write all release artifacts to dist/.
    Dist(stead_dist::DistArgs),
    /// Build only the operator's image, as an OCI layout.
    Image(stead_dist::ImageArgs),
    /// Write the generated files of charts/stead.
    Chart,
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Dist(args) => stead_dist::dist(&args),
        Command::Image(args) => stead_dist::image(&args),
        Command::Chart => stead_dist::chart::write(),
    }
}
