//! A real control plane as the place in which a rehearsal is played.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_kubectl::{KubectlCommand, split_words};
use stead_sim::{Choices, Happening, Machine, MachineState, Settings, SimObject, Simulation, World};
use stead_testbed::{Binaries, ControlPlane, Nodes, Options};
use stead_whatif::{Arm, CommandError, Expectation, FailureKind, Manifests, Rehearsal, StepError};
use tokio::runtime::Handle;

use super::cluster;
use super::shifted_time::ShiftedTime;
use crate::record::watch::{ALSO_CHECKED, PATHS, Watches};

/// How much later than in the simulation something may be: a controller's polling period, a few requests.
const TOLERANCE: Duration = Duration::from_secs(12);

/// How often the cluster is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// How long nothing has to happen until the cluster counts as being at rest: longer than any of its waiting times.
const REST: Duration = Duration::from_secs(400);

/// By how much the age of an object may differ.
const AGE_TOLERANCE: SignedDuration = SignedDuration::from_secs(8);

/// A real control plane with stand-in nodes.
pub(super) struct RealArm {
    runtime: Handle,
    plane: ControlPlane,
    nodes: Nodes,
    watches: Watches,
    settings: Settings,
    time: ShiftedTime,
    /// The machines that do not report.
    down: BTreeMap<String, MachineState>,
    /// The folder of the rehearsal, for the files of its commands.
    folder: PathBuf,
    longest_skip: SignedDuration,
}

impl RealArm {
    /// Sets up the cluster of a rehearsal: `start` is the simulated one.
    pub(super) async fn start(
        binaries: &Binaries,
        rehearsal: &Rehearsal,
        start: &Simulation,
        folder: PathBuf,
        longest_skip: SignedDuration,
    ) -> Result<RealArm> {
        let plane = ControlPlane::start(binaries, Options::default()).await?;
        let nodes = Nodes::start(&plane, cluster::spec(rehearsal, start)).await?;
        nodes.ready().await?;
        cluster::set_up(&plane, rehearsal, start).await.context("setting up the cluster")?;
        let paths: Vec<&'static str> = PATHS.into_iter().chain(ALSO_CHECKED).collect();
        let watches = Watches::start(&plane.client(), &paths).await?;
        let (settings, down) = (start.settings().clone(), BTreeMap::new());
        let (runtime, time) = (Handle::current(), ShiftedTime::default());
        Ok(RealArm { runtime, plane, nodes, watches, settings, time, down, folder, longest_skip })
    }

    /// The cluster as a simulation in the same state.
    fn cluster(&self) -> Result<Simulation, StepError> {
        let now = self.now();
        let mut objects = Vec::new();
        for object in self.watches.log().objects.values() {
            let mut object = object.clone();
            self.time.shift(&mut object);
            objects.push(SimObject::from_json(&object).map_err(|error| StepError::NotSo(error.to_string()))?);
        }
        let mut world = World::default();
        for (node, state) in &self.down {
            world.set_machine(node, Machine { state: *state, since: now, boots: 0, lease_phase: now });
        }
        Ok(Simulation::resume(now, self.settings.clone(), Choices::seeded(0), objects, world))
    }

    fn sleep(&self, duration: Duration) {
        self.runtime.block_on(tokio::time::sleep(duration));
    }

    /// The words of a command for kubectl: `oc adm drain` is `kubectl drain`, and files are found.
    fn arguments(&self, line: &str, command: &KubectlCommand) -> Result<Vec<String>, CommandError> {
        let words = split_words(line).map_err(|error| CommandError::Client(error.to_string()))?;
        let mut words: Vec<String> = words.into_iter().skip(1).filter(|word| word != "adm").collect();
        for file in command.action.files().iter().filter(|file| *file != "-") {
            let path = self.folder.join(file).display().to_string();
            for word in words.iter_mut().filter(|word| word.ends_with(file.as_str())) {
                *word = word.replace(file.as_str(), &path);
            }
        }
        // The steps after it wait for what they need.
        if words.first().is_some_and(|verb| verb == "delete") && !words.iter().any(|word| word.starts_with("--wait")) {
            words.push("--wait=false".to_owned());
        }
        Ok(words)
    }
}

fn duration(duration: SignedDuration) -> Duration {
    Duration::try_from(duration).unwrap_or_default()
}

impl Arm for RealArm {
    fn now(&self) -> Timestamp {
        self.time.at(Timestamp::now())
    }

    fn age_tolerance(&self) -> SignedDuration {
        AGE_TOLERANCE
    }

    fn can_judge(&self, expectation: &Expectation) -> bool {
        !is_about_kubelet(expectation)
    }

    fn execute(
        &mut self,
        line: &str,
        command: &KubectlCommand,
        manifests: &Manifests,
    ) -> Result<Vec<String>, CommandError> {
        let words = self.arguments(line, command)?;
        let args: Vec<&str> = words.iter().map(String::as_str).collect();
        let input = match manifests.file("-") {
            Some(objects) => json!({ "apiVersion": "v1", "kind": "List", "items": objects }).to_string(),
            None => String::new(),
        };
        let ran = self.runtime.block_on(self.plane.kubectl_with(&args, &input));
        let ran = ran.map_err(|error| CommandError::Client(format!("{error:#}")))?;
        if ran.code != Some(0) {
            return Err(CommandError::Printed(ran.stderr.trim().to_owned()));
        }
        Ok(ran.stderr.lines().chain(ran.stdout.lines()).map(str::to_owned).collect())
    }

    fn set_machine(&mut self, node: &str, failure: Option<FailureKind>) -> Result<(), StepError> {
        let problem = |error: anyhow::Error| StepError::NotSo(format!("{error:#}"));
        let Some(failure) = failure else {
            if self.down.remove(node) == Some(MachineState::Off) {
                self.nodes.world().boot(node);
            }
            self.nodes.resume(node).map_err(problem)?;
            // A kubelet that starts registers its node again if somebody has deleted it.
            return self.runtime.block_on(self.nodes.register(node)).map_err(problem);
        };
        let state = match failure {
            FailureKind::Crash | FailureKind::Shutdown => MachineState::Off,
            FailureKind::Suspend => MachineState::Suspended,
            FailureKind::Partition => MachineState::Partitioned,
            FailureKind::Kubelet => MachineState::KubeletStopped,
        };
        self.down.insert(node.to_owned(), state);
        self.nodes.make_unreachable(node).map_err(problem)
    }

    fn set_driver(&mut self, driver: &str, error: Option<&str>) -> Result<(), StepError> {
        self.nodes.disks().fail_driver(driver, error);
        Ok(())
    }

    fn skip(&mut self, skipped: SignedDuration) -> Result<(), StepError> {
        let played = skipped.min(self.longest_skip);
        self.sleep(duration(played));
        if skipped > played {
            // Objects have times in whole seconds: nothing may be created in the same second before and after a jump.
            let now = Timestamp::now();
            let next = Timestamp::from_second(now.as_second() + 1).unwrap_or(now);
            self.sleep(duration(next.duration_since(now)));
            self.time.jump(next, skipped - played);
        }
        Ok(())
    }

    fn check(&mut self, holds: &mut dyn FnMut(&Simulation) -> Result<(), String>) -> Result<(), StepError> {
        let end = std::time::Instant::now() + TOLERANCE;
        loop {
            let Err(problem) = holds(&self.cluster()?) else { return Ok(()) };
            if std::time::Instant::now() > end {
                return Err(StepError::NotSo(problem));
            }
            self.sleep(PERIOD);
        }
    }

    fn wait(
        &mut self,
        within: SignedDuration,
        _: SignedDuration,
        holds: &mut dyn FnMut(&Simulation) -> bool,
    ) -> Result<bool, StepError> {
        let end = std::time::Instant::now() + duration(within) + TOLERANCE;
        loop {
            if holds(&self.cluster()?) {
                return Ok(true);
            }
            if std::time::Instant::now() > end {
                return Ok(false);
            }
            self.sleep(PERIOD);
        }
    }

    fn rest(&mut self, within: SignedDuration, problem: &mut String) -> Result<bool, StepError> {
        let end = std::time::Instant::now() + duration(within).max(REST) + TOLERANCE;
        let (mut count, mut since) = (0, std::time::Instant::now());
        while std::time::Instant::now() < end {
            let changes = self.watches.log().seen.iter().filter(|seen| !is_periodic(&seen.object)).count();
            if changes != count {
                (count, since) = (changes, std::time::Instant::now());
            }
            if since.elapsed() > REST {
                return Ok(true);
            }
            self.sleep(PERIOD);
        }
        "objects still change".clone_into(problem);
        Ok(false)
    }

    fn take_journal(&mut self) -> Vec<(Timestamp, Happening)> {
        Vec::new()
    }
}

/// The reasons of events that only kubelets report. The stand-ins report none.
const KUBELET_EVENTS: [&str; 10] = [
    "Pulling",
    "Pulled",
    "Created",
    "Started",
    "Killing",
    "BackOff",
    "Failed",
    "Unhealthy",
    "FailedMount",
    "SandboxChanged",
];

/// Whether an expectation is about an event of a kubelet.
pub(super) fn is_about_kubelet(expectation: &Expectation) -> bool {
    expectation.event.as_ref().is_some_and(|event| KUBELET_EVENTS.contains(&event.reason.as_str()))
}

/// Whether an object changes although nothing happens: heartbeats, and repeated events.
fn is_periodic(object: &Value) -> bool {
    matches!(object["kind"].as_str(), Some("Lease" | "Event" | "Node"))
}
