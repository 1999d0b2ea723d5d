//! The command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::Timestamp;
use stead_semantics::quantity::Quantity;

use crate::connect::ConnectArgs;

mod gluster;
mod install;
mod operator;
mod recover;
mod timers;

pub(crate) use gluster::{
    CopyAgentArgs, GlusterAgentArgs, GlusterArgs, GlusterCommand, GlusterManifestsArgs, GlusterStatusArgs, PoolValues,
    StatusFormat,
};
pub(crate) use install::{ConsentArgs, InstallArgs, ManifestFormat, ManifestsArgs, UninstallArgs};
pub(crate) use operator::{AntiAffinity, LogFormat, OperatorArgs};
pub(crate) use recover::{RecoverArgs, RecoverFormat};
pub(crate) use timers::TimerArgs;

const EXAMPLES: &str = "\
Examples:
  Why is this pod Pending, and what would let it in?
    stead explain pod/glance-default-external-api-2 -n openstack

  Why is it Terminating, or ContainerCreating, for hours? When does each way out have it Ready?
    stead explain pod/glance-azone-edge-api-1 -n openstack

  What hangs on this node that nothing is heard of?
    stead explain node/worker-0

  Who uses this Topology, what does it do to them, and what is wrong with it?
    stead explain topology/glance-default-spread-pods -n openstack

  A machine is off. What hangs on it, when would that be well again, and how is it freed safely?
    stead explain node/worker-0
    stead recover node/worker-0 --confirm-off 'powered off in the console'

  How are Glance's APIs, and which of their pods wait for what?
    stead explain glance/glance -n openstack

  The same without a cluster at hand, from what kubectl printed:
    kubectl get nodes,pods,namespaces,pv,pvc,sc,services,rs,sts,pdb,csinodes -A -o yaml --show-managed-fields > cluster.yaml
    kubectl get leases,events,volumeattachments,csidrivers,deploy,ds,jobs -A -o yaml --show-managed-fields > outage.yaml
    kubectl get topologies,glances,glanceapis,openstackcontrolplanes -A -o yaml > openstack.yaml
    stead explain pod/glance-default-external-api-2 -n openstack --from cluster.yaml outage.yaml openstack.yaml

  Where would this pod go, and why not elsewhere?
    stead place -f pod.yaml

  The same in an OpenShift must-gather, with the scores of each plugin:
    stead place -f statefulset.yaml -n openstack --from must-gather.tar.gz -o wide

  Thousands of recorded cases, one JSON object a line:
    stead place cases.jsonl > answers.jsonl

  A Gluster pool whose peers come back as themselves, and how it stands:
    stead gluster manifests --storage-class disks | kubectl apply -f -
    stead gluster status

Exit codes:
  0  fine
  1  the answer is no, or the input is wrong
  2  the command line is wrong";

/// Keeps stateful services in their place on Kubernetes.
///
/// Stead tells where kube-scheduler would put a pod, exactly as kube-scheduler would decide it, why a pod waits or cannot
/// end, and what can be done. For that it looks at the live cluster that kubectl would talk to, with read rights only, or at
/// files that kubectl or a must-gather left behind. What changes a cluster (recover, install, uninstall) shows first
/// what it would do, and asks.
#[derive(Debug, Parser)]
#[command(name = "stead", version, after_long_help = EXAMPLES, after_help = "`--help` has examples and exit codes.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Explain(Box<ExplainArgs>),
    Recover(RecoverArgs),
    Place(PlaceArgs),
    Operator(OperatorArgs),
    Install(InstallArgs),
    Uninstall(UninstallArgs),
    Manifests(ManifestsArgs),
    Gluster(GlusterArgs),
    Completions(CompletionsArgs),
}

/// Say why a pod is Pending, Terminating or not Ready, and every way out; what hangs on a node; or how a Topology or a
/// Glance stands.
///
/// Of a pod that waits for a node: the reasons with the nodes of each, what stands behind them (which Topology, which volume and where it
/// lies, how the spread counts stand), and the ways out: the smallest sets of changes that let the pod in, each tried
/// on a copy of the cluster with the scheduler's own rules, the least harmful first, with the commands to type.
///
/// Of a pod that is Terminating, or on a node and not Ready: which node is silent and since when, what Kubernetes waits
/// for and whether that ever comes, which volume hangs where and who holds it; and a forecast: for each way out (do
/// nothing, wait for the node, delete the pod by force, delete the Node object, taint it out of service, change the update
/// strategy) when the pod would be Ready, or never, where, and what can go wrong. Times are those of Kubernetes' own
/// settings; flags tell of others.
///
/// Of a node: how it stands, which pods and volumes hang on it, and the same forecast for all of them. A Node object that
/// is gone is explained too, while something still hangs on it.
///
/// Of a Topology: what it says in plain words, who uses it and through which reference, where their pods are, and what
/// is wrong with it. Of a Glance or GlanceAPI: its APIs, which of their pods are not ready, and why.
///
/// The cluster is the one that kubectl would talk to, read once and with the right to list only; with --from, a dump of
/// one. Nothing is changed.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// What to explain: pod/NAME, node/NAME, topology/NAME, glance/NAME or glanceapi/NAME
    #[arg(value_name = "KIND/NAME")]
    pub(crate) target: String,

    #[command(flatten)]
    pub(crate) source: SourceArgs,

    /// How to print it (wide is table)
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) output: Format,

    /// The moment that a dump tells of; without it, the newest time in the dump
    #[arg(long, value_name = "RFC3339", value_parser = timers::moment, requires = "from")]
    pub(crate) now: Option<Timestamp>,

    #[command(flatten)]
    pub(crate) timers: TimerArgs,
}

/// Say where kube-scheduler would put a pod.
///
/// Three forms. With -f, for people: the nodes with verdict, score and reasons for one pod, in the live cluster or one
/// that was dumped to files. Without: cases, one JSON object a line, answered one a line in the same order. With --batch: a
/// whole queue, each pod placed before the next.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The file of -f may hold a Pod or a StatefulSet, Deployment, ReplicaSet or Job, whose first pod is placed as the API \
server and the controllers would make it, with its claims. Whatever else the file holds counts as created before.

A case is {\"id\": ..., \"given\": {\"nodes\": [...], \"pods\": [...], ..., \"pod\": {...}}}, or the same without \
\"given\" around the lists. Its answer has the id and feasible, rejected, codes, scores, totals, best, message, \
nominated and nominees, as far as there is something to say; a case that cannot be read has an error instead, and \
the exit code is 1 after the last one.")]
pub(crate) struct PlaceArgs {
    /// A file of cases, one JSON object a line; standard input where none is given
    #[arg(value_name = "CASES", conflicts_with_all = ["pod", "batch"])]
    pub(crate) cases: Option<PathBuf>,

    /// Add to each unschedulable case's answer the changes that would let its pod in
    #[arg(long, conflicts_with_all = ["pod", "batch"])]
    pub(crate) fixes: bool,

    /// A file with the pod to place, or with a workload that makes it (- for standard input)
    #[arg(short = 'f', long = "filename", value_name = "FILE", id = "pod")]
    pub(crate) pod: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) source: SourceArgs,

    /// How to print the answer about one pod
    #[arg(short, long, value_enum, default_value_t = Format::Table, requires = "pod", value_name = "FORMAT")]
    pub(crate) output: Format,

    /// Place the queue of a file {"nodes", "pods", "queue"} in order, and print how fast that went
    #[arg(long, value_name = "FILE", conflicts_with = "pod")]
    pub(crate) batch: Option<PathBuf>,
}

/// Where a cluster is read from.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// A dump instead of the live cluster: a file or folder of what `kubectl get ... -A -o yaml|json` prints, or a
    /// must-gather, as a folder or an archive; can be given more than once
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = ["context", "kubeconfig"])]
    pub(crate) from: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) limit: DumpLimitArgs,

    /// The namespace, where the object does not say one (on a live cluster: the context's)
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// How large a dump may be.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DumpLimitArgs {
    /// Refuse a dump (--from) whose files are larger than this in total, decompressed, such as 500Mi or 8Gi
    #[arg(long, value_name = "SIZE", default_value = "2Gi", value_parser = size, requires = "from")]
    pub(crate) max_dump_size: u64,
}

/// A number of bytes, as a Kubernetes quantity.
fn size(text: &str) -> Result<u64, String> {
    let quantity = Quantity::parse(text).map_err(|e| e.to_string())?;
    u64::try_from(quantity.value()).ok().filter(|size| *size > 0).ok_or_else(|| "must be more than zero".to_owned())
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A table for people
    Table,
    /// The table with the score of each plugin
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Print a script that completes commands and flags.
///
/// For bash, in ~/.bashrc: `source <(stead completions bash)`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell to write it for
    pub(crate) shell: Shell,
}

/// The command line of this process. Ends it where there is nothing to run: after help, or a mistake.
pub(crate) fn parse() -> Cli {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let command = command(arguments.first().map(Path::new));
    let matches = command.clone().get_matches_from(arguments);
    Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.format(&mut command.clone()).exit())
}

/// The command as it is called: kubectl runs `kubectl-stead` for those who type `kubectl stead`.
fn command(program: Option<&Path>) -> clap::Command {
    let plugin = program.and_then(Path::file_stem).is_some_and(|stem| stem == "kubectl-stead");
    if plugin { Cli::command().bin_name("kubectl stead") } else { Cli::command() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_shows_what_was_typed() {
        for (program, usage) in [
            ("/usr/local/bin/stead", "Usage: stead <COMMAND>"),
            ("kubectl-stead", "Usage: kubectl stead <COMMAND>"),
            ("kubectl-stead.exe", "Usage: kubectl stead <COMMAND>"),
        ] {
            let help = command(Some(Path::new(program))).render_help().to_string();
            assert!(help.contains(usage), "{program}: {help}");
        }
    }
}
