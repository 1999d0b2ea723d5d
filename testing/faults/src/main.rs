//! `cargo xtask faults`: plants faults in generated clusters and compares what triage finds.
#![expect(clippy::print_stdout, reason = "this program reports to the person who runs it")]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;
use stead_real::Outcome;

/// Plant faults in generated clusters, and compare what triage finds.
#[derive(Parser)]
#[command(name = "cargo xtask faults")]
struct Args {
    /// The seed of the first cluster
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many clusters, with consecutive seeds
    #[arg(long, default_value_t = 1)]
    count: u64,
    /// The number of nodes [default: random, at most 1000]
    #[arg(long)]
    nodes: Option<usize>,
    /// Write the last cluster to this file, for `stead explain --from FILE`
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut agreed = 0;
    for seed in args.seed..args.seed + args.count {
        let cluster = stead_faults::cluster(seed, args.nodes);
        let healthy = stead_faults::healthy_cluster(seed, args.nodes);
        if let Some(file) = &args.write {
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": cluster.items() });
            std::fs::write(file, list.to_string()).with_context(|| format!("writing {}", file.display()))?;
        }
        let differs = stead_faults::difference(&healthy).map(|text| format!("the healthy cluster: {text}"));
        let differs = differs.or_else(|| stead_faults::difference(&cluster));
        let (nodes, objects) = (cluster.node_count(), cluster.items().len());
        let planted = cluster.planted().join(", ");
        match differs {
            None => {
                agreed += 1;
                println!("seed {seed}: {nodes} nodes, {objects} objects; found: {planted}");
            }
            Some(text) => println!("seed {seed}: {nodes} nodes, {objects} objects; planted: {planted}\n{text}"),
        }
    }
    println!("faults: {agreed} of {} clusters agree", args.count);
    Ok(Outcome::passed(agreed == args.count).into())
}
