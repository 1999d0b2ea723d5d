//! A user who runs `stead recover`, is killed after any write, and runs it again.

use std::collections::BTreeSet;

use stead_recovery::{
    ClusterView, EvidenceKind, RecoveryEnd, RecoveryPolicy, RecoveryRequest, RecoveryWrite, Statement, next_step,
    record_of,
};

use super::machine::Power;
use super::world::{NODES, OUT_OF_SERVICE, Ready, World};

/// A user or program that recovers nodes.
#[derive(Debug, Clone)]
pub(crate) struct Recoverer {
    pub(crate) who: &'static str,
    /// The current call of `stead recover`.
    call: Option<Call>,
}

#[derive(Debug, Clone)]
struct Call {
    node: usize,
    request: RecoveryRequest,
    /// The decided write, and the turn of the read that it is based on.
    write: Option<(RecoveryWrite, u64)>,
    ask_running: bool,
    /// The tick of the next read.
    next: u32,
    /// Until when the caller is suspended, as a laptop with a closed lid.
    asleep_until: u32,
}

impl Recoverer {
    pub(crate) fn new(who: &'static str) -> Recoverer {
        Recoverer { who, call: None }
    }
}

impl World {
    pub(crate) fn recover(&mut self, r: usize) {
        if self.faults_over {
            return;
        }
        if self.recoverers[r].call.is_none() {
            if self.chance.percent(10) {
                self.recoverers[r].call = self.start_call(r);
            }
            return;
        }
        // Several reads and writes in ten seconds; others act in between.
        for _ in 0..1 + self.chance.below(8) {
            self.turn += 1;
            if self.violation.is_some() || !self.continue_call(r) {
                return;
            }
        }
    }

    fn start_call(&mut self, r: usize) -> Option<Call> {
        let down: Vec<usize> = (0..NODES).filter(|n| self.needs_recovery(*n)).collect();
        let node = self.chance.one_of(&down)?;
        let who = self.recoverers[r].who.to_owned();
        let abort = self.chance.percent(8);
        let said = |words: &str| Some(Statement { by: who.clone(), at: self.now(), words: words.into() });
        let confirm_off =
            if self.may_confirm_off(node) && self.chance.clone().percent(75) { said("seen") } else { None };
        let powered_off = confirm_off.is_some() && self.machines[node].power != Power::Suspended;
        let abort = abort.then(|| said("never mind")).flatten();
        let request = RecoveryRequest { who: who.clone(), confirm_off, powered_off, abort };
        self.trace(|| format!("{who} calls for n{node}: {request:?}"));
        Some(Call { node, request, write: None, ask_running: false, next: 0, asleep_until: 0 })
    }

    /// Whether a user would think of recovering it.
    fn looks_down(&self, n: usize) -> bool {
        self.nodes[n].ready != Ready::True || self.nodes[n].has(OUT_OF_SERVICE) || self.nodes[n].mark.is_some()
    }

    /// Whether a recovery is needed, or one is left to be finished.
    pub(crate) fn needs_recovery(&self, n: usize) -> bool {
        let open = |r: &serde_json::Value| {
            r["spec"]["node"]["name"] == *self.nodes[n].name
                && !matches!(r["status"]["phase"].as_str(), Some("Returned" | "Undone" | "Void"))
        };
        self.looks_down(n) || self.records.values().any(open)
    }

    /// Whether a user can confirm that the machine is off.
    pub(crate) fn may_confirm_off(&self, n: usize) -> bool {
        match self.machines[n].power {
            Power::On => self.setting.lies,
            Power::Suspended | Power::Off => true,
        }
    }

    /// One read or one write. Returns whether the call continues now.
    fn continue_call(&mut self, r: usize) -> bool {
        let Some(mut call) = self.recoverers[r].call.take() else { return false };
        if self.chance.percent(2) {
            call.asleep_until = self.tick + 3 + self.chance.below(25) as u32;
        }
        if call.asleep_until > self.tick {
            self.recoverers[r].call = Some(call);
            return false;
        }
        if let Some((write, read)) = call.write.clone() {
            if self.chance.percent(40) {
                // The write is delayed.
                self.recoverers[r].call = Some(call);
                return false;
            }
            call.write = None;
            let who = self.recoverers[r].who;
            let fails = self.chance.percent(self.setting.flaky);
            if !fails {
                self.write(&write, who, read);
            }
            if self.chance.percent(10) {
                self.trace(|| format!("{who} is killed"));
                return false;
            }
            self.recoverers[r].call = Some(call);
            return true;
        }
        if call.next > self.tick {
            self.recoverers[r].call = Some(call);
            return false;
        }
        let policy = self.policy.clone();
        let (write, end, ask) = self.observe(call.node, &call.request, &policy, call.ask_running);
        call.ask_running = ask;
        if let Some(end) = end {
            let who = self.recoverers[r].who;
            self.trace(|| format!("{who}: {end:?}"));
            // Some try again with the same confirmation.
            if end.refusal().is_some() && self.chance.percent(60) {
                call.next = self.tick + 2 + self.chance.below(10) as u32;
                self.recoverers[r].call = Some(call);
            }
            return false;
        }
        let waits = write.is_none();
        if waits {
            call.next = self.tick + 1 + self.chance.below(7) as u32;
        }
        call.write = write.map(|write| (write, self.turn));
        self.recoverers[r].call = Some(call);
        !waits
    }

    /// Reads everything and decides.
    pub(crate) fn observe(
        &mut self,
        n: usize,
        request: &RecoveryRequest,
        policy: &RecoveryPolicy,
        ask: bool,
    ) -> (Option<RecoveryWrite>, Option<RecoveryEnd>, bool) {
        self.refresh();
        let objects = std::mem::take(&mut self.read.objects);
        let name = self.nodes[n].name.clone();
        let running: Option<BTreeSet<String>> = (ask && self.machines[n].is_up())
            .then(|| self.machines[n].processes.iter().map(|p| p.uid.clone()).collect());
        let record = record_of(&objects, &name);
        let view = ClusterView::new(&name, &objects, running.as_ref(), self.now()).with_guards(self.guards);
        let step = next_step(&view, record.as_ref(), request, policy);
        self.read.objects = objects;
        self.record_observation(n, record.as_ref(), step.write.as_ref());
        (step.write, step.end, step.ask_running)
    }

    /// A recovery without faults, by a user who has all permissions and can confirm.
    pub(crate) fn recover_without_faults(&mut self, n: usize) -> Option<RecoveryEnd> {
        let said = Statement { by: "carla".into(), at: self.now(), words: "seen".into() };
        let confirm_off = (self.machines[n].power == Power::Off).then_some(said);
        let powered_off = confirm_off.is_some();
        let request = RecoveryRequest { who: "carla".into(), confirm_off, powered_off, abort: None };
        let mut policy = RecoveryPolicy { allow_pending: true, ..self.policy.clone() };
        policy.accept.insert(EvidenceKind::Person);
        let mut ask = true;
        for _ in 0..12 {
            self.turn += 1;
            let read = self.turn;
            let (write, end, running) = self.observe(n, &request, &policy, ask);
            ask = running;
            match write {
                Some(write) => self.write(&write, "carla", read),
                None => return end,
            };
        }
        None
    }
}
