//! `stead recover node/NAME --from DUMP`: the plan, without a cluster.

use std::collections::BTreeSet;

use anyhow::anyhow;
use jiff::Timestamp;
use stead_explain::outage;
use stead_model::{Kind, Objects, UnreadObject, is_openshift_setting};
use stead_recovery::{ClusterView, KIND, NextStep, RecoveryEnd, RecoveryPolicy, RecoveryRequest, Refusal};
use stead_recovery::{next_step, plan, record_of};

use super::{is_in_progress, no_such_node, show, when_ready};
use crate::args::{RecoverArgs, RecoverFormat};
use crate::cluster::{read_dump, with_control_plane};
use crate::output::{self, ExitWith, Hinted, Outcome, complain};

/// Kinds that a plan depends on: without them it would be a guess.
const NEEDED: [(&str, &str); 5] = [
    ("Node", "nodes"),
    ("Pod", "pods"),
    ("PersistentVolumeClaim", "persistentvolumeclaims"),
    ("PersistentVolume", "persistentvolumes"),
    ("VolumeAttachment", "volumeattachments"),
];

/// Kinds beyond those of placement that a plan looks at.
const FURTHER: [&str; 6] = ["Deployment", "DaemonSet", "Job", "Lease", "Event", KIND];

/// What a dump cannot tell.
const NOT_CHECKED: &str = "from a dump, these are not checked: whether the machine is off, whether the node has come back \
                           since, other recoveries that were started since, and your permissions";

pub(super) fn run(args: &RecoverArgs, node: &str, policy: &RecoveryPolicy) -> anyhow::Result<Outcome> {
    let (objects, now) = read(args).map_err(ExitWith::NoAnswer)?;
    let Some(health) = objects.node_health(node)? else { return Err(no_such_node(&objects, node)) };
    let record = record_of(&objects, node);
    let in_progress = record.as_ref().filter(|record| is_in_progress(record));
    let request = RecoveryRequest { confirm_off: None, powered_off: false, abort: None, who: String::new() };
    let step = next_step(&ClusterView::new(node, &objects, None, now), record.as_ref(), &request, policy);
    let plan = match in_progress {
        Some(record) => record.spec.plan.clone(),
        None => plan(&objects, node, policy).map_err(|error| anyhow!("{error}"))?,
    };
    let ready = when_ready::forecast(&objects, node, &plan, now);
    match args.output {
        RecoverFormat::Table => output::text(&show::plan(&health, in_progress, &plan, &ready, now))?,
        RecoverFormat::Json => output::json(&show::ShownPlan::new(&plan, &ready))?,
        RecoverFormat::Yaml => output::yaml(&show::ShownPlan::new(&plan, &ready))?,
    }
    complain("note", &format!("{NOT_CHECKED}; nothing was changed"));
    match refusal(&step) {
        Some(refusal) => Err(anyhow!("{refusal}")),
        None => Ok(Outcome::Yes),
    }
}

/// Why the recovery would be refused whatever a person confirms.
fn refusal(step: &NextStep) -> Option<&Refusal> {
    match step.end.as_ref().and_then(RecoveryEnd::refusal)? {
        Refusal::NoEvidence(_) | Refusal::PowerOffNotStated { .. } => None,
        refusal => Some(refusal),
    }
}

/// The objects of the dump, and its time.
fn read(args: &RecoverArgs) -> anyhow::Result<(Objects, Timestamp)> {
    let wanted = |version: &str, kind: &str| {
        Kind::find(version, kind).is_some_and(|k| k.case_list.is_some() || FURTHER.contains(&kind))
            || is_openshift_setting(version, kind)
    };
    let dump = read_dump(&args.from, args.limit, &wanted)?;
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(kind, _)| !dump.kinds.contains(*kind)).map(|(_, plural)| *plural).collect();
    if !missing.is_empty() {
        let message = format!("the dump has no {}: a plan without them would be a guess", missing.join(", "));
        let hint = "`stead dump -o FILE` collects everything that is needed".to_owned();
        return Err(Hinted { message, hint }.into());
    }
    note_missing(&dump.kinds);
    let taken = dump.taken.as_deref().and_then(|taken| taken.parse().ok());
    let objects = Objects::from_items(dump.items.into_iter().map(|item| UnreadObject::Text(item.object)));
    let objects = with_control_plane(objects, &args.control_plane, dump.kubernetes.as_deref())?;
    let now = args.now.or(taken).or_else(|| outage::newest(&objects)).unwrap_or_else(Timestamp::now);
    Ok((objects, now))
}

fn note_missing(kinds: &BTreeSet<String>) {
    if !kinds.contains("Lease") {
        complain("warning", "the dump has no leases: the last heartbeat is taken from the node's conditions only");
    }
}
