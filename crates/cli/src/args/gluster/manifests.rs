//! The command line of `stead gluster manifests`.

use std::path::PathBuf;

use clap::Args;

use super::PoolValues;
use crate::args::{DumpLimitArgs, ManifestFormat};
use crate::connect::ConnectArgs;

const MORE: &str = "\
Examples:
  The pool of the quick start, applied:
    stead gluster manifests | kubectl apply -f -

  Five peers over the zones, on disks of a class of their own, looked at by the cluster first:
    stead gluster manifests -n storage --replicas 5 --storage-class bricks --brick-size 500Gi \\
      --spread-by topology.kubernetes.io/zone --check > pool.yaml

  The same from a file, in which every value has the name of its flag:
    replicas: 5
    storage-class: bricks
    brick-size: 500Gi
    liveness: {period: 30, failures: 4}
    requests: {cpu: 500m, memory: 1Gi}

Scaling later needs nothing of this: kubectl scale statefulsets glusterfs --replicas=5";

/// Print a pool as one file: Service, StatefulSet, rights, budget, policy.
///
/// Nothing is asked of a cluster, unless with --check or for a Topology that is in it. What is wrong is said before
/// anything is printed.
#[derive(Debug, Args)]
#[command(after_long_help = MORE)]
pub(crate) struct GlusterManifestsArgs {
    #[command(flatten)]
    pub(crate) values: PoolValues,

    /// A file of values in YAML, in which each has the name of its flag; flags count more
    #[arg(short = 'f', long = "values", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Ask the cluster first: classes are there, names are free or this pool's, and the API server takes all of it
    #[arg(long)]
    pub(crate) check: bool,

    /// Where the Topology is, if not in the cluster: a file or a dump; can be given more than once
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) limit: DumpLimitArgs,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t = ManifestFormat::Yaml, value_name = "FORMAT")]
    pub(crate) output: ManifestFormat,
}
