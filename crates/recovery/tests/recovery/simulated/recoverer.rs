//! A user who runs `stead recover`, is killed after any write, and runs it again.

use jiff::{SignedDuration, Timestamp};
use stead_recovery::{
    ClusterView, EvidenceKind, RecoveryAnnotation, RecoveryEnd, RecoveryPolicy, RecoveryRequest, RecoveryWrite,
    Statement, next_step, record_of,
};
use stead_sim::{DeleteOptions, MachineState, SimKey, SimObject, Write};

use super::cluster::{NAMESPACE, NODES, node_name};
use super::run::{Actor, OUT_OF_SERVICE, Ready, Run, TICK};

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
    /// The time of the next read.
    next: Timestamp,
    /// Until when the caller is suspended, as a laptop with a closed lid.
    asleep_until: Timestamp,
}

impl Recoverer {
    pub(crate) fn new(who: &'static str) -> Recoverer {
        Recoverer { who, call: None }
    }
}

impl Run {
    pub(crate) fn recover(&mut self, r: usize) {
        if self.recoverers[r].call.is_none() {
            if self.chance.percent(10) {
                self.recoverers[r].call = self.start_call(r);
            }
            return;
        }
        // Several reads and writes in ten seconds; Kubernetes acts in between.
        for _ in 0..1 + self.chance.below(8) {
            if self.violation.is_some() || !self.continue_call(r) {
                return;
            }
            let pause = [1, 20, 100][self.chance.below(3) as usize];
            self.pass(SignedDuration::from_millis(pause));
        }
    }

    fn start_call(&mut self, r: usize) -> Option<Call> {
        let down: Vec<usize> = (0..NODES).filter(|n| self.needs_recovery(*n)).collect();
        let node = self.chance.one_of(&down)?;
        let (who, now) = (self.recoverers[r].who.to_owned(), self.simulation.now());
        let said = |words: &str| Some(Statement { by: who.clone(), at: now, words: words.into() });
        let abort = if self.chance.percent(8) { said("never mind") } else { None };
        let may_confirm = !self.is_on(node) || self.setting.lies;
        let confirm_off = if may_confirm && self.chance.percent(75) { said("seen") } else { None };
        let powered_off = confirm_off.is_some() && self.state(node) != MachineState::Suspended;
        let request = RecoveryRequest { who: who.clone(), confirm_off, powered_off, abort };
        self.trace(|| format!("{who} calls for n{node}: {request:?}"));
        Some(Call { node, request, write: None, ask_running: false, next: now, asleep_until: now })
    }

    /// Whether a recovery is needed, or one is left to be finished.
    pub(crate) fn needs_recovery(&self, n: usize) -> bool {
        let looks_down = self.ready(n) != Ready::True || self.has(n, OUT_OF_SERVICE) || self.mark(n).is_some();
        let name = node_name(n);
        looks_down || self.records().any(|record| record.spec.node.name == name && !record.status.phase.is_over())
    }

    /// One read or one write. Returns whether the call continues now.
    fn continue_call(&mut self, r: usize) -> bool {
        let Some(mut call) = self.recoverers[r].call.take() else { return false };
        let (who, now) = (self.recoverers[r].who, self.simulation.now());
        if self.chance.percent(2) {
            call.asleep_until = now + TICK * (3 + self.chance.below(25) as i32);
        }
        if call.asleep_until > now || call.next > now {
            self.recoverers[r].call = Some(call);
            return false;
        }
        if let Some((write, read)) = call.write.take() {
            if self.chance.percent(40) {
                // The write is delayed.
                call.write = Some((write, read));
                self.recoverers[r].call = Some(call);
                return false;
            }
            if !self.chance.percent(self.setting.flaky) {
                self.write(&write, who, read);
            }
            if self.chance.percent(10) {
                self.trace(|| format!("{who} is killed"));
                return false;
            }
            self.recoverers[r].call = Some(call);
            return true;
        }
        let policy = self.policy.clone();
        let (write, end, ask) = self.observe(call.node, &call.request, &policy, call.ask_running);
        call.ask_running = ask;
        if let Some(end) = end {
            self.trace(|| format!("{who}: {end:?}"));
            // Some try again with the same confirmation.
            if end.refusal().is_some() && self.chance.percent(60) {
                call.next = now + TICK * (2 + self.chance.below(10) as i32);
                self.recoverers[r].call = Some(call);
            }
            return false;
        }
        let waits = write.is_none();
        if waits {
            call.next = now + TICK * (1 + self.chance.below(7) as i32);
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
        self.turn += 1;
        self.refresh();
        let objects = std::mem::take(&mut self.read.objects);
        let name = node_name(n);
        let running = (ask && self.is_connected(n)).then(|| self.processes(n));
        let record = record_of(&objects, &name);
        let view = ClusterView::new(&name, &objects, running.as_ref(), self.simulation.now()).with_guards(self.guards);
        let step = next_step(&view, record.as_ref(), request, policy);
        self.read.objects = objects;
        self.record_observation(n, record.as_ref(), step.write.as_ref());
        (step.write, step.end, step.ask_running)
    }

    /// Executes a write that was decided on data of the turn `read`. Returns whether the API server accepted it.
    pub(crate) fn write(&mut self, write: &RecoveryWrite, who: &str, read: u64) -> bool {
        match write {
            RecoveryWrite::Record(record) => {
                let object = SimObject::from_json(&serde_json::to_value(record).unwrap()).unwrap();
                let is_new = object.metadata().resource_version.is_none();
                let request = if is_new { Write::Create(object) } else { Write::Replace(object) };
                if self.request(Actor::Stead, request).is_err() {
                    return false;
                }
                self.trace(|| {
                    format!("{who} writes {}: {:?} {}", record.name(), record.status.phase, record.status.message)
                });
                self.check_record(record, read);
            }
            RecoveryWrite::Node { name, patch, what } => {
                let n = (0..NODES).find(|n| *name == node_name(*n)).unwrap();
                let was_ours = self.has(n, OUT_OF_SERVICE) && !self.nodes[n].foreign.contains(OUT_OF_SERVICE);
                if self.patch(Actor::Stead, SimKey::node(name), patch.clone()).is_err() {
                    return false;
                }
                self.trace(|| format!("{who} patches {name}: {what}"));
                let mark = patch["metadata"]["annotations"][stead_recovery::ANNOTATION].as_str();
                let mark = mark.and_then(|mark| serde_json::from_str::<RecoveryAnnotation>(mark).ok());
                self.check_patch(n, mark, was_ours, read);
                self.check_limits();
            }
            RecoveryWrite::Pod { namespace, name, patch, what } => {
                if self.patch(Actor::Stead, SimKey::pod(namespace, name), patch.clone()).is_err() {
                    return false;
                }
                self.trace(|| format!("{who} patches {name}: {what}"));
            }
            RecoveryWrite::DeletePod { name, uid, resource_version, .. } => {
                let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
                let options = DeleteOptions {
                    uid: given(uid),
                    resource_version: given(resource_version),
                    ..DeleteOptions::default()
                };
                let key = SimKey::pod(NAMESPACE, name);
                let found = self.simulation.store().object(&key).map(|pod| pod.uid().to_owned());
                if self.request(Actor::Stead, Write::Delete(key, options)).is_err() {
                    return false;
                }
                let uid = found.expect("only an object that is there can be deleted");
                self.trace(|| format!("{who} deletes {name}, {uid}"));
                self.pods.entry(uid.clone()).or_default().deleted_by_recoverer = true;
                self.check_deleted(&uid);
            }
        }
        true
    }

    /// A recovery without faults, by a user who has all permissions and can confirm.
    pub(crate) fn recover_without_faults(&mut self, n: usize) -> Option<RecoveryEnd> {
        let said = Statement { by: "carla".into(), at: self.simulation.now(), words: "seen".into() };
        let confirm_off = self.is_off(n).then_some(said);
        let powered_off = confirm_off.is_some();
        let request = RecoveryRequest { who: "carla".into(), confirm_off, powered_off, abort: None };
        let mut policy = RecoveryPolicy { allow_pending: true, ..self.policy.clone() };
        policy.accept.insert(EvidenceKind::Person);
        let mut ask = true;
        for _ in 0..12 {
            let (write, end, running) = self.observe(n, &request, &policy, ask);
            ask = running;
            match write {
                Some(write) => {
                    let read = self.turn;
                    self.write(&write, "carla", read);
                }
                None => return end,
            }
        }
        None
    }
}
