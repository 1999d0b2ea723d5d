//! One run: a node fails, people recover it, it comes back at some moment, and at the end everything works.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use stead_testbed::{Faults, RecordedWrite};
use tokio::sync::watch;

use super::RecoveryStage;
use super::checks;
use super::cluster::condition;
use super::machine::Machine;
use super::person::{HeldCall, Person};
use super::run_log::RunLog;
use super::run_spec::{InitialFault, Kills, MachineAction, Moment, RunSpec};
use super::workloads::RunWorkloads;
use crate::wait_until;

/// The timeout until Kubernetes notices a change.
const TIMEOUT: Duration = Duration::from_secs(90);

/// How long the first person repeats the call.
const MAX_CALLING_TIME: Duration = Duration::from_secs(75);

/// The people who call, with their tokens.
pub(super) const PEOPLE: [(&str, &str); 3] = [("alice", "alicetoken"), ("bob", "bobtoken"), ("carol", "caroltoken")];

/// The result of a run.
#[derive(Debug, Clone, Default)]
pub struct RunResult {
    /// The phase of the NodeRecovery at the end; none if no recovery was started.
    pub phase: Option<String>,
    /// The number of calls of `stead recover`.
    pub calls: u64,
    /// The first person's writes after which the call was killed.
    pub killed_after: Vec<u64>,
    /// The phase of the recovery each time the machine came back during it.
    pub phases_at_return: Vec<String>,
    /// The number of writes.
    pub writes: u64,
    /// How often the taint was applied.
    pub taints: u64,
    /// The number of API faults.
    pub faults: u64,
    /// How many disks were detached from processes that had been resumed.
    pub detached: u64,
}

/// A run in progress.
pub(super) struct Run<'a> {
    pub(super) stage: &'a RecoveryStage,
    pub(super) spec: &'a RunSpec,
    pub(super) log: &'a RunLog,
    pub(super) workloads: RunWorkloads<'a>,
    pub(super) machine: Machine<'a>,
    people: Vec<Person<'a>>,
    /// When a person truthfully confirmed that the machine is off.
    confirmed: Mutex<Vec<Timestamp>>,
    calls: Mutex<u64>,
    killed_after: Mutex<Vec<u64>>,
    phases_at_return: Mutex<Vec<String>>,
}

impl<'a> Run<'a> {
    /// Creates the workloads of a run.
    pub(super) async fn new(
        stage: &'a RecoveryStage,
        lane: usize,
        number: u32,
        spec: &'a RunSpec,
        log: &'a RunLog,
        seed: u64,
    ) -> Result<Run<'a>> {
        let (zone, node) = (super::zone(lane), super::node(lane, number as usize % super::NODES_PER_LANE));
        let namespace = format!("run-{number}");
        let workloads = RunWorkloads::create(stage.cluster(), &stage.machines, &zone, &node, &namespace, spec).await?;
        let machine = Machine::new(&stage.machines, node, log);
        let mut people = Vec::new();
        for (index, (name, token)) in PEOPLE.into_iter().enumerate() {
            let (seed, faults) = (seed.wrapping_add(index as u64), spec.api.faults());
            people.push(Person::new(name, token, &stage.plane, seed, faults, &stage.stead, log).await?);
        }
        let (confirmed, calls, killed_after, phases_at_return) = Default::default();
        Ok(Run { stage, spec, log, workloads, machine, people, confirmed, calls, killed_after, phases_at_return })
    }

    /// Plays the run, and checks its result.
    pub(super) async fn play(&self) -> Result<RunResult> {
        self.stage.machines.disks().ignore_detach_on(&self.machine.name, self.spec.detach_does_not_revoke);
        self.start_outage().await?;
        let before = self.workloads.all_lines()?;
        self.recover().await?;
        let meanwhile = self.workloads.all_lines()?;
        self.restore().await?;
        self.workloads.wait_until_ready().await?;
        let detached = checks::check_all(self, &before, &meanwhile).await?;
        let result = self.result(detached).await?;
        self.workloads.delete().await?;
        Ok(result)
    }

    async fn start_outage(&self) -> Result<()> {
        let began = Instant::now();
        match self.spec.initial_fault {
            InitialFault::Suspended => self.machine.perform(MachineAction::Suspend).await?,
            InitialFault::PowerLost => self.machine.perform(MachineAction::PowerOff).await?,
            InitialFault::Disconnected | InitialFault::DisconnectedAndSuspended => {
                self.machine.perform(MachineAction::Disconnect).await?
            }
        }
        if self.spec.early_call {
            let called = self.call(&self.people[0], &["--timeout", "45s"], async || Ok(HeldCall::Continue)).await?;
            // On a slow machine the node may already be unreachable when the call reads it.
            let in_time = began.elapsed() < Duration::from_secs(6);
            // A call without a confirmation can also succeed by reporting an earlier recovery that has ended.
            let refused = called == Some(1) || (called == Some(0) && !self.machine.is_off());
            ensure!(
                !in_time || (refused && self.people[0].write_count() == 0),
                "the recovery of a Ready node was not refused"
            );
        }
        wait_until("the node is unreachable", TIMEOUT, async || self.is_unreachable().await).await?;
        if self.spec.late_call {
            wait_until("its pods are Terminating", TIMEOUT, async || {
                let pods = self.workloads.pods().await?;
                Ok(pods.iter().any(|pod| !pod["metadata"]["deletionTimestamp"].is_null()))
            })
            .await?;
        }
        if self.spec.initial_fault == InitialFault::DisconnectedAndSuspended {
            self.machine.perform(MachineAction::Suspend).await?;
        }
        Ok(())
    }

    /// Whether the node is marked unreachable, and its Lease has expired.
    async fn is_unreachable(&self) -> Result<bool> {
        let name = &self.machine.name;
        let node = self.workloads.cluster.get(&format!("/api/v1/nodes/{name}")).await?;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
        let lease = self.workloads.cluster.get(&path).await?;
        let renewed: Timestamp = lease["spec"]["renewTime"].as_str().context("the Lease has no renewTime")?.parse()?;
        let duration = lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or_default();
        let age = Timestamp::now().duration_since(renewed).as_secs();
        Ok(condition(&node, "Ready") == "Unknown" && age > duration)
    }

    /// Calls `stead recover` as a person, with a confirmation if the machine is off.
    async fn call(
        &self,
        person: &Person<'_>,
        flags: &[&str],
        held: impl AsyncFnMut() -> Result<HeldCall>,
    ) -> Result<Option<i32>> {
        let target = format!("node/{}", self.machine.name);
        let policy = self.stage.policy(self.spec.detach_does_not_revoke);
        let mut args = vec![target.as_str(), "--yes", "--policy", path(&policy)?];
        args.extend(flags);
        if !flags.contains(&"--abort") {
            args.extend(self.spec.late_call.then_some("--allow-pending"));
        }
        let confirms = self.machine.is_off() && !flags.iter().any(|flag| matches!(*flag, "--abort" | "--wait-return"));
        if confirms {
            args.extend(["--confirm-off", "seen on its console"]);
            if self.spec.detach_does_not_revoke && self.machine.is_powered_off() {
                args.push("--powered-off");
            }
            locked(&self.confirmed).push(Timestamp::now());
        }
        *locked(&self.calls) += 1;
        person.call(&args, held).await
    }

    /// People recover the node, while actions are performed on the machine.
    async fn recover(&self) -> Result<()> {
        let reached = watch::Sender::new(false);
        let over = watch::Sender::new(false);
        let people = async {
            let all = tokio::try_join!(self.first_person(&reached), self.second_person(), self.third_person());
            over.send_replace(true);
            all.map(drop)
        };
        tokio::try_join!(people, self.timed_actions(&reached, &over)).map(drop)
    }

    /// Performs the actions on the machine that depend on the time.
    async fn timed_actions(&self, reached: &watch::Sender<bool>, over: &watch::Sender<bool>) -> Result<()> {
        if let Some((Moment::After(time), action)) = self.spec.action {
            tokio::time::sleep(time).await;
            self.perform(action).await?;
            reached.send_replace(true);
        }
        let Some((time, action)) = self.spec.then else { return Ok(()) };
        let (mut reached, mut over) = (reached.subscribe(), over.subscribe());
        tokio::select! {
            biased;
            _ = reached.wait_for(|reached| *reached) => {}
            // The write that triggers the first action was never made.
            _ = over.wait_for(|over| *over) => return Ok(()),
        }
        tokio::time::sleep(time).await;
        self.perform(action).await
    }

    /// Performs an action on the machine during a recovery.
    async fn perform(&self, action: MachineAction) -> Result<()> {
        let had_heartbeat = self.machine.has_heartbeat();
        self.machine.perform(action).await?;
        if !had_heartbeat && self.machine.has_heartbeat() {
            let open = |record: &Value| {
                let phase = record["status"]["phase"].as_str().unwrap_or_default();
                (!is_closed_phase(phase)).then(|| phase.to_owned())
            };
            let records = self.workloads.cluster.records(&self.machine.name).await?;
            let phase = records.iter().find_map(open).unwrap_or_else(|| "none".into());
            locked(&self.phases_at_return).push(phase);
        }
        Ok(())
    }

    /// The first person calls until the recovery is done, five calls have failed, or it takes too long.
    async fn first_person(&self, reached: &watch::Sender<bool>) -> Result<()> {
        let (person, began) = (&self.people[0], Instant::now());
        let mut failed = 0;
        while failed < 5 && began.elapsed() < MAX_CALLING_TIME {
            person.proxy.hold_after(self.next_hold(person.write_count()));
            let held = async || {
                let made = person.write_count();
                if let Some((Moment::Write(number), action)) = self.spec.action
                    && number == made
                    && !*reached.borrow()
                {
                    self.log.add(format!("write {made} was made"));
                    self.perform(action).await?;
                    reached.send_replace(true);
                    // Sometimes others learn of it before the response arrives, sometimes not.
                    tokio::time::sleep(Duration::from_millis(made * 150)).await;
                }
                if self.spec.kills.after(made) {
                    locked(&self.killed_after).push(made);
                    return Ok(HeldCall::Kill);
                }
                person.proxy.hold_after(self.next_hold(made));
                Ok(HeldCall::Continue)
            };
            match self.call(person, &["--timeout", "45s"], held).await? {
                None => {}
                Some(0) => break,
                Some(_) => {
                    failed += 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        person.proxy.hold_after(None);
        Ok(())
    }

    /// Returns the number of the next write after which the proxy holds the call.
    fn next_hold(&self, made: u64) -> Option<u64> {
        let action = match self.spec.action {
            Some((Moment::Write(number), _)) => Some(number),
            _ => None,
        };
        let kill = match self.spec.kills {
            Kills::Never => None,
            Kills::Once(number) => Some(number),
            Kills::Always => Some(made + 1),
        };
        [action, kill].into_iter().flatten().filter(|number| *number > made).min()
    }

    /// The second person calls independently of the first.
    async fn second_person(&self) -> Result<()> {
        let Some(delay) = self.spec.second_call else { return Ok(()) };
        tokio::time::sleep(delay).await;
        for _ in 0..3 {
            let called = self.call(&self.people[1], &["--timeout", "45s"], async || Ok(HeldCall::Continue)).await?;
            if called == Some(0) {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    /// The third person aborts the recovery.
    async fn third_person(&self) -> Result<()> {
        let Some(delay) = self.spec.abort else { return Ok(()) };
        tokio::time::sleep(delay).await;
        self.call(&self.people[2], &["--abort", "--timeout", "20s"], async || Ok(HeldCall::Continue)).await.map(drop)
    }

    /// Restores the machine and the API, and calls `stead recover` until the recovery is closed.
    async fn restore(&self) -> Result<()> {
        self.log.add("restoring machine and API");
        self.people.iter().for_each(|person| person.proxy.set(Faults::default()));
        self.machine.restore().await?;
        let path = format!("/api/v1/nodes/{}", self.machine.name);
        wait_until("the node is Ready again", TIMEOUT, async || {
            Ok(condition(&self.workloads.cluster.get(&path).await?, "Ready") == "True"
                && !self.is_unreachable().await?)
        })
        .await?;
        for _ in 0..4 {
            if self.is_closed().await? {
                return Ok(());
            }
            let flags = ["--wait-return", "--timeout", "60s"];
            self.call(&self.people[0], &flags, async || Ok(HeldCall::Continue)).await?;
        }
        ensure!(self.is_closed().await?, "the recovery is not closed");
        Ok(())
    }

    /// Whether all recoveries of the node are closed, and the node has no annotation.
    async fn is_closed(&self) -> Result<bool> {
        let records = self.workloads.cluster.records(&self.machine.name).await?;
        let node = self.workloads.cluster.get(&format!("/api/v1/nodes/{}", self.machine.name)).await?;
        let annotated = node["metadata"]["annotations"]["stead.dev/recovery"].is_string();
        Ok(!annotated && records.iter().all(|record| record["status"]["phase"].as_str().is_some_and(is_closed_phase)))
    }

    /// Returns the writes of all people, in order.
    pub(super) fn written(&self) -> Vec<RecordedWrite> {
        let mut all: Vec<RecordedWrite> = self.people.iter().flat_map(|person| person.proxy.written()).collect();
        all.sort_by_key(|write| write.at);
        all
    }

    /// Returns when a person truthfully confirmed that the machine is off.
    pub(super) fn confirmed(&self) -> Vec<Timestamp> {
        locked(&self.confirmed).clone()
    }

    async fn result(&self, detached: u64) -> Result<RunResult> {
        let written = self.written();
        let mut records = self.workloads.cluster.records(&self.machine.name).await?;
        records.sort_by_key(|record| {
            record["status"]["steps"].as_array().and_then(|s| s.last()).map(|s| s["at"].to_string())
        });
        let writes = written.iter().filter(|write| write.succeeded()).count() as u64;
        let last = records.last().filter(|_| writes > 0).and_then(|record| record["status"]["phase"].as_str());
        Ok(RunResult {
            phase: last.map(str::to_owned),
            calls: *locked(&self.calls),
            killed_after: locked(&self.killed_after).clone(),
            phases_at_return: locked(&self.phases_at_return).clone(),
            writes,
            taints: written.iter().filter(|write| checks::applies_taint(write)).count() as u64,
            faults: self.people.iter().map(|person| person.proxy.tally().faults()).sum(),
            detached,
        })
    }

    /// Restores the machine and deletes the workloads after a failed run. Ignores errors.
    pub(super) async fn clean_up_after_failure(&self) {
        let _ = self.restore().await;
        let _ = self.workloads.delete().await;
    }

    /// Adds the writes, the intervals in which pods could write, and the NodeRecovery objects to the log.
    pub(super) async fn log_details(&self) {
        let mut text = String::from("writes, pods that could write, and recoveries\n");
        for write in self.written() {
            text += &format!("{:.3}  {} {} -> {}\n", write.at, write.method, write.path, write.code);
        }
        let prefix = format!("{}/", self.workloads.namespace);
        for one in self.stage.machines.witness().iter().filter(|one| one.pod.starts_with(&prefix)) {
            let to = one.to.map(|(end, how)| format!("{:.3}, {how:?}", end.wall)).unwrap_or_default();
            text += &format!(
                "{:.3} to {to}: {} ({}) on {}: {}, {} writes\n",
                one.from.wall, one.pod, one.uid, one.node, one.volume, one.writes
            );
        }
        for mut record in self.workloads.cluster.records(&self.machine.name).await.unwrap_or_default() {
            record["metadata"]["managedFields"].take();
            text += &format!("{record:#}\n");
        }
        self.log.add(text);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a recovery in this phase is closed.
fn is_closed_phase(phase: &str) -> bool {
    matches!(phase, "Returned" | "Undone" | "Void")
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not UTF-8")
}
