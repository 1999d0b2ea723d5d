//! Plays a rehearsal.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stead_kubectl::KubectlCommand;
use stead_sim::{Happening, LimitReached, Simulation};

use crate::arm::Arm;
use crate::duration::HumanDuration;
use crate::expectation::{Pattern, WaitedFor, ZONE_LABELS, reference, waited_for};
use crate::kubectl::{CommandError, Manifests};
use crate::rehearsal::{FailureKind, FailureTarget, Rehearsal, RehearsalStep, WaitFor, WaitStep};

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// A command is executed.
    Command,
    /// Something fails.
    Failure,
    /// Something is repaired.
    Repair,
    /// Time passes.
    Time,
    /// Something is expected.
    Check,
}

/// What a step was.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayedStep {
    /// Its index in the rehearsal.
    pub index: usize,
    /// Its heading; none if it belongs to that of an earlier step.
    pub name: Option<String>,
    /// What it does.
    pub kind: StepKind,
    /// The virtual time at which it began.
    pub began: Timestamp,
    /// The virtual time at which it ended.
    pub ended: Timestamp,
    /// What it does, in a line.
    pub title: String,
    /// What was printed.
    pub output: Vec<String>,
    /// Why it failed.
    pub failure: Option<String>,
    /// What happened while it was played.
    pub happenings: Vec<(Timestamp, Happening)>,
}

/// A rehearsal that was played.
#[derive(Debug, Clone)]
pub struct Run {
    /// The virtual time at which it began.
    pub began: Timestamp,
    /// The cluster at the beginning.
    pub start: Simulation,
    /// The steps that were played: up to the first that failed.
    pub steps: Vec<PlayedStep>,
    /// The cluster at the end.
    pub end: Simulation,
}

impl Run {
    /// Whether every step succeeded, and no volume had two writers.
    pub fn passed(&self) -> bool {
        self.failure().is_none()
    }

    /// Why it failed: the step and the reason.
    pub fn failure(&self) -> Option<(usize, String)> {
        let failed = self.steps.iter().find_map(|step| Some((step.index, step.failure.clone()?)));
        let writers = || {
            let violation = self.end.world().violations().first()?;
            let step = self.steps.iter().rfind(|step| step.began <= violation.at).map_or(0, |step| step.index);
            Some((step, violation.to_string()))
        };
        failed.or_else(writers)
    }

    /// The virtual time that passed.
    pub fn took(&self) -> HumanDuration {
        HumanDuration(self.end.now().duration_since(self.began))
    }
}

/// Plays the steps of a rehearsal in a simulated cluster, up to the first that fails.
pub fn play(rehearsal: &Rehearsal, mut simulation: Simulation, manifests: &Manifests) -> Run {
    let start = simulation.clone();
    simulation.follow();
    let steps = play_steps(rehearsal, &mut simulation, manifests);
    Run { began: start.now(), start, steps, end: simulation }
}

/// Plays the steps of a rehearsal in any cluster, up to the first that fails.
pub fn play_steps(rehearsal: &Rehearsal, arm: &mut impl Arm, manifests: &Manifests) -> Vec<PlayedStep> {
    let mut steps = Vec::new();
    for (index, step) in rehearsal.steps.iter().enumerate() {
        let began = arm.now();
        let mut output = Vec::new();
        let played = play_step(step, rehearsal.namespace(), arm, manifests, &mut output);
        let failure = played.err().map(|error| error.to_string());
        let failed = failure.is_some();
        steps.push(PlayedStep {
            index,
            name: step.name.clone(),
            kind: kind(step),
            began,
            ended: arm.now(),
            title: title(step),
            output,
            failure,
            happenings: arm.take_journal(),
        });
        if failed {
            break;
        }
    }
    steps
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// Something is not as expected, or cannot be done in this cluster.
    #[error("{0}")]
    NotSo(String),
    /// The command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The simulation stopped.
    #[error(transparent)]
    Limit(#[from] LimitReached),
}

fn play_step(
    step: &RehearsalStep,
    namespace: &str,
    arm: &mut impl Arm,
    manifests: &Manifests,
    output: &mut Vec<String>,
) -> Result<(), StepError> {
    if let Some(line) = &step.run {
        run_command(step, line, namespace, arm, manifests, output)?;
    }
    if let Some(target) = &step.fail {
        change_machines(arm, target, true)?;
    }
    if let Some(target) = &step.heal {
        change_machines(arm, target, false)?;
    }
    if let Some(duration) = step.skip {
        arm.skip(duration.0)?;
    }
    if let Some(wait) = &step.wait {
        wait_for(wait, namespace, arm)?;
    }
    if let Some(expectation) = step.expect.as_ref().filter(|expectation| arm.can_judge(expectation)) {
        let tolerance = arm.age_tolerance();
        arm.check(&mut |cluster| expectation.holds(cluster, namespace, tolerance))?;
    }
    Ok(())
}

fn run_command(
    step: &RehearsalStep,
    line: &str,
    namespace: &str,
    arm: &mut impl Arm,
    manifests: &Manifests,
    output: &mut Vec<String>,
) -> Result<(), StepError> {
    let mut command = KubectlCommand::parse(line).map_err(|error| StepError::NotSo(error.to_string()))?;
    command.namespace.get_or_insert_with(|| namespace.to_owned());
    let executed = match step.objects.as_slice() {
        [] => arm.execute(line, &command, manifests),
        objects => {
            let mut manifests = manifests.clone();
            manifests.add("-", objects.iter().cloned());
            arm.execute(line, &command, &manifests)
        }
    };
    match (executed, &step.error) {
        (Ok(lines), None) => *output = lines,
        (Ok(_), Some(wanted)) => {
            return Err(StepError::NotSo(format!("the command succeeds, instead of failing with {wanted:?}")));
        }
        (Err(CommandError::Limit(limit)), _) => return Err(limit.into()),
        (Err(error), None) => return Err(error.into()),
        (Err(error), Some(wanted)) => {
            let error = error.to_string();
            if !Pattern::new(wanted).matches(&error) {
                return Err(StepError::NotSo(format!("the command fails with {error:?}, not {wanted:?}")));
            }
            *output = vec![error];
        }
    }
    step.prints.as_ref().map_or(Ok(()), |wanted| compare_lines(wanted, output).map_err(StepError::NotSo))
}

/// Compares what a command printed, line by line.
fn compare_lines(wanted: &str, output: &[String]) -> Result<(), String> {
    let expected: Vec<&str> = wanted.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let same = expected.len() == output.len()
        && expected.iter().zip(output).all(|(pattern, line)| Pattern::new(pattern).matches(line));
    match same {
        true => Ok(()),
        false => {
            let expected: String = expected.iter().map(|line| format!("{line}\n")).collect();
            let found: String = output.iter().map(|line| format!("{line}\n")).collect();
            Err(format!("the command prints something else\nexpected:\n{expected}found:\n{found}"))
        }
    }
}

fn wait_for(wait: &WaitStep, namespace: &str, arm: &mut impl Arm) -> Result<(), StepError> {
    let mut problem = String::new();
    let holds = match &wait.until {
        WaitFor::Expectation(expectation) => {
            let period = if expectation.has_ages() { AGE_PERIOD } else { wait.within.0 };
            let tolerance = arm.age_tolerance();
            arm.wait(wait.within.0, period, &mut |cluster| {
                expectation.holds(cluster, namespace, tolerance).map_err(|why| problem = why).is_ok()
            })?
        }
        WaitFor::Text(text) => {
            let waited = waited_for(text).map_err(StepError::NotSo)?;
            if waited == WaitedFor::Rest {
                arm.rest(wait.within.0, &mut problem)?
            } else {
                let mut awaited = None;
                arm.wait(wait.within.0, wait.within.0, &mut |cluster| {
                    is_there(cluster, &waited, namespace, &mut awaited).map_err(|why| problem = why).is_ok()
                })?
            }
        }
    };
    match holds {
        true => Ok(()),
        false => Err(StepError::NotSo(format!("not reached within {}: {problem}", wait.within))),
    }
}

/// How often an expectation with ages is looked at: they change by themselves.
const AGE_PERIOD: SignedDuration = SignedDuration::from_secs(1);

/// Whether an object is ready or gone. `awaited` is the UID of the one that is to go, after the first call: another one of
/// its name may be created at once, as `kubectl wait --for=delete` takes into account.
fn is_there(
    simulation: &Simulation,
    waited: &WaitedFor,
    namespace: &str,
    awaited: &mut Option<String>,
) -> Result<(), String> {
    match waited {
        WaitedFor::Rest => Ok(()),
        WaitedFor::Gone(text) => {
            let key = reference(text, namespace)?;
            match simulation.store().object(&key) {
                Some(object) if awaited.get_or_insert_with(|| object.uid().to_owned()) == object.uid() => {
                    Err(format!("{key} exists"))
                }
                _ => Ok(()),
            }
        }
        WaitedFor::Ready(text) => {
            let key = reference(text, namespace)?;
            let object = simulation.store().object(&key).ok_or_else(|| format!("{key} does not exist"))?.to_json();
            let (spec, status) = (&object["spec"], &object["status"]);
            if let Some(conditions) = status["conditions"].as_array()
                && let Some(ready) = conditions.iter().find(|condition| condition["type"] == "Ready")
            {
                return if ready["status"] == "True" { Ok(()) } else { Err(format!("{key} is not Ready")) };
            }
            let wanted = spec["replicas"].as_i64().or(status["desiredNumberScheduled"].as_i64());
            let ready = status["readyReplicas"].as_i64().or(status["numberReady"].as_i64()).unwrap_or(0);
            match wanted {
                Some(wanted) if wanted == ready => Ok(()),
                Some(wanted) => Err(format!("{ready} of {wanted} pods of {key} are ready")),
                None => Err(format!("{key} is not ready")),
            }
        }
    }
}

/// Fails the target, or heals it.
fn change_machines(arm: &mut impl Arm, target: &FailureTarget, fails: bool) -> Result<(), StepError> {
    if let Some(driver) = &target.driver {
        let error = fails.then(|| target.message.as_deref().unwrap_or("the driver does not answer"));
        return arm.set_driver(driver, error);
    }
    let nodes: Vec<String> = match (&target.node, &target.zone) {
        (Some(node), _) => vec![node.clone()],
        (None, zone) => {
            let (zone, mut nodes) = (zone.as_deref().unwrap_or_default(), Vec::new());
            arm.check(&mut |cluster| {
                nodes = nodes_of_zone(cluster, zone);
                if nodes.is_empty() { Err(format!("there is no node in zone {zone}")) } else { Ok(()) }
            })?;
            nodes
        }
    };
    nodes.iter().try_for_each(|node| arm.set_machine(node, target.how.filter(|_| fails)))
}

fn nodes_of_zone(simulation: &Simulation, zone: &str) -> Vec<String> {
    let inside = |node: &&std::sync::Arc<k8s_openapi::api::core::v1::Node>| {
        let labels = node.metadata.labels.as_ref();
        let found = labels.and_then(|labels| ZONE_LABELS.iter().find_map(|label| labels.get(*label)));
        found.is_some_and(|found| found == zone)
    };
    let nodes = simulation.store().all::<k8s_openapi::api::core::v1::Node>().filter(inside);
    nodes.filter_map(|node| node.metadata.name.clone()).collect()
}

fn kind(step: &RehearsalStep) -> StepKind {
    match step {
        RehearsalStep { run: Some(_), .. } => StepKind::Command,
        RehearsalStep { fail: Some(_), .. } => StepKind::Failure,
        RehearsalStep { heal: Some(_), .. } => StepKind::Repair,
        RehearsalStep { skip: Some(_), .. } | RehearsalStep { wait: Some(_), .. } => StepKind::Time,
        _ => StepKind::Check,
    }
}

/// How many objects there are of each kind.
fn kinds(objects: &[Value]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for object in objects {
        let kind = object["kind"].as_str().unwrap_or("object");
        match counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((kind, 1)),
        }
    }
    let shown = |(kind, count): (&str, usize)| match count {
        1 => format!("1 {kind}"),
        _ if kind.ends_with('y') => format!("{count} {}ies", kind.trim_end_matches('y')),
        _ if kind.ends_with('s') => format!("{count} {kind}es"),
        _ => format!("{count} {kind}s"),
    };
    counts.into_iter().map(shown).collect::<Vec<_>>().join(", ")
}

/// What a step does, in a line.
fn title(step: &RehearsalStep) -> String {
    let place = |target: &FailureTarget| match (&target.node, &target.zone, &target.driver) {
        (Some(node), _, _) => format!("node {node}"),
        (_, Some(zone), _) => format!("zone {zone}"),
        (_, _, driver) => format!("driver {}", driver.as_deref().unwrap_or_default()),
    };
    match step {
        RehearsalStep { run: Some(line), objects, .. } => {
            let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
            if objects.is_empty() { line } else { format!("{line} ({})", kinds(objects)) }
        }
        RehearsalStep { fail: Some(target), .. } => {
            let how = match target.how {
                Some(FailureKind::Crash) => "crashes",
                Some(FailureKind::Suspend) => "is suspended",
                Some(FailureKind::Shutdown) => "is shut down",
                Some(FailureKind::Partition) => "loses its network",
                Some(FailureKind::Kubelet) => "loses its kubelet",
                None => "fails",
            };
            format!("{} {how}", place(target))
        }
        RehearsalStep { heal: Some(target), .. } => format!("{} is back", place(target)),
        RehearsalStep { skip: Some(duration), .. } => format!("{duration} pass"),
        RehearsalStep { wait: Some(wait), .. } => {
            let what = match &wait.until {
                WaitFor::Text(text) => text.clone(),
                WaitFor::Expectation(expectation) => expectation.subject(),
            };
            format!("wait for {what}, at most {}", wait.within)
        }
        RehearsalStep { expect: Some(expectation), .. } => format!("check {}", expectation.subject()),
        _ => "check".to_owned(),
    }
}
