//! kubectl's flags.

use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::Value;
use stead_model::Kind;
use stead_semantics::labels::Selector;

use crate::action::{Action, Cascade, DrainOptions, PatchType, RolloutAction};
use crate::changes::{KeyChange, TaintChange};
use crate::targets::{Targets, objects};
use crate::{KubectlCommand, KubectlError};

/// The commands that change a cluster.
#[derive(Parser)]
#[command(name = "kubectl", no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
struct Line {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
struct Global {
    #[arg(short, long, global = true)]
    namespace: Option<String>,
    #[arg(long, global = true)]
    context: Option<String>,
    /// `none`, `client` or `server`.
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "client")]
    dry_run: Option<String>,
    /// The output does not change what is done.
    #[arg(short, long, global = true)]
    output: Option<String>,
    /// The name of the manager is not part of any answer.
    #[arg(long, global = true)]
    field_manager: Option<String>,
}

#[derive(Subcommand)]
enum Command {
    Apply(Apply),
    Create(Create),
    Replace(Replace),
    Delete(Delete),
    Scale(Scale),
    Label(Keys),
    Annotate(Keys),
    Taint(Taint),
    Cordon(Nodes),
    Uncordon(Nodes),
    Drain(Drain),
    Patch(Patch),
    #[command(subcommand)]
    Set(Set),
    #[command(subcommand)]
    Rollout(Rollout),
    /// `oc adm`.
    #[command(subcommand)]
    Adm(Adm),
}

/// What `oc` has below `adm`.
#[derive(Subcommand)]
enum Adm {
    Cordon(Nodes),
    Uncordon(Nodes),
    Drain(Drain),
    Taint(Taint),
}

#[derive(Args)]
struct Chosen {
    words: Vec<String>,
    #[arg(short, long = "filename", value_delimiter = ',')]
    filename: Vec<String>,
    #[arg(short = 'l', long)]
    selector: Option<String>,
    #[arg(long)]
    field_selector: Option<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    all: bool,
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

#[derive(Args)]
struct Apply {
    #[arg(short, long, value_delimiter = ',', required = true)]
    filename: Vec<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    server_side: bool,
    /// Conflicts are not modelled: every apply wins.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    force_conflicts: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    wait: bool,
}

#[derive(Args)]
struct Create {
    words: Vec<String>,
    #[arg(short, long, value_delimiter = ',')]
    filename: Vec<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    save_config: bool,
}

#[derive(Args)]
struct Replace {
    #[arg(short, long, value_delimiter = ',', required = true)]
    filename: Vec<String>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    force: bool,
}

#[derive(Args)]
struct Delete {
    #[command(flatten)]
    chosen: Chosen,
    #[arg(long, allow_negative_numbers = true)]
    grace_period: Option<i64>,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    force: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    now: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "background", default_value = "background")]
    cascade: String,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    ignore_not_found: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true)]
    wait: bool,
    #[arg(long)]
    timeout: Option<String>,
}

#[derive(Args)]
struct Scale {
    #[command(flatten)]
    chosen: Chosen,
    #[arg(long, required = true, allow_negative_numbers = true)]
    replicas: i32,
    #[arg(long, allow_negative_numbers = true)]
    current_replicas: Option<i32>,
    #[arg(long)]
    timeout: Option<String>,
}

#[derive(Args)]
struct Keys {
    #[command(flatten)]
    chosen: Chosen,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    overwrite: bool,
}

#[derive(Args)]
struct Taint {
    #[command(flatten)]
    chosen: Chosen,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    overwrite: bool,
}

#[derive(Args)]
struct Nodes {
    words: Vec<String>,
    #[arg(short = 'l', long)]
    selector: Option<String>,
}

#[derive(Args)]
struct Drain {
    #[command(flatten)]
    nodes: Nodes,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    ignore_daemonsets: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    force: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    delete_emptydir_data: bool,
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false)]
    disable_eviction: bool,
    #[arg(long, allow_negative_numbers = true)]
    grace_period: Option<i64>,
    #[arg(long)]
    timeout: Option<String>,
    #[arg(long)]
    pod_selector: Option<String>,
    #[arg(long)]
    skip_wait_for_delete_timeout: Option<i64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum PatchFlag {
    Json,
    Merge,
    Strategic,
}

#[derive(Args)]
struct Patch {
    #[command(flatten)]
    chosen: Chosen,
    #[arg(short, long, required = true)]
    patch: String,
    #[arg(long = "type", value_enum, default_value_t = PatchFlag::Strategic)]
    patch_type: PatchFlag,
    #[arg(long)]
    subresource: Option<String>,
}

#[derive(Subcommand)]
enum Set {
    Image(Chosen),
    Resources(Resources),
}

#[derive(Args)]
struct Resources {
    #[command(flatten)]
    chosen: Chosen,
    #[arg(short, long, default_value = "*")]
    containers: String,
    #[arg(long, default_value = "")]
    limits: String,
    #[arg(long, default_value = "")]
    requests: String,
}

#[derive(Subcommand)]
enum Rollout {
    Restart(Chosen),
    Undo(Undo),
    Pause(Chosen),
    Resume(Chosen),
}

#[derive(Args)]
struct Undo {
    #[command(flatten)]
    chosen: Chosen,
    #[arg(long, default_value_t = 0)]
    to_revision: i64,
}

/// What `kubectl get` and the like are told.
const READS: [&str; 12] =
    ["get", "describe", "logs", "exec", "wait", "top", "events", "explain", "diff", "version", "api-resources", "auth"];

/// Parses the words of a command line that begins with `kubectl` or `oc`.
pub(crate) fn parse(words: &[String]) -> Result<KubectlCommand, KubectlError> {
    let (client, rest) = words.split_first().ok_or_else(|| KubectlError("the command is empty".to_owned()))?;
    if client != "kubectl" && client != "oc" {
        return Err(KubectlError(format!("the command must begin with kubectl or oc, not {client:?}")));
    }
    if let Some(read) = rest.iter().find(|word| !word.starts_with('-')).filter(|word| READS.contains(&word.as_str())) {
        return Err(KubectlError(format!(
            "{client} {read} changes nothing: only commands that change the cluster are run"
        )));
    }
    let line = Line::try_parse_from(rest).map_err(|error| message(client, &error))?;
    let dry_run = match line.global.dry_run.as_deref() {
        None | Some("none") => false,
        Some("client" | "server") => true,
        Some(other) => return Err(KubectlError(format!("--dry-run={other}: must be none, client or server"))),
    };
    Ok(KubectlCommand {
        namespace: line.global.namespace,
        context: line.global.context,
        dry_run,
        action: line.command.action()?,
    })
}

/// The error in one line.
fn message(client: &str, error: &clap::Error) -> KubectlError {
    let text = error.render().to_string();
    let lines = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage") && !line.starts_with("For more") && !line.starts_with("tip:"));
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    KubectlError(format!("{client}: {}", text.strip_prefix("error: ").unwrap_or(&text)))
}

impl Command {
    fn action(self) -> Result<Action, KubectlError> {
        Ok(match self {
            Command::Apply(args) => Action::Apply { files: args.filename, server_side: args.server_side },
            Command::Create(args) => create(args)?,
            Command::Replace(args) => Action::Replace { files: args.filename, force: args.force },
            Command::Delete(args) => delete(args)?,
            Command::Scale(args) => Action::Scale {
                targets: args.chosen.targets(None)?.check("scale")?,
                replicas: not_negative("--replicas", args.replicas)?,
                current_replicas: args.current_replicas.filter(|count| *count >= 0),
            },
            Command::Label(args) => {
                let (targets, changes) = args.keys("label")?;
                Action::Label { targets, changes, overwrite: args.overwrite }
            }
            Command::Annotate(args) => {
                let (targets, changes) = args.keys("annotate")?;
                Action::Annotate { targets, changes, overwrite: args.overwrite }
            }
            Command::Taint(args) | Command::Adm(Adm::Taint(args)) => taint(args)?,
            Command::Cordon(nodes) | Command::Adm(Adm::Cordon(nodes)) => {
                Action::Cordon { targets: nodes.targets("cordon")?, unschedulable: true }
            }
            Command::Uncordon(nodes) | Command::Adm(Adm::Uncordon(nodes)) => {
                Action::Cordon { targets: nodes.targets("uncordon")?, unschedulable: false }
            }
            Command::Drain(args) | Command::Adm(Adm::Drain(args)) => drain(args)?,
            Command::Patch(args) => patch(args)?,
            Command::Set(Set::Image(chosen)) => set_image(chosen)?,
            Command::Set(Set::Resources(args)) => Action::SetResources {
                limits: pairs("--limits", &args.limits)?,
                requests: pairs("--requests", &args.requests)?,
                targets: args.chosen.targets(None)?.check("set resources")?,
                containers: args.containers,
            },
            Command::Rollout(rollout) => {
                let (chosen, action, name) = match rollout {
                    Rollout::Restart(chosen) => (chosen, RolloutAction::Restart, "rollout restart"),
                    Rollout::Undo(undo) => (undo.chosen, RolloutAction::Undo(undo.to_revision), "rollout undo"),
                    Rollout::Pause(chosen) => (chosen, RolloutAction::Pause, "rollout pause"),
                    Rollout::Resume(chosen) => (chosen, RolloutAction::Resume, "rollout resume"),
                };
                Action::Rollout { targets: chosen.targets(None)?.check(name)?, action }
            }
        })
    }
}

fn create(args: Create) -> Result<Action, KubectlError> {
    match args.words.as_slice() {
        [] if !args.filename.is_empty() => Ok(Action::Create { files: args.filename }),
        [kind, name] if matches!(kind.as_str(), "namespace" | "ns") => {
            Ok(Action::CreateNamespace { name: name.clone() })
        }
        _ => Err(KubectlError("kubectl create: -f FILE or namespace NAME is needed".to_owned())),
    }
}

fn delete(args: Delete) -> Result<Action, KubectlError> {
    let cascade = match args.cascade.as_str() {
        "background" | "true" => Cascade::Background,
        "foreground" => Cascade::Foreground,
        "orphan" | "false" => Cascade::Orphan,
        other => return Err(KubectlError(format!("--cascade={other}: must be background, foreground or orphan"))),
    };
    let given = args.grace_period.filter(|seconds| *seconds >= 0);
    if args.now && given.is_some() {
        return Err(KubectlError("--now and --grace-period cannot be specified together".to_owned()));
    }
    if args.force && given.is_some_and(|seconds| seconds > 0) {
        return Err(KubectlError("--force and --grace-period greater than 0 cannot be specified together".to_owned()));
    }
    let grace = match given {
        _ if args.force => Some(0),
        _ if args.now => Some(1),
        // Without --force kubectl waits for the kubelet, with the shortest period that it can ask for.
        Some(0) => Some(1),
        given => given,
    };
    Ok(Action::Delete {
        ignore_not_found: args.ignore_not_found || args.chosen.all || args.chosen.selector.is_some(),
        targets: args.chosen.targets(None)?.check("delete")?,
        grace,
        force: args.force,
        cascade,
        wait: args.wait,
        timeout: args.timeout.as_deref().map(duration).transpose()?.filter(|limit| !limit.is_zero()),
    })
}

fn taint(args: Taint) -> Result<Action, KubectlError> {
    let (words, changes): (Vec<String>, Vec<String>) =
        args.chosen.words.iter().cloned().partition(|word| !TaintChange::is_one(word));
    let changes = changes.iter().map(|word| TaintChange::parse(word)).collect::<Result<Vec<_>, _>>()?;
    if changes.is_empty() {
        return Err(KubectlError("kubectl taint: at least one taint update is required".to_owned()));
    }
    let targets = Chosen { words, ..args.chosen }.targets(None)?.check("taint")?;
    if let Some(other) = targets.objects.iter().find(|object| object.kind.kind != "Node") {
        return Err(KubectlError(format!("kubectl taint: only nodes have taints, not {}", other.kind.plural)));
    }
    Ok(Action::Taint { targets, changes, overwrite: args.overwrite })
}

fn drain(args: Drain) -> Result<Action, KubectlError> {
    let selector = args.pod_selector.as_deref().map(label_selector).transpose()?;
    let options = DrainOptions {
        ignore_daemonsets: args.ignore_daemonsets,
        force: args.force,
        delete_emptydir_data: args.delete_emptydir_data,
        disable_eviction: args.disable_eviction,
        grace: args.grace_period.filter(|seconds| *seconds >= 0),
        timeout: args.timeout.as_deref().map(duration).transpose()?.filter(|limit| !limit.is_zero()),
        pod_selector: selector,
        skip_wait_for_delete_timeout: args.skip_wait_for_delete_timeout.filter(|seconds| *seconds > 0),
    };
    Ok(Action::Drain { targets: args.nodes.targets("drain")?, options })
}

fn patch(args: Patch) -> Result<Action, KubectlError> {
    let value: Value = serde_json::from_str(&args.patch)
        .map_err(|error| KubectlError(format!("kubectl patch: --patch is not JSON: {error}")))?;
    let patch_type = match args.patch_type {
        PatchFlag::Json => PatchType::Json,
        PatchFlag::Merge => PatchType::Merge,
        PatchFlag::Strategic => PatchType::Strategic,
    };
    if value.is_array() != (patch_type == PatchType::Json) {
        return Err(KubectlError("kubectl patch: a JSON patch is a list, any other patch an object".to_owned()));
    }
    let targets = args.chosen.targets(None)?.check("patch")?;
    Ok(Action::Patch { targets, patch: value, patch_type, subresource: args.subresource })
}

fn set_image(chosen: Chosen) -> Result<Action, KubectlError> {
    let (changes, words): (Vec<String>, Vec<String>) =
        chosen.words.iter().cloned().partition(|word| word.contains('='));
    let images = changes.iter().filter_map(|word| word.split_once('='));
    let images: Vec<(String, String)> = images.map(|(name, image)| (name.to_owned(), image.to_owned())).collect();
    if images.is_empty() {
        return Err(KubectlError("kubectl set image: at least one image update is required".to_owned()));
    }
    let targets = Chosen { words, ..chosen }.targets(None)?.check("set image")?;
    Ok(Action::SetImage { targets, images })
}

impl Chosen {
    fn targets(self, default: Option<&'static Kind>) -> Result<Targets, KubectlError> {
        Ok(Targets {
            objects: objects(&self.words, default)?,
            files: self.filename,
            selector: self.selector.as_deref().map(label_selector).transpose()?,
            field_selector: self.field_selector,
            all: self.all,
            all_namespaces: self.all_namespaces,
        })
    }
}

impl Nodes {
    fn targets(self, command: &str) -> Result<Targets, KubectlError> {
        // kubectl accepts `node NAME` as well as `NAME`.
        let words = match self.words.as_slice() {
            [kind, names @ ..] if matches!(kind.as_str(), "node" | "nodes" | "no") && !names.is_empty() => {
                names.to_vec()
            }
            words => words.to_vec(),
        };
        let (selector, field_selector) = (self.selector, None);
        let chosen =
            Chosen { words, filename: Vec::new(), selector, field_selector, all: false, all_namespaces: false };
        let mut targets = chosen.targets(Some(Kind::known("Node")))?;
        if targets.objects.is_empty() && targets.selector.is_some() {
            targets.objects = objects(&["nodes".to_owned()], None)?;
        }
        targets.check(command)
    }
}

impl Keys {
    fn keys(&self, command: &str) -> Result<(Targets, Vec<KeyChange>), KubectlError> {
        let given = &self.chosen;
        let (changes, words): (Vec<String>, Vec<String>) =
            given.words.iter().cloned().partition(|word| KeyChange::is_one(word));
        let changes = changes.iter().map(|word| KeyChange::parse(word)).collect::<Result<Vec<_>, _>>()?;
        if changes.is_empty() {
            return Err(KubectlError(format!("kubectl {command}: at least one {command} update is required")));
        }
        let chosen = Chosen {
            words,
            filename: given.filename.clone(),
            selector: given.selector.clone(),
            field_selector: given.field_selector.clone(),
            ..*given
        };
        Ok((chosen.targets(None)?.check(command)?, changes))
    }
}

fn not_negative(flag: &str, value: i32) -> Result<i32, KubectlError> {
    match value {
        0.. => Ok(value),
        _ => Err(KubectlError(format!("{flag}={value}: must not be negative"))),
    }
}

fn label_selector(text: &str) -> Result<Selector, KubectlError> {
    Selector::parse(text).map_err(|error| KubectlError(format!("selector {text:?}: {error}")))
}

/// `cpu=1,memory=1Gi`.
fn pairs(flag: &str, text: &str) -> Result<Vec<(String, String)>, KubectlError> {
    let pair = |part: &str| match part.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err(KubectlError(format!("{flag}: {part:?} is not NAME=QUANTITY"))),
    };
    text.split(',').filter(|part| !part.is_empty()).map(pair).collect()
}

/// A duration as kubectl reads it: `90s`, `1m30s`, `2h`, or a number of seconds.
fn duration(text: &str) -> Result<Duration, KubectlError> {
    let invalid = || KubectlError(format!("{text:?} is not a duration such as 90s, 5m or 2h"));
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        let unit = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |end| digits + end);
        let seconds = match &rest[digits..unit] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(invalid()),
        };
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
        rest = &rest[unit..];
    }
    Ok(total)
}
