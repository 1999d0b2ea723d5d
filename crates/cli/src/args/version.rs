//! The command line of `stead version`.

use clap::{Args, ValueEnum};

use crate::connect::ConnectArgs;

/// Print the version, the commit and the supported Kubernetes versions
///
/// Examples:
///   Which version is this?
///     stead version
///
///   Do the CRDs in the cluster match this version?
///     stead version --check
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
--check reads the CRDs of the cluster and changes nothing; it needs only the `get` verb. A CRD that belongs to someone else \
(the OpenStack operators) is named and not compared. The CRD of NodeRecoveries may be missing: `stead recover` creates it.

Exit codes:
  0  printed; with --check, the CRDs match this version
  1  with --check, a CRD differs or is not installed
  2  the command line is wrong
  3  no answer: the cluster cannot be read"
)]
pub(crate) struct VersionArgs {
    /// Compare the CRDs in the cluster with those of this version
    #[arg(long)]
    pub(crate) check: bool,

    /// Output format [default: text]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub(crate) output: Option<VersionFormat>,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// How the version is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VersionFormat {
    /// JSON
    Json,
    /// YAML
    Yaml,
}
