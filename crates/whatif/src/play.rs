//! Plays a rehearsal.

use jiff::Timestamp;
use stead_kubectl::KubectlCommand;
use stead_sim::{DriverState, Happening, LimitReached, MachineState, Simulation};

use crate::duration::HumanDuration;
use crate::expectation::{Expectation, WaitedFor, ZONE_LABELS, reference, waited_for};
use crate::kubectl::{CommandError, Manifests, execute};
use crate::rehearsal::{FailureKind, FailureTarget, Rehearsal, RehearsalStep, WaitFor};

/// What a step was.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayedStep {
    /// Its index in the rehearsal.
    pub index: usize,
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

/// Plays the steps of a rehearsal on a cluster, up to the first that fails.
pub fn play(rehearsal: &Rehearsal, mut simulation: Simulation, manifests: &Manifests) -> Run {
    let began = simulation.now();
    simulation.follow();
    let mut steps = Vec::new();
    for (index, step) in rehearsal.steps.iter().enumerate() {
        let step_began = simulation.now();
        let mut output = Vec::new();
        let failure = play_step(step, &mut simulation, manifests, &mut output).err().map(|error| error.to_string());
        let (ended, happenings) = (simulation.now(), simulation.take_journal());
        let failed = failure.is_some();
        steps.push(PlayedStep { index, began: step_began, ended, title: title(step), output, failure, happenings });
        if failed {
            break;
        }
    }
    Run { began, steps, end: simulation }
}

/// Why a step failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum StepError {
    #[error("{0}")]
    NotSo(String),
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Limit(#[from] LimitReached),
}

fn play_step(
    step: &RehearsalStep,
    simulation: &mut Simulation,
    manifests: &Manifests,
    output: &mut Vec<String>,
) -> Result<(), StepError> {
    if let Some(line) = &step.run {
        let command = KubectlCommand::parse(line).map_err(|error| StepError::NotSo(error.to_string()))?;
        let mut manifests = manifests.clone();
        if !step.objects.is_empty() {
            manifests.add("-", step.objects.iter().cloned());
        }
        *output = execute(simulation, &command, &manifests)?;
    }
    if let Some(target) = &step.fail {
        change_machines(simulation, target, true).map_err(StepError::NotSo)?;
    }
    if let Some(target) = &step.heal {
        change_machines(simulation, target, false).map_err(StepError::NotSo)?;
    }
    if let Some(duration) = step.skip {
        simulation.run_for(duration.0)?;
    }
    if let Some(wait) = &step.wait {
        let until = simulation.now() + wait.within.0;
        let mut problem = String::new();
        let holds = match &wait.until {
            WaitFor::Expectation(expectation) => simulation.run_until_holds(until, |simulation| {
                expectation.holds(simulation).map_err(|why| problem = why).is_ok()
            })?,
            WaitFor::Text(text) => {
                let waited = waited_for(text).map_err(StepError::NotSo)?;
                if waited == WaitedFor::Rest {
                    run_to_rest(simulation, until, &mut problem)?
                } else {
                    simulation.run_until_holds(until, |simulation| {
                        is_there(simulation, &waited).map_err(|why| problem = why).is_ok()
                    })?
                }
            }
        };
        if !holds {
            return Err(StepError::NotSo(format!("not reached within {}: {problem}", wait.within)));
        }
    }
    if let Some(expectation) = &step.expect {
        check_now(expectation, simulation)?;
    }
    Ok(())
}

fn check_now(expectation: &Expectation, simulation: &Simulation) -> Result<(), StepError> {
    expectation.holds(simulation).map_err(StepError::NotSo)
}

fn run_to_rest(simulation: &mut Simulation, until: Timestamp, problem: &mut String) -> Result<bool, LimitReached> {
    while let Some(at) = simulation.next_at() {
        if at > until {
            let next = simulation.pending().min_by_key(|(_, _, at)| *at);
            *problem =
                next.map(|(id, _, at)| format!("{} is going to look at {at}", id.component())).unwrap_or_default();
            return Ok(false);
        }
        simulation.run_step()?;
    }
    Ok(true)
}

/// Whether an object is ready or gone.
fn is_there(simulation: &Simulation, waited: &WaitedFor) -> Result<(), String> {
    match waited {
        WaitedFor::Rest => Ok(()),
        WaitedFor::Gone(text) => {
            let key = reference(text, "default")?;
            match simulation.store().object(&key) {
                None => Ok(()),
                Some(_) => Err(format!("{key} exists")),
            }
        }
        WaitedFor::Ready(text) => {
            let key = reference(text, "default")?;
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

fn machine_state(how: FailureKind) -> MachineState {
    match how {
        FailureKind::Crash | FailureKind::Shutdown => MachineState::Off,
        FailureKind::Suspend => MachineState::Suspended,
        FailureKind::Partition => MachineState::Partitioned,
        FailureKind::Kubelet => MachineState::KubeletStopped,
    }
}

/// Fails the target, or heals it.
fn change_machines(simulation: &mut Simulation, target: &FailureTarget, fails: bool) -> Result<(), String> {
    let state = target.how.map(machine_state).filter(|_| fails);
    if let Some(driver) = &target.driver {
        let state = match fails {
            true => DriverState::Failing {
                message: target.message.clone().unwrap_or_else(|| "the driver does not answer".to_owned()),
                reschedule: false,
            },
            false => DriverState::Working,
        };
        simulation.set_driver(driver, state);
        return Ok(());
    }
    let nodes: Vec<String> = match (&target.node, &target.zone) {
        (Some(node), _) => vec![node.clone()],
        (None, zone) => nodes_of_zone(simulation, zone.as_deref().unwrap_or_default()),
    };
    if nodes.is_empty() {
        return Err(format!("there is no node in zone {}", target.zone.as_deref().unwrap_or_default()));
    }
    for node in nodes {
        let changed = match state {
            Some(state) => simulation.fail(&node, state),
            None => simulation.heal(&node),
        };
        changed.map_err(|error| error.to_string())?;
    }
    Ok(())
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

/// What a step does, in a line.
fn title(step: &RehearsalStep) -> String {
    if let Some(name) = &step.name {
        return name.clone();
    }
    let place = |target: &FailureTarget| match (&target.node, &target.zone, &target.driver) {
        (Some(node), _, _) => format!("node {node}"),
        (_, Some(zone), _) => format!("zone {zone}"),
        (_, _, driver) => format!("driver {}", driver.as_deref().unwrap_or_default()),
    };
    match step {
        RehearsalStep { run: Some(line), .. } => line.clone(),
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
        RehearsalStep { wait: Some(wait), .. } => match &wait.until {
            WaitFor::Text(text) => format!("wait for {text}"),
            WaitFor::Expectation(_) => format!("wait, at most {}", wait.within),
        },
        _ => "check".to_owned(),
    }
}
