//! Runs that are written down, for situations that random runs rarely meet: each is about one guard.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use stead_chance::Chance;
use stead_recovery::{EvidenceKind, Guards, RecoveryPolicy, RecoveryRequest, RecoveryWrite, Statement};
use stead_sim::{DeleteOptions, SimKey, Write};

use super::cluster::{NAMESPACE, NODES, Setting, Tolerates, draw_policy, node_name};
use super::faults::{CLOUD, SHUTDOWN, State};
use super::run::{Actor, Run};

const USER: Actor = Actor::Other("kubectl");

/// What a user asks for.
#[derive(Debug, Clone, Copy)]
enum Ask {
    /// To recover, with a confirmation that the machine is off.
    Confirmed(Timestamp),
    /// To continue.
    Continue,
    /// To abort.
    Abort,
}

impl Run {
    /// A run without random faults.
    fn scripted(guards: Guards, change: impl FnOnce(&mut Setting, &mut RecoveryPolicy)) -> Run {
        let mut chance = Chance::new(1);
        let mut setting = Setting::draw(&mut chance, false);
        setting.workloads.retain(|workload| matches!(workload.name, "db" | "web"));
        (setting.slots, setting.flaky, setting.stale, setting.ordered) = (4, 0, 0, false);
        (setting.reaction, setting.boot) = (SignedDuration::from_millis(2), SignedDuration::from_secs(1));
        let mut policy = draw_policy(&mut chance);
        policy.accept = BTreeSet::from([EvidenceKind::Person]);
        policy.allow_pending = true;
        change(&mut setting, &mut policy);
        let mut run = Run::with(setting, policy, guards, chance, 1);
        run.log = std::env::var_os("STEAD_RECOVERY_TRACE").map(|_| Vec::new());
        run
    }

    /// The node of a pod.
    fn node_of(&self, name: &str) -> usize {
        let pod = self.all_pods().find(|pod| pod.metadata.name.as_deref().is_some_and(|pod| pod.starts_with(name)));
        let node = pod.unwrap().spec.as_ref().unwrap().node_name.clone().unwrap();
        (0..NODES).find(|n| node_name(*n) == node).unwrap()
    }

    /// The machine of a pod fails, and its node is marked as unreachable.
    fn lose_node_of(&mut self, name: &str, state: State) -> usize {
        self.seconds(60);
        let n = self.node_of(name);
        self.set_state(n, state);
        self.seconds(120);
        n
    }

    /// It is back for so many seconds, then its network is cut, and it is marked as unreachable again.
    fn return_cut_off(&mut self, n: usize, seconds: i64) {
        self.set_state(n, State::Up);
        self.seconds(seconds);
        self.set_state(n, State::CutOff);
        self.seconds(120);
    }

    /// A recovery goes on until it decides on a write, which is returned with the turn of the read that it is based on.
    fn recover_up_to(
        &mut self,
        n: usize,
        ask: Ask,
        last: impl Fn(&RecoveryWrite) -> bool,
    ) -> Option<(RecoveryWrite, u64)> {
        let said = |at, words: &str| Statement { by: "anna".into(), at, words: words.into() };
        let request = RecoveryRequest {
            who: "anna".into(),
            confirm_off: if let Ask::Confirmed(at) = ask { Some(said(at, "seen")) } else { None },
            powered_off: matches!(ask, Ask::Confirmed(_)) && self.is_off(n),
            abort: matches!(ask, Ask::Abort).then(|| said(self.simulation.now(), "never mind")),
        };
        let policy = self.policy.clone();
        for _ in 0..40 {
            let (write, end, _) = self.observe(n, &request, &policy, false);
            let read = self.turn;
            match write {
                Some(write) if last(&write) => return Some((write, read)),
                Some(write) => drop(self.write(&write, "anna", read)),
                None => {
                    self.trace(|| format!("{end:?}"));
                    return None;
                }
            }
            self.pass(SignedDuration::from_millis(20));
        }
        None
    }

    /// A recovery goes on up to a write, and the caller is killed after it.
    fn recover_until(&mut self, n: usize, ask: Ask, last: impl Fn(&RecoveryWrite) -> bool) {
        if let Some((write, read)) = self.recover_up_to(n, ask, last) {
            self.write(&write, "anna", read);
        }
    }

    fn confirmed(&self) -> Ask {
        Ask::Confirmed(self.simulation.now())
    }

    fn set_unschedulable(&mut self, but: usize, unschedulable: bool) {
        for n in (0..NODES).filter(|n| *n != but) {
            let patch = json!({ "spec": { "unschedulable": unschedulable } });
            self.patch(USER, SimKey::node(&node_name(n)), patch).unwrap();
        }
    }

    fn delete(&mut self, name: &str) {
        self.request(USER, Write::Delete(SimKey::pod(NAMESPACE, name), DeleteOptions::default())).unwrap();
    }

    fn seconds(&mut self, seconds: i64) {
        self.pass(SignedDuration::from_secs(seconds));
    }

    fn end(mut self) -> Result<(), String> {
        self.seconds(300);
        if self.violation.is_none() {
            self.check_recovery();
        }
        let log = self.log.unwrap_or_default().join("\n");
        self.violation.map_or(Ok(()), |violation| Err(format!("{violation}\n{log}")))
    }
}

/// Whether a write applies the taint.
fn taints(write: &RecoveryWrite) -> bool {
    let out_of_service = |patch: &serde_json::Value| patch["spec"]["taints"].to_string().contains("out-of-service");
    matches!(write, RecoveryWrite::Node { patch, .. } if out_of_service(patch))
}

fn records(write: &RecoveryWrite) -> bool {
    matches!(write, RecoveryWrite::Record(_))
}

fn never(_: &RecoveryWrite) -> bool {
    false
}

/// The machine is resumed in the second in which somebody confirms that it is off, and its status is reported after its
/// Lease. The API server writes the time of the renewal in whole seconds.
pub(crate) fn resumed_while_confirmed(guards: Guards) -> Result<(), String> {
    let mut run = Run::scripted(guards, |_, _| {});
    let n = run.lose_node_of("db-0", State::Suspended);
    run.pass(SignedDuration::from_millis(100));
    run.set_state(n, State::Up);
    run.pass(SignedDuration::from_millis(900));
    let confirmed = run.confirmed();
    run.pass(SignedDuration::from_millis(200));
    run.set_ready(n, "Unknown");
    run.recover_until(n, confirmed, taints);
    run.end()
}

/// The Lease has expired, and the node controller has not marked the node yet.
pub(crate) fn recovered_before_it_is_marked(guards: Guards) -> Result<(), String> {
    let mut run = Run::scripted(guards, |_, _| {});
    run.seconds(61);
    let n = run.node_of("db-0");
    run.set_state(n, State::Off);
    run.seconds(42);
    let confirmed = run.confirmed();
    run.recover_until(n, confirmed, taints);
    run.end()
}

/// After the recovery was planned, the machine is resumed for a moment; then its network is cut.
pub(crate) fn resumed_after_the_record(guards: Guards) -> Result<(), String> {
    let mut run = Run::scripted(guards, |_, _| {});
    let n = run.lose_node_of("db-0", State::Suspended);
    let confirmed = run.confirmed();
    run.recover_until(n, confirmed, records);
    run.return_cut_off(n, 20);
    run.recover_until(n, Ask::Continue, taints);
    run.end()
}

/// The cloud has reported an earlier outage, and has not withdrawn that. When it did so is known from the taint before.
pub(crate) fn reported_for_an_earlier_outage(guards: Guards) -> Result<(), String> {
    let mut run = Run::scripted(guards, |_, policy| policy.accept = BTreeSet::from([EvidenceKind::CloudShutdown]));
    run.seconds(60);
    let n = run.node_of("db-0");
    let taint = json!({ "key": "example.com/maintenance", "effect": "NoSchedule", "timeAdded": run.simulation.now().to_string() });
    run.patch(USER, SimKey::node(&node_name(n)), json!({ "spec": { "taints": [taint] } })).unwrap();
    run.set_state(n, State::Off);
    run.seconds(120);
    run.nodes[n].shut_down = Some(run.simulation.now());
    run.add_taint(n, CLOUD, SHUTDOWN, "", "NoSchedule");
    run.return_cut_off(n, 20);
    run.recover_until(n, Ask::Continue, taints);
    run.end()
}

/// After the recovery was planned, somebody deletes the Node; the machine is switched on and registers another one.
pub(crate) fn registered_again(guards: Guards) -> Result<(), String> {
    let mut run = Run::scripted(guards, |_, _| {});
    let n = run.lose_node_of("db-0", State::Off);
    let confirmed = run.confirmed();
    run.recover_until(n, confirmed, records);
    run.request(USER, Write::Delete(SimKey::node(&node_name(n)), DeleteOptions::default())).unwrap();
    run.seconds(20);
    run.set_state(n, State::Up);
    run.end()
}

/// A pod that tolerates the taints of an unreachable node is scheduled to it after the recovery was planned.
pub(crate) fn scheduled_after_the_record(guards: Guards) -> Result<(), String> {
    let mut run = Run::scripted(guards, |setting, _| {
        setting.add_clinging();
    });
    let n = run.lose_node_of("web", State::Off);
    let confirmed = run.confirmed();
    run.recover_until(n, confirmed, records);
    run.set_unschedulable(n, true);
    run.delete("clings-0");
    run.seconds(60);
    run.set_unschedulable(n, false);
    run.recover_until(n, Ask::Continue, taints);
    run.end()
}

/// Somebody has decided to apply the taint when another user aborts the recovery, and applies it after the end.
pub(crate) fn tainted_after_the_end(guards: Guards) -> Result<(), String> {
    let mut run = Run::scripted(guards, |_, _| {});
    let n = run.lose_node_of("db-0", State::Off);
    let confirmed = run.confirmed();
    let (write, read) = run.recover_up_to(n, confirmed, taints).expect("the recovery gets there");
    run.recover_until(n, Ask::Abort, never);
    run.write(&write, "bert", read);
    run.end()
}

/// The machine is switched on right after the taint was applied, and its network is cut soon after that. The pod tolerates
/// the taint for a minute, so that its kubelet may start it.
pub(crate) fn switched_on_after_the_taint(guards: Guards) -> Result<(), String> {
    let mut run = Run::scripted(guards, |setting, _| {
        setting.not_revoking = true;
        setting.workloads.retain(|workload| workload.name == "db");
        setting.workloads[0].tolerates = Tolerates::OutOfServiceForAMinute;
    });
    let n = run.lose_node_of("db-0", State::Off);
    let confirmed = run.confirmed();
    run.recover_until(n, confirmed, taints);
    run.set_state(n, State::Up);
    run.seconds(8);
    run.set_state(n, State::CutOff);
    run.end()
}

/// The machine was restarted: this proves that the pod has stopped that was being deleted before, and nothing about the
/// other pods, which run again when the network is cut.
pub(crate) fn restarted_with_other_pods(guards: Guards) -> Result<(), String> {
    let mut run = Run::scripted(guards, |setting, policy| {
        setting.workloads.retain(|workload| workload.name == "db");
        policy.accept.insert(EvidenceKind::BootIdChanged);
    });
    run.set_unschedulable(1, true);
    run.seconds(60);
    run.set_unschedulable(1, false);
    let n = run.lose_node_of("db-0", State::Off);
    assert_eq!(n, run.node_of("db-1"));
    let finalizers = json!({ "metadata": { "finalizers": ["example.com/keep"] } });
    run.patch(USER, SimKey::pod(NAMESPACE, "db-0"), finalizers).unwrap();
    run.delete("db-0");
    let confirmed = run.confirmed();
    run.recover_until(n, confirmed, records);
    run.return_cut_off(n, 60);
    run.recover_until(n, Ask::Continue, taints);
    run.end()
}
