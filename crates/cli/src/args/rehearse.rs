//! The arguments of `stead rehearse`.

use std::path::PathBuf;

use clap::Args;

use super::Format;
use crate::complete;
use crate::connect::ConnectArgs;

/// Play failures and changes in a simulated cluster, and check what is expected
///
/// Examples:
///   The first field report: a machine is suspended for a weekend
///     stead rehearse
///
///   All field reports, or one of them:
///     stead rehearse --all
///     stead rehearse cinder
///
///   Your own drill, with 1000 different outcomes of everything that is chance in Kubernetes:
///     stead rehearse drill.yaml --seeds 1000
///
///   Begin with a copy of a shipped one:
///     stead rehearse cinder --print > drill.yaml
///
///   In CI, with a page that shows the timeline:
///     stead rehearse drill.yaml --junit report.xml --html report.html
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
A rehearsal is a YAML file: a cluster (one of Stead's examples, a dump, the live cluster, or objects in the file), and steps: \
kubectl commands, failures of nodes, zones and storage drivers, time that passes, and what is expected. Everything runs on a \
simulation of Kubernetes' control plane, kubelets and storage, on virtual time. A live cluster is only read.

docs/REHEARSE.md is the guide. For an editor that knows JSON Schema: stead rehearse --schema > rehearsal.schema.json

Exit codes:
  0  every rehearsal passed
  1  a rehearsal failed
  2  the command line or a rehearsal file is wrong
  3  no answer: a file, the dump or the cluster cannot be read"
)]
pub(crate) struct RehearseArgs {
    /// Rehearsals to play: files (- for standard input), or names of shipped ones [default: glance]
    #[arg(value_name = "FILE | NAME", add = complete::rehearsals())]
    pub(crate) rehearsals: Vec<String>,

    /// Play every shipped rehearsal
    #[arg(long, conflicts_with = "rehearsals")]
    pub(crate) all: bool,

    /// List the shipped rehearsals and the example clusters
    #[arg(long, conflicts_with_all = ["rehearsals", "all", "print", "schema"])]
    pub(crate) list: bool,

    /// Print the files instead of playing them
    #[arg(long, conflicts_with = "schema")]
    pub(crate) print: bool,

    /// Print the JSON Schema of the format
    #[arg(long, conflicts_with_all = ["rehearsals", "all"])]
    pub(crate) schema: bool,

    /// Seed of everything that is chance: which of several equally good nodes, the order of simultaneous events, names
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,

    /// Play with this many seeds, from --seed on, and show the shortest run that fails
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seeds: Option<u64>,

    /// Output format; wide shows every command, output and change
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) output: Format,

    /// Write a JUnit report to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Write a page with a timeline to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}
