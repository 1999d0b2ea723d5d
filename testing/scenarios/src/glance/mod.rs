//! A real Glance, started from what the loops render: nothing that it is configured by is typed here.
//!
//! The loops make their objects of a Glance; its database Job, two replicas of its StatefulSet and its purge CronJob
//! are then run from these objects, each in a root of its own where the paths in the rendered files are true as they
//! stand. What an image would bring is laid out beside it.

mod checks;
mod database;
mod http;
mod image;
mod keystone;
mod kubelet;
mod needed;
mod options;
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

/// What is kept.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Keep the folder with what was rendered, laid out and said.
    #[arg(long)]
    keep: bool,
    /// Play only one of the scenarios.
    #[arg(long, value_enum)]
    only: Option<Scenario>,
}

/// A folder that goes with the chore.
struct Temporary {
    path: PathBuf,
    keep: bool,
}

impl Temporary {
    fn new(keep: bool) -> Result<Temporary> {
        let path = std::env::temp_dir().join(format!("stead-glance-{}", std::process::id()));
        std::fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Temporary { path, keep })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.keep {
            println!("kept: {}", self.path.display());
        } else if let Err(error) = std::fs::remove_dir_all(&self.path) {
            println!("left behind: {}: {error}", self.path.display());
        }
    }
}

/// Addresses of this machine that no other run of the chore uses, so that each party can have the port it expects.
pub(crate) struct Addresses {
    run: u32,
}

impl Addresses {
    fn of(&self, party: u32) -> String {
        format!("127.77.{}.{party}", self.run)
    }

    /// The database's.
    pub(crate) fn database(&self) -> String {
        self.of(1)
    }

    /// Keystone's.
    pub(crate) fn keystone(&self) -> String {
        self.of(2)
    }

    /// A replica's.
    pub(crate) fn replica(&self, index: u32) -> String {
        self.of(10 + index)
    }
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let start = Instant::now();
    let glance = match needed::find()? {
        Ok(glance) => glance,
        Err(missing) => {
            skip(&missing);
            return Ok(Outcome::Skipped);
        }
    };
    println!("{}", glance.versions);
    // Dropped last: what runs in it is dropped before it.
    let folder = Temporary::new(args.keep)?;
    let addresses = Addresses { run: std::process::id() % 250 + 1 };
    match all(&glance, &folder.path, &addresses, args.only) {
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

fn all(glance: &needed::Glance, folder: &Path, addresses: &Addresses, only: Option<Scenario>) -> Result<()> {
    let database = Database::start(folder, &addresses.database())?;
    for scenario in Scenario::value_variants().iter().copied().filter(|s| only.is_none_or(|only| only == *s)) {
        println!("\n{scenario}");
        play(glance, &database, &folder.join(scenario.word()), addresses, scenario)
            .with_context(|| scenario.to_string())?;
    }
    Ok(())
}

/// Says what was seen.
fn saw(what: &str) {
    println!("  {what}");
}
