//! Starts a real Glance from the objects that the loops render: its configuration comes only from these objects.
//!
//! The loops render the objects of a Glance. Its database Job, two replicas of its StatefulSet and its purge CronJob
//! then run as processes from these objects, each with a separate root directory in which the paths of the rendered
//! files are valid. The files that the container image would contain are added.

mod checks;
mod database;
mod http;
mod image;
mod keystone;
mod kubelet;
mod options;
mod prerequisites;
mod process;
mod rendered;
mod scenario;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;
use stead_testbed::{Outcome, skip};

use crate::glance::database::Database;
use crate::glance::scenario::{Scenario, play};

/// Which scenarios to play, and what to keep.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Keep the folder with rendered files, root directories and logs.
    #[arg(long)]
    keep: bool,
    /// Play only one of the scenarios.
    #[arg(long, value_enum)]
    only: Option<Scenario>,
}

/// A folder that is deleted at the end of the scenario, unless `keep` is set.
struct TemporaryFolder {
    path: PathBuf,
    keep: bool,
}

impl TemporaryFolder {
    fn new(keep: bool) -> Result<TemporaryFolder> {
        let path = std::env::temp_dir().join(format!("stead-glance-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(TemporaryFolder { path, keep })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if self.keep {
            println!("kept: {}", self.path.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.path) {
            println!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Loopback addresses that no other run of this scenario uses, so that each process can use its standard port.
pub(crate) struct Addresses {
    run: u32,
}

impl Addresses {
    fn address(&self, process: u32) -> String {
        format!("127.77.{}.{process}", self.run)
    }

    /// Returns the address of the database.
    pub(crate) fn database(&self) -> String {
        self.address(1)
    }

    /// Returns the address of Keystone.
    pub(crate) fn keystone(&self) -> String {
        self.address(2)
    }

    /// Returns the address of a replica.
    pub(crate) fn replica(&self, index: u32) -> String {
        self.address(10 + index)
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let start = Instant::now();
    let glance = match prerequisites::find()? {
        Ok(glance) => glance,
        Err(missing) => {
            skip(&missing);
            return Ok(Outcome::Skipped);
        }
    };
    println!("{}", glance.versions);
    // Dropped last, after the processes that run in it.
    let folder = TemporaryFolder::new(args.keep)?;
    let addresses = Addresses { run: std::process::id() % 250 + 1 };
    match play_all(&glance, &folder.path, &addresses, args.only) {
        Ok(()) => {
            println!("glance: passed, {} s", start.elapsed().as_secs());
            Ok(Outcome::Passed)
        }
        Err(error) => {
            println!("glance: FAILED: {error:#}");
            Ok(Outcome::Failed)
        }
    }
}

fn play_all(
    glance: &prerequisites::Glance,
    folder: &Path,
    addresses: &Addresses,
    only: Option<Scenario>,
) -> Result<()> {
    let database = Database::start(folder, &addresses.database())?;
    for scenario in Scenario::value_variants().iter().copied().filter(|s| only.is_none_or(|only| only == *s)) {
        println!("\n{scenario}");
        play(glance, &database, &folder.join(scenario.name()), addresses, scenario)
            .with_context(|| scenario.to_string())?;
    }
    Ok(())
}

/// Prints a passed check.
fn passed(what: &str) {
    println!("  {what}");
}
