//! One run: a node is lost, people recover it, it comes back at some moment, and at the end everything works.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use stead_testbed::{Faults, Written};
use tokio::sync::watch;

use super::RecoveryStage;
use super::checks;
use super::cluster::condition;
use super::draw::{Draw, Kills, MachineAction, Moment, Trouble};
use super::machine::Machine;
use super::person::{Fate, Person};
use super::scene::Scene;
use super::story::Story;
use crate::until;

/// How long Kubernetes may take to see something.
const PATIENCE: Duration = Duration::from_secs(90);

/// So long people go on calling.
const TIRED: Duration = Duration::from_secs(75);

/// Who calls, and by which token the API server knows them.
pub(super) const PEOPLE: [(&str, &str); 3] = [("alice", "alicetoken"), ("bob", "bobtoken"), ("carol", "caroltoken")];

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Ended {
    /// The phase of the record in the end; none where nothing was begun.
    pub phase: Option<String>,
    /// How often `stead recover` was called.
    pub calls: u64,
    /// After which of the first person's writes it was killed.
    pub killed_after: Vec<u64>,
    /// How far the recovery was each time that the machine came back in the middle of it.
    pub back_at: Vec<String>,
    /// How many writes it made.
    pub writes: u64,
    /// How often it put the taint there.
    pub taints: u64,
    /// What went wrong with the API on the way.
    pub faults: u64,
    /// How often a disk was taken from a process that ran again by then.
    pub taken: u64,
}

/// A run that is under way.
pub(super) struct Run<'a> {
    pub(super) stage: &'a RecoveryStage,
    pub(super) draw: &'a Draw,
    pub(super) story: &'a Story,
    pub(super) scene: Scene<'a>,
    pub(super) machine: Machine<'a>,
    people: Vec<Person<'a>>,
    /// When somebody truly said that the machine is off.
    confirmed: Mutex<Vec<Timestamp>>,
    calls: Mutex<u64>,
    killed_after: Mutex<Vec<u64>>,
    back_at: Mutex<Vec<String>>,
}

impl<'a> Run<'a> {
    /// Sets the scene.
    pub(super) async fn new(
        stage: &'a RecoveryStage,
        lane: usize,
        number: u32,
        draw: &'a Draw,
        story: &'a Story,
        seed: u64,
    ) -> Result<Run<'a>> {
        let (zone, node) = (super::zone(lane), super::node(lane, number as usize % super::NODES));
        let namespace = format!("run-{number}");
        let scene = Scene::set(stage.cluster(), &stage.machines, &zone, &node, &namespace, draw).await?;
        let machine = Machine::new(&stage.machines, node, story);
        let mut people = Vec::new();
        for (index, (name, token)) in PEOPLE.into_iter().enumerate() {
            let (seed, faults) = (seed.wrapping_add(index as u64), draw.api.faults());
            people.push(Person::new(name, token, &stage.plane, seed, faults, &stage.stead, story).await?);
        }
        let (confirmed, calls, killed_after, back_at) = Default::default();
        Ok(Run { stage, draw, story, scene, machine, people, confirmed, calls, killed_after, back_at })
    }

    /// Plays it to its end.
    pub(super) async fn play(&self) -> Result<Ended> {
        self.stage.machines.disks().forget_at(&self.machine.name, self.draw.loose);
        self.trouble().await?;
        let before = self.scene.all_lines()?;
        self.recovery().await?;
        let meanwhile = self.scene.all_lines()?;
        self.calm().await?;
        self.scene.is_ready().await?;
        let taken = checks::all(self, &before, &meanwhile).await?;
        let ended = self.ended(taken).await?;
        self.scene.strike().await?;
        Ok(ended)
    }

    async fn trouble(&self) -> Result<()> {
        let began = Instant::now();
        match self.draw.trouble {
            Trouble::Suspended => self.machine.does(MachineAction::Suspend).await?,
            Trouble::PowerLost => self.machine.does(MachineAction::PowerOff).await?,
            Trouble::CutOff | Trouble::CutOffAndSuspended => self.machine.does(MachineAction::CutOff).await?,
        }
        if self.draw.early {
            let called = self.call(&self.people[0], &["--timeout", "45s"], async || Ok(Fate::GoesOn)).await?;
            // On a slow day the node is silent by the time it is looked at.
            let in_time = began.elapsed() < Duration::from_secs(6);
            // Who says nothing of the machine may be told how an earlier recovery of it has ended.
            let refused = called == Some(1) || (called == Some(0) && !self.machine.is_off());
            ensure!(!in_time || (refused && self.people[0].made() == 0), "a node that is Ready was not refused");
        }
        until("the node is silent", PATIENCE, async || self.is_silent().await).await?;
        if self.draw.late {
            until("its pods are Terminating", PATIENCE, async || {
                let pods = self.scene.pods().await?;
                Ok(pods.iter().any(|pod| !pod["metadata"]["deletionTimestamp"].is_null()))
            })
            .await?;
        }
        if self.draw.trouble == Trouble::CutOffAndSuspended {
            self.machine.does(MachineAction::Suspend).await?;
        }
        Ok(())
    }

    async fn is_silent(&self) -> Result<bool> {
        let name = &self.machine.name;
        let node = self.scene.cluster.get(&format!("/api/v1/nodes/{name}")).await?;
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
        let lease = self.scene.cluster.get(&path).await?;
        let renewed: Timestamp = lease["spec"]["renewTime"].as_str().context("a lease without renewTime")?.parse()?;
        let lasts = lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or_default();
        let old = Timestamp::now().duration_since(renewed).as_secs();
        Ok(condition(&node, "Ready") == "Unknown" && old > lasts)
    }

    /// Somebody calls; they say that the machine is off where that is true.
    async fn call(
        &self,
        person: &Person<'_>,
        flags: &[&str],
        held: impl AsyncFnMut() -> Result<Fate>,
    ) -> Result<Option<i32>> {
        let target = format!("node/{}", self.machine.name);
        let policy = self.stage.policy(self.draw.loose);
        let mut args = vec![target.as_str(), "--yes", "--policy", path(&policy)?];
        args.extend(flags);
        if !flags.contains(&"--abort") {
            args.extend(self.draw.late.then_some("--allow-pending"));
        }
        let truly = self.machine.is_off() && !flags.iter().any(|flag| matches!(*flag, "--abort" | "--wait-return"));
        if truly {
            args.extend(["--confirm-off", "seen on its console"]);
            if self.draw.loose && self.machine.is_powered_off() {
                args.push("--powered-off");
            }
            locked(&self.confirmed).push(Timestamp::now());
        }
        *locked(&self.calls) += 1;
        person.calls(&args, held).await
    }

    /// People recover it, and in the middle of that things happen to the machine.
    async fn recovery(&self) -> Result<()> {
        let reached = watch::Sender::new(false);
        let over = watch::Sender::new(false);
        let people = async {
            let all = tokio::try_join!(self.first(&reached), self.second(), self.third());
            over.send_replace(true);
            all.map(drop)
        };
        tokio::try_join!(people, self.later(&reached, &over)).map(drop)
    }

    /// What happens to the machine by the clock.
    async fn later(&self, reached: &watch::Sender<bool>, over: &watch::Sender<bool>) -> Result<()> {
        if let Some((Moment::After(time), action)) = self.draw.action {
            tokio::time::sleep(time).await;
            self.does(action).await?;
            reached.send_replace(true);
        }
        let Some((time, action)) = self.draw.then else { return Ok(()) };
        let (mut reached, mut over) = (reached.subscribe(), over.subscribe());
        tokio::select! {
            biased;
            _ = reached.wait_for(|reached| *reached) => {}
            // There were not so many writes.
            _ = over.wait_for(|over| *over) => return Ok(()),
        }
        tokio::time::sleep(time).await;
        self.does(action).await
    }

    /// Something is done to the machine in the middle of a recovery.
    async fn does(&self, action: MachineAction) -> Result<()> {
        let was_silent = !self.machine.is_heard();
        self.machine.does(action).await?;
        if was_silent && self.machine.is_heard() {
            let open = |record: &Value| {
                let phase = record["status"]["phase"].as_str().unwrap_or_default();
                (!is_over(phase)).then(|| phase.to_owned())
            };
            let records = self.scene.cluster.records(&self.machine.name).await?;
            let phase = records.iter().find_map(open).unwrap_or_else(|| "none".into());
            locked(&self.back_at).push(phase);
        }
        Ok(())
    }

    /// The first person calls until it is done, refused again and again, or they are tired of it.
    async fn first(&self, reached: &watch::Sender<bool>) -> Result<()> {
        let (person, began) = (&self.people[0], Instant::now());
        let mut refused = 0;
        while refused < 5 && began.elapsed() < TIRED {
            person.proxy.hold_after(self.next_hold(person.made()));
            let held = async || {
                let made = person.made();
                if let Some((Moment::Write(number), action)) = self.draw.action
                    && number == made
                    && !*reached.borrow()
                {
                    self.story.tell(format!("write {made} was made"));
                    self.does(action).await?;
                    reached.send_replace(true);
                    // Others may hear of it before the answer is there, or not.
                    tokio::time::sleep(Duration::from_millis(made * 150)).await;
                }
                if self.draw.kills.after(made) {
                    locked(&self.killed_after).push(made);
                    return Ok(Fate::Killed);
                }
                person.proxy.hold_after(self.next_hold(made));
                Ok(Fate::GoesOn)
            };
            match self.call(person, &["--timeout", "45s"], held).await? {
                None => {}
                Some(0) => break,
                Some(_) => {
                    refused += 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
        person.proxy.hold_after(None);
        Ok(())
    }

    /// The number of the next write at which all wait.
    fn next_hold(&self, made: u64) -> Option<u64> {
        let action = match self.draw.action {
            Some((Moment::Write(number), _)) => Some(number),
            _ => None,
        };
        let kill = match self.draw.kills {
            Kills::Never => None,
            Kills::Once(number) => Some(number),
            Kills::Always => Some(made + 1),
        };
        [action, kill].into_iter().flatten().filter(|number| *number > made).min()
    }

    /// The second person knows nothing of the first.
    async fn second(&self) -> Result<()> {
        let Some(delay) = self.draw.other else { return Ok(()) };
        tokio::time::sleep(delay).await;
        for _ in 0..3 {
            let called = self.call(&self.people[1], &["--timeout", "45s"], async || Ok(Fate::GoesOn)).await?;
            if called == Some(0) {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    /// The third wants it undone.
    async fn third(&self) -> Result<()> {
        let Some(delay) = self.draw.abort else { return Ok(()) };
        tokio::time::sleep(delay).await;
        self.call(&self.people[2], &["--abort", "--timeout", "20s"], async || Ok(Fate::GoesOn)).await.map(drop)
    }

    /// The machine is back, the API is fine, and somebody sees to it that nothing is left.
    async fn calm(&self) -> Result<()> {
        self.story.tell("all is calm");
        self.people.iter().for_each(|person| person.proxy.set(Faults::default()));
        self.machine.comes_back().await?;
        let path = format!("/api/v1/nodes/{}", self.machine.name);
        until("the node is back", PATIENCE, async || {
            Ok(condition(&self.scene.cluster.get(&path).await?, "Ready") == "True" && !self.is_silent().await?)
        })
        .await?;
        for _ in 0..4 {
            if self.is_over().await? {
                return Ok(());
            }
            let flags = ["--wait-return", "--timeout", "60s"];
            self.call(&self.people[0], &flags, async || Ok(Fate::GoesOn)).await?;
        }
        ensure!(self.is_over().await?, "the recovery does not come to its end");
        Ok(())
    }

    /// Whether all records of the node are over, and the node has no mark.
    async fn is_over(&self) -> Result<bool> {
        let records = self.scene.cluster.records(&self.machine.name).await?;
        let node = self.scene.cluster.get(&format!("/api/v1/nodes/{}", self.machine.name)).await?;
        let marked = node["metadata"]["annotations"]["stead.dev/recovery"].is_string();
        Ok(!marked && records.iter().all(|record| record["status"]["phase"].as_str().is_some_and(is_over)))
    }

    /// What all people wrote, in its order.
    pub(super) fn written(&self) -> Vec<Written> {
        let mut all: Vec<Written> = self.people.iter().flat_map(|person| person.proxy.written()).collect();
        all.sort_by_key(|write| write.at);
        all
    }

    /// When somebody truly said that the machine is off.
    pub(super) fn confirmed(&self) -> Vec<Timestamp> {
        locked(&self.confirmed).clone()
    }

    async fn ended(&self, taken: u64) -> Result<Ended> {
        let written = self.written();
        let mut records = self.scene.cluster.records(&self.machine.name).await?;
        records.sort_by_key(|record| {
            record["status"]["steps"].as_array().and_then(|s| s.last()).map(|s| s["at"].to_string())
        });
        let writes = written.iter().filter(|write| write.was_made()).count() as u64;
        let last = records.last().filter(|_| writes > 0).and_then(|record| record["status"]["phase"].as_str());
        Ok(Ended {
            phase: last.map(str::to_owned),
            calls: *locked(&self.calls),
            killed_after: locked(&self.killed_after).clone(),
            back_at: locked(&self.back_at).clone(),
            writes,
            taints: written.iter().filter(|write| checks::puts_taint(write)).count() as u64,
            faults: self.people.iter().map(|person| person.proxy.tally().faults()).sum(),
            taken,
        })
    }

    /// Puts things in order after a run that failed, as far as that can be done.
    pub(super) async fn give_up(&self) {
        let _ = self.calm().await;
        let _ = self.scene.strike().await;
    }

    /// Has the story end with what was written, who could write, and the records.
    pub(super) async fn tell_all(&self) {
        let mut text = String::from("what was written, who could write, and the records\n");
        for write in self.written() {
            text += &format!("{:.3}  {} {} -> {}\n", write.at, write.method, write.path, write.code);
        }
        let prefix = format!("{}/", self.scene.namespace);
        for one in self.stage.machines.witness().iter().filter(|one| one.pod.starts_with(&prefix)) {
            let to = one.to.map(|(end, how)| format!("{:.3}, {how:?}", end.wall)).unwrap_or_default();
            text += &format!(
                "{:.3} to {to}: {} ({}) on {}: {}, {} times\n",
                one.from.wall, one.pod, one.uid, one.node, one.volume, one.writes
            );
        }
        for mut record in self.scene.cluster.records(&self.machine.name).await.unwrap_or_default() {
            record["metadata"]["managedFields"].take();
            text += &format!("{record:#}\n");
        }
        self.story.tell(text);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this is the phase of a record that is only history.
fn is_over(phase: &str) -> bool {
    matches!(phase, "Returned" | "Undone" | "Void")
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}
