//! The command line of `stead gluster manifests`.

use std::path::PathBuf;

use clap::Args;
use stead_model::ClusterVersion;

use super::PoolValues;
use crate::args::{DumpLimitArgs, ManifestFormat};
use crate::connect::ConnectArgs;

const DETAILS: &str = "\
Values are checked before anything is printed. The cluster is not contacted, except with --check or to read a Topology.

Values file:
  Every value has the name of its flag. Flags override the file.

    image: registry.example/gluster:11.1
    replicas: 5
    storage-class: bricks
    brick-size: 500Gi
    liveness: {period: 30, failures: 4}
    requests: {cpu: 500m, memory: 1Gi}

Scaling:
  To scale the pool later, use `kubectl scale statefulsets glusterfs --replicas=5`.";

/// Print the manifests of a pool: StatefulSet, Service, RBAC, network and admission policies
///
/// Examples:
///   A pool of three peers:
///     stead gluster manifests --image registry.example/gluster:11.1 | kubectl apply -f -
///
///   Five peers spread over the zones, checked against the cluster first:
///     stead gluster manifests --image registry.example/gluster:11.1 -n storage --replicas 5 \
///       --storage-class bricks --brick-size 500Gi \
///       --spread-by topology.kubernetes.io/zone --check > pool.yaml
///
///   With values from a file:
///     stead gluster manifests -f values.yaml | kubectl apply -f -
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_long_help = DETAILS)]
pub(crate) struct GlusterManifestsArgs {
    #[command(flatten)]
    pub(crate) values: PoolValues,

    /// YAML file with values; each has the name of its flag, and flags override the file
    #[arg(short = 'f', long = "values", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// Check with the cluster first: storage classes exist, names are free, and the API server accepts every object
    #[arg(long)]
    pub(crate) check: bool,

    /// Kubernetes version of the cluster, such as 1.29: objects that it does not have are left out [default: that of the server
    /// with --check, otherwise 1.36]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes: Option<ClusterVersion>,

    /// File or dump with the Topology, if it is not in the cluster; can be given more than once
    #[arg(long, value_name = "PATH")]
    pub(crate) from: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) limit: DumpLimitArgs,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = ManifestFormat::Yaml, value_name = "FORMAT")]
    pub(crate) output: ManifestFormat,
}
