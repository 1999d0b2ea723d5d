//! Builds the operator's image: `cargo xtask image`.

use clap::Parser;

/// Build the operator's image, as an OCI layout.
#[derive(Parser)]
#[command(name = "cargo xtask image")]
struct Command {
    #[command(flatten)]
    args: stead_image::Args,
}

fn main() -> anyhow::Result<()> {
    stead_image::run(&Command::parse().args)
}
