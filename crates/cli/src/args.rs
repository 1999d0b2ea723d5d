//! The command line.

use std::path::{Path, PathBuf};

use clap::builder::StyledStr;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::Timestamp;
use stead_semantics::quantity::Quantity;

use crate::complete;
use crate::connect::ConnectArgs;

mod control_plane;
mod dump;
mod dump_paths;
mod gluster;
mod install;
mod operator;
mod recover;
mod rehearse;
mod timers;
mod triage;
mod version;

pub(crate) use control_plane::ControlPlaneArgs;
pub(crate) use dump::DumpArgs;
pub(crate) use gluster::{
    CopyAgentArgs, GlusterAgentArgs, GlusterArgs, GlusterCommand, GlusterManifestsArgs, GlusterStatusArgs, PoolValues,
    StatusFormat,
};
pub(crate) use install::{
    ConsentArgs, InstallArgs, ManifestFormat, ManifestsArgs, OnlyPart, OperatorOptions, UninstallArgs,
};
pub(crate) use operator::{AntiAffinity, LogFormat, OperatorArgs};
pub(crate) use recover::{RecoverArgs, RecoverFormat};
pub(crate) use rehearse::RehearseArgs;
pub(crate) use timers::TimerArgs;
pub(crate) use triage::TriageArgs;
pub(crate) use version::{VersionArgs, VersionFormat};

/// The end of `stead --help`.
const EXAMPLES: &str = "\
Examples:
  Why is this pod stuck, and what fixes it?
    stead explain pod web-0 -n shop

  Which pods and volumes does this unreachable node hold, and what happens next?
    stead explain node/worker-0

  The machine is powered off. Move its pods and volumes to other nodes:
    stead recover node/worker-0 --confirm-off 'powered off in the console'

  What happens when a machine fails? A drill in a simulated cluster:
    stead rehearse

  Where would this workload go?
    stead place -f statefulset.yaml

  Without access to the cluster, from files that kubectl or a must-gather wrote:
    stead explain pod/web-0 -n shop --from must-gather.tar.gz

Exit codes:
  0  success
  1  the answer is no, the action was refused, or the input is wrong
  2  the command line is wrong
  3  no answer: the cluster or the dump cannot be read

Run `stead COMMAND --help` for the examples and details of a command.";

/// The commands in `stead --help`, grouped by what people want to do.
const COMMAND_GROUPS: [(&str, &[&str]); 4] = [
    ("Diagnose (read-only)", &["explain", "place", "rehearse", "dump"]),
    ("Act", &["recover"]),
    ("Run in a cluster", &["install", "uninstall", "manifests", "operator", "gluster"]),
    ("Other", &["version", "completions"]),
];

/// Diagnoses and repairs stateful services on Kubernetes.
///
/// Stead explains why pods are stuck and which changes fix them, moves pods and volumes off dead nodes, and runs OpenStack
/// Glance and GlusterFS on any cluster. Commands that change a cluster show a plan first and ask for confirmation.
#[derive(Debug, Parser)]
#[command(
    name = "stead",
    version,
    after_help = "Run `stead COMMAND --help` for examples and details, `stead --help` for exit codes.",
    after_long_help = EXAMPLES
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Explain(Box<ExplainArgs>),
    Place(PlaceArgs),
    Rehearse(RehearseArgs),
    Dump(DumpArgs),
    Recover(RecoverArgs),
    Install(InstallArgs),
    Uninstall(UninstallArgs),
    Manifests(ManifestsArgs),
    Operator(OperatorArgs),
    Gluster(GlusterArgs),
    Version(VersionArgs),
    Completions(CompletionsArgs),
    #[command(hide = true)]
    Complete(CompleteArgs),
    #[command(hide = true)]
    Man(ManArgs),
}

/// Explain why a pod, node, workload, claim or Topology is not healthy, and how to fix it
///
/// Examples:
///   What is stuck in this cluster, and why?
///     stead explain -A
///
///   Why is this pod Pending, Terminating or ContainerCreating, and what fixes it?
///     stead explain pod web-0 -n shop
///
///   Which pods of these workloads are not ready, and which pods use this claim?
///     stead explain sts/web pvc/data-web-0 -n shop
///
///   Every pod on a node:
///     stead explain pods -A --field-selector spec.nodeName=worker-0
///
///   Which pods and volumes does this unreachable node hold, and what happens next?
///     stead explain node/worker-0
///
///   Who uses this Topology, and what is wrong with it?
///     stead explain topology/glance-default-spread-pods -n openstack
///
///   Which Glance pods are not ready, and why?
///     stead explain glance/glance -n openstack
///
///   From files instead of a live cluster:
///     stead explain pod/web-0 -n shop --from cluster.yaml
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
What is explained:
  A pod that is Pending: the nodes grouped by the scheduler's reason, the cause of each reason (which Topology, which volume, \
which pods are counted), and possible fixes with their commands, the least harmful first. Each fix was verified with the \
scheduler's own rules on a copy of the cluster.

  A pod that is Terminating, or assigned to a node and not Ready: which node is unreachable and since when, what Kubernetes \
waits for, which node holds the volume; and a forecast for each option (do nothing, wait for the node, force-delete the pod, \
delete the Node, taint it out of service, change the update strategy): when and where the pod would be Ready, or why it would \
never be, and the risk.

  A node: its health, its pods and volumes, and the same forecast for all of them. A deleted Node is explained as long as \
pods or volumes refer to it.

  A StatefulSet, Deployment, DaemonSet or Job: how many pods are ready, how far the rollout is, and where the pods are. A \
claim or volume: its state, the pods that use it, where it is attached. A disruption budget: how many disruptions it allows. \
A namespace: its pods, and what blocks its deletion.

  A Topology: its rules in plain words, who uses it, where their pods are, and what is wrong with it.

  A Glance or GlanceAPI: its APIs, and why pods are not ready.

Permissions:
  Stead reads the cluster that kubectl would use, once, and needs only the `list` verb. It changes nothing. \
docs/EXPLAIN-REFERENCE.md has a ClusterRole.

Dumps:
  `stead dump -o dump.json.gz` collects everything that is used. --from also reads the output of oc adm inspect, OpenShift's \
must-gather and openstack-must-gather, kubectl cluster-info dump, support bundles, and files that kubectl printed, as files, \
folders or archives, several at once. With kubectl alone:

    kubectl get nodes,pods,namespaces,pv,pvc,sc,services,rs,sts,ds,deploy,jobs,cronjobs,pdb,quota \\
      -A -o yaml --show-managed-fields > workloads.yaml
    kubectl get csinodes,csidrivers,csistoragecapacities,volumeattachments,leases,events \\
      -A -o yaml --show-managed-fields > storage.yaml
    kubectl get topologies,glances,glanceapis,openstackcontrolplanes -A -o yaml > openstack.yaml
    stead explain pod/web-0 -n shop --from workloads.yaml storage.yaml openstack.yaml

Exit codes:
  0  the objects were explained, or nothing is stuck
  1  something is stuck; or an object was not found, is malformed, or its state is not known
  2  the command line is wrong
  3  no answer: the cluster or the dump cannot be read"
)]
pub(crate) struct ExplainArgs {
    /// Objects to explain: KIND NAME..., KIND/NAME..., or KIND for all that the selectors select; without an object,
    /// everything that is stuck is listed. Kinds: pod, node, sts, deploy, ds, job, pvc, pv, pdb, ns, topology, glance,
    /// glanceapi, oscp
    #[arg(value_name = "KIND NAME | KIND/NAME", add = complete::targets())]
    pub(crate) targets: Vec<String>,

    /// Label selector, as for kubectl
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    /// Field selector, as for kubectl; with KIND alone
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<String>,

    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,

    #[command(flatten)]
    pub(crate) source: SourceArgs,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) output: Format,

    /// Time of the answer [default: now; for a dump, the time at which it was taken, or the newest time in it]
    #[arg(long, value_name = "RFC3339", value_parser = timers::timestamp)]
    pub(crate) now: Option<Timestamp>,

    #[command(flatten)]
    pub(crate) triage: TriageArgs,

    #[command(flatten)]
    pub(crate) timers: TimerArgs,
}

/// Show where kube-scheduler would place a pod, and why not on the other nodes
///
/// Examples:
///   Where would this pod go?
///     stead place -f pod.yaml
///
///   Where would the first pod of this StatefulSet go, with the score of each scheduler plugin?
///     stead place -f statefulset.yaml -n openstack -o wide
///
///   The same from a must-gather instead of a live cluster:
///     stead place -f statefulset.yaml -n openstack --from must-gather.tar.gz
///
///   Recorded cases, one JSON object per line:
///     stead place cases.jsonl > answers.jsonl
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
One pod (-f):
  The file holds a Pod, StatefulSet, Deployment, ReplicaSet or Job. Of a workload, the first pod is placed, with its claims, \
as the API server and the controllers would create it. Other objects in the file count as created before. The exit code is \
1 if no node can run the pod.

Cases (CASES or standard input):
  A case is {\"id\": ..., \"given\": {\"nodes\": [...], \"pods\": [...], ..., \"pod\": {...}}}, or the same without \
\"given\" around the lists. Its answer has the id and, where they apply, feasible, rejected, codes, scores, totals, best, \
message, nominated and nominees. A case that cannot be read gets an answer with an error, and the exit code is 1.

Batch (--batch):
  The pods of the queue are placed one after the other, each before the next. Prints how many were placed and how fast."
)]
pub(crate) struct PlaceArgs {
    /// File with cases, one JSON object per line [default: standard input]
    #[arg(value_name = "CASES", conflicts_with_all = ["pod", "batch"])]
    pub(crate) cases: Option<PathBuf>,

    /// Add possible fixes to the answer of each unschedulable case
    #[arg(long, conflicts_with_all = ["pod", "batch"])]
    pub(crate) fixes: bool,

    /// File with the pod to place, or with the workload that creates it (- for standard input)
    #[arg(short = 'f', long = "filename", value_name = "FILE", id = "pod")]
    pub(crate) pod: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) source: SourceArgs,

    /// Output format for one pod
    #[arg(short, long, value_enum, default_value_t = Format::Table, requires = "pod", value_name = "FORMAT")]
    pub(crate) output: Format,

    /// Place the queue of a file {"nodes", "pods", "queue"} in order, and print the rate
    #[arg(long, value_name = "FILE", conflicts_with = "pod")]
    pub(crate) batch: Option<PathBuf>,
}

/// Where a cluster is read from.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// Read a dump instead of the live cluster: a file of `stead dump`, the output of `kubectl get ... -A -o yaml|json`, or a
    /// folder or archive of a must-gather, oc adm inspect, kubectl cluster-info dump or support bundle; can be given more
    /// than once
    #[arg(long, value_name = "PATH", conflicts_with_all = ["context", "kubeconfig"])]
    pub(crate) from: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) limit: DumpLimitArgs,

    /// Namespace of the object [default: the namespace of the kubeconfig context; in a dump, the only one that has the object]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(crate) namespace: Option<String>,

    #[command(flatten)]
    pub(crate) control_plane: ControlPlaneArgs,

    #[command(flatten)]
    pub(crate) connect: ConnectArgs,
}

/// The size limit of a dump.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct DumpLimitArgs {
    /// Maximum total size of a dump (--from) when decompressed, such as 500Mi or 8Gi
    #[arg(long, value_name = "SIZE", default_value = "2Gi", value_parser = size, requires = "from")]
    pub(crate) max_dump_size: u64,
}

/// Parses a number of bytes, written as a Kubernetes quantity.
fn size(text: &str) -> anyhow::Result<u64> {
    let size = u64::try_from(Quantity::parse(text)?.value()).unwrap_or_default();
    anyhow::ensure!(size > 0, "must be more than zero");
    Ok(size)
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for people
    Table,
    /// Text with more details: `place` adds the score of each plugin, `rehearse` every command and change
    Wide,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

/// Print a shell completion script
///
/// Example, in ~/.bashrc:
///   source <(stead completions bash)
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete for
    pub(crate) shell: Shell,
}

/// Print completions for the last word, as kubectl asks a plugin for them
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// The words after `kubectl stead`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

/// Write the manual pages to a folder, for packages
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder; created if it does not exist
    pub(crate) folder: PathBuf,
}

/// Parses the command line of this process. Ends the process after printing help or a command line error.
pub(crate) fn parse() -> Cli {
    let arguments = dump_paths::one_for_each_option(std::env::args_os().collect(), Path::exists);
    let command = command(arguments.first().map(Path::new));
    let matches = command.clone().get_matches_from(arguments);
    Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.format(&mut command.clone()).exit())
}

/// The clap command. kubectl runs `kubectl-stead` when a user types `kubectl stead`.
pub(crate) fn command(program: Option<&Path>) -> clap::Command {
    let command = Cli::command();
    let template = help_template(&command);
    let command = command.help_template(template);
    if program.is_some_and(is_plugin) { command.bin_name("kubectl stead") } else { command }
}

/// Whether this program was started as a plugin of kubectl or oc.
pub(crate) fn is_plugin(program: &Path) -> bool {
    program.file_stem().is_some_and(|stem| stem == "kubectl-stead")
}

/// The template of `stead --help`: clap's own, with the commands in groups, which clap cannot do by itself.
fn help_template(command: &clap::Command) -> StyledStr {
    let (heading, literal) = (command.get_styles().get_header(), command.get_styles().get_literal());
    let width = command.get_subcommands().map(|c| c.get_name().len()).max().unwrap_or_default();
    let mut template = String::from("{about-with-newline}\n{usage-heading} {usage}\n\n");
    for (title, names) in COMMAND_GROUPS {
        template.push_str(&format!("{heading}{title}:{heading:#}\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about).cloned().unwrap_or_default();
            template.push_str(&format!("  {literal}{name:width$}{literal:#}  {about}\n"));
        }
        template.push('\n');
    }
    template.push_str(&format!("{heading}Options:{heading:#}\n{{options}}{{after-help}}"));
    StyledStr::from(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_accepts_the_command_line() {
        command(None).debug_assert();
    }

    #[test]
    fn every_command_is_in_one_help_group() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut known: Vec<&str> = shown.map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = COMMAND_GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        known.sort();
        grouped.sort();
        assert_eq!(grouped, known);
    }

    #[test]
    fn usage_shows_the_name_that_the_user_typed() {
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
