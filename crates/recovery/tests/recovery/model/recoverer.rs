//! Somebody who runs `stead recover`, is killed after any write, and does it again.

use std::collections::BTreeSet;

use stead_recovery::{
    ClusterView, EvidenceKind, RecoveryEnd, RecoveryPolicy, RecoveryRequest, RecoveryWrite, Statement, next_step,
    record_of,
};

use super::machine::Power;
use super::world::{NODES, OUT_OF_SERVICE, Ready, World};

/// One who recovers nodes.
#[derive(Debug, Clone)]
pub(crate) struct Recoverer {
    pub(crate) who: &'static str,
    /// The call that is being made.
    call: Option<Call>,
}

#[derive(Debug, Clone)]
struct Call {
    node: usize,
    request: RecoveryRequest,
    /// What was decided, and at which turn it was read.
    write: Option<(RecoveryWrite, u64)>,
    ask_running: bool,
    /// When to look again.
    next: u32,
    /// Until when whoever calls does nothing at all: a lid was closed.
    naps: u32,
}

impl Recoverer {
    pub(crate) fn new(who: &'static str) -> Recoverer {
        Recoverer { who, call: None }
    }
}

impl World {
    pub(crate) fn recover(&mut self, r: usize) {
        if self.calm {
            return;
        }
        if self.recoverers[r].call.is_none() {
            if self.chance.percent(10) {
                self.recoverers[r].call = self.begin(r);
            }
            return;
        }
        // A few looks and writes in ten seconds; others act in between, where somebody is slow.
        for _ in 0..1 + self.chance.below(8) {
            self.turn += 1;
            if self.broken.is_some() || !self.go_on(r) {
                return;
            }
        }
    }

    fn begin(&mut self, r: usize) -> Option<Call> {
        let down: Vec<usize> = (0..NODES).filter(|n| self.concerns(*n)).collect();
        let node = self.chance.one_of(&down)?;
        let who = self.recoverers[r].who.to_owned();
        let abort = self.chance.percent(8);
        let said = |words: &str| Some(Statement { by: who.clone(), at: self.now(), words: words.into() });
        let confirm_off = if self.may_say_off(node) && self.chance.clone().percent(75) { said("seen") } else { None };
        let powered_off = confirm_off.is_some() && self.machines[node].power != Power::Suspended;
        let abort = abort.then(|| said("never mind")).flatten();
        let request = RecoveryRequest { who: who.clone(), confirm_off, powered_off, abort };
        self.say(|| format!("{who} calls for n{node}: {request:?}"));
        Some(Call { node, request, write: None, ask_running: false, next: 0, naps: 0 })
    }

    /// Whether anybody would think of recovering it.
    fn looks_down(&self, n: usize) -> bool {
        self.nodes[n].ready != Ready::True || self.nodes[n].has(OUT_OF_SERVICE) || self.nodes[n].mark.is_some()
    }

    /// Whether there is anything to be done about it, or anything left to be undone.
    pub(crate) fn concerns(&self, n: usize) -> bool {
        let open = |r: &serde_json::Value| {
            r["spec"]["node"]["name"] == *self.nodes[n].name
                && !matches!(r["status"]["phase"].as_str(), Some("Returned" | "Undone" | "Void"))
        };
        self.looks_down(n) || self.records.values().any(open)
    }

    /// Whether a person who has a look can say that the machine is off.
    pub(crate) fn may_say_off(&self, n: usize) -> bool {
        match self.machines[n].power {
            Power::On => self.setting.lies,
            Power::Suspended | Power::Off => true,
        }
    }

    /// One look, or one write; gives back whether the call goes on now.
    fn go_on(&mut self, r: usize) -> bool {
        let Some(mut call) = self.recoverers[r].call.take() else { return false };
        if self.chance.percent(2) {
            call.naps = self.tick + 3 + self.chance.below(25) as u32;
        }
        if call.naps > self.tick {
            self.recoverers[r].call = Some(call);
            return false;
        }
        if let Some((write, read)) = call.write.clone() {
            if self.chance.percent(40) {
                // It takes its time.
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
                self.say(|| format!("{who} is killed"));
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
        let (write, end, ask) = self.look(call.node, &call.request, &policy, call.ask_running);
        call.ask_running = ask;
        if let Some(end) = end {
            let who = self.recoverers[r].who;
            self.say(|| format!("{who}: {end:?}"));
            // Some try again, with the words that they had.
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

    /// Reads everything, and decides.
    pub(crate) fn look(
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
        self.note_look(n, record.as_ref(), step.write.as_ref());
        (step.write, step.end, step.ask_running)
    }

    /// When all is calm: everybody has the rights and the words that it takes, and nothing fails.
    pub(crate) fn recover_calmly(&mut self, n: usize) -> Option<RecoveryEnd> {
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
            let (write, end, running) = self.look(n, &request, &policy, ask);
            ask = running;
            match write {
                Some(write) => self.write(&write, "carla", read),
                None => return end,
            };
        }
        None
    }
}
