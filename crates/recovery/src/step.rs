//! What a recovery does next: one write at most.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};
use stead_explain::outage::{NodeStanding, OUT_OF_SERVICE, Readiness};

use crate::brake::{self, Turn};
use crate::deed::{Deed, End, Step, Wait};
use crate::drivers;
use crate::evidence::{self, MAX_EVIDENCE_AGE};
use crate::follow;
use crate::guard::{Guard, Guards};
use crate::limits;
use crate::mark::{self, Fence, Mark, Over};
use crate::plan::{continued, plan, within};
use crate::pods::PodSeen;
use crate::policy::Policy;
use crate::record::{
    API_VERSION, CondemnedPod, Evidence, Heard, KIND, NodeIdentity, NodeRecovery, Phase, Plan, Said, Shield, Spec,
    Status, Target, Took,
};
use crate::shield;
use crate::view::{Request, View, record_named, unreadable};

/// By then every controller has seen that a taint is gone. What their caches are behind is seconds at most.
const SETTLED: SignedDuration = SignedDuration::from_secs(30);

/// What to do next, from what was read just now. The record is that of [`crate::record_of`].
pub fn step(view: &View<'_>, record: Option<&NodeRecovery>, request: &Request, policy: &Policy) -> Step {
    if let Some(why) = unreadable(view.objects, view.node) {
        return Step::refuse(why);
    }
    let node = NodeStanding::find(view.objects, view.node);
    match (record, node) {
        (Some(record), node) if !record.status.phase.is_over() => {
            let going = |node| Going { view, record, node, request, policy }.next();
            let same = |node: &NodeStanding| node.uid == record.spec.node.uid || !view.guards.hold(Guard::Identity);
            node.filter(same).map_or_else(|| void(view, record), going)
        }
        (_, None) => Step::refuse(format!("node {}: not found", view.node)),
        (last, Some(node)) => begin(view, last, &node, request, policy),
    }
}

/// The first step: what can be said against it, or the record of it.
fn begin(
    view: &View<'_>,
    last: Option<&NodeRecovery>,
    node: &NodeStanding,
    request: &Request,
    policy: &Policy,
) -> Step {
    let guards = view.guards;
    // Somebody who had read all this before the end may have written after it; be it for a former life of the machine.
    let named = Mark::of(node).and_then(|mark| record_named(view.objects, &mark.record));
    let of_it = named.as_ref().or(last);
    let left = |last: &NodeRecovery| {
        let tidied = mark::tidy(node, last.name(), guards).filter(|_| last.spec.node.uid == node.uid);
        tidied.or_else(|| lowered(view, last))
    };
    if let Some(deed) = of_it.and_then(left) {
        return Step::write(deed);
    }
    let alive = sign_of_life(node, view.now, guards);
    if let Some(mark) = Mark::of(node).filter(|_| named.is_none() && alive.is_some()) {
        return orphaned(view, node, &mark);
    }
    // Words that the last recovery has used up, or that are older than its end, are not for a new one.
    let used_up = |said: &Said| last.and_then(NodeRecovery::last_step).is_some_and(|end| said.at <= end);
    let mut request = request.clone();
    request.confirm_off = request.confirm_off.filter(|said| !guards.hold(Guard::Words) || !used_up(said));
    if let Some(last) = last.filter(|last| last.spec.node.uid == node.uid && request.confirm_off.is_none()) {
        let aborted = last.spec.abort.is_some() && last.spec.node == NodeIdentity::of(node);
        match last.status.phase {
            Phase::Returned if alive.is_some() => return Step::end(End::Returned),
            Phase::Undone if alive.is_some() || aborted => return Step::end(End::Undone),
            _ => {}
        }
    }
    if request.abort.is_some() {
        return Step::refuse(format!("node {}: there is no recovery that could be ended", node.name));
    }
    match consider(view, node, &request, policy, alive) {
        Ok(Considered { evidence, plan, held }) => {
            let mut record = made(view, node, evidence, plan);
            if let Some(why) = held {
                record.status.phase = Phase::Held;
                record.status.steps.push(Took { at: view.now, what: format!("Held: {why}") });
                record.status.message = why;
            }
            if guards.hold(Guard::Record) {
                write_record(record)
            } else {
                Step::write(mark::put(node, &record, &request.who, view.now, guards))
            }
        }
        Err(end) => Step::end(end),
    }
}

/// Somebody has deleted the record of a recovery that had put its taint on a node, which gives signs of life again.
fn orphaned(view: &View<'_>, node: &NodeStanding, mark: &Mark) -> Step {
    let tidied = || mark::tidy(node, &mark.record, view.guards).map_or_else(|| Step::wait(Vec::new()), Step::write);
    let wait = |how: String| Step::wait(vec![Wait { what: format!("node {}", node.name), how }]);
    let boot_id = node.boot_id.as_deref().unwrap_or_default();
    let another_life = !boot_id.is_empty() && !mark.boot_id.is_empty() && boot_id != mark.boot_id;
    if mark.over.is_some() || another_life {
        return tidied();
    }
    if !is_back(node, view.now) {
        return wait(format!("its recovery's record {} is gone; the taint goes when the node is back", mark.record));
    }
    match view.running.map(|running| follow::strangers(view.objects, running)) {
        None => Step {
            ask_running: true,
            ..wait("its recovery's record is gone: its kubelet is asked what it runs".into())
        },
        Some(strangers) if strangers.is_empty() => {
            let volumes = follow::still_in_use(view.objects, node, None);
            if volumes.is_empty() || !view.guards.hold(Guard::InUse) {
                return tidied();
            }
            Step { ask_running: true, ..wait(in_use(&volumes)) }
        }
        Some(strangers) => {
            let how = format!("pods that were taken from it still run there: uid {}", strangers.join(", "));
            Step { ask_running: true, ..wait(how) }
        }
    }
}

/// What is waited for while released volumes are still mounted.
fn in_use(volumes: &[String]) -> String {
    format!("it still has volumes mounted that were released (status.volumesInUse): {}", volumes.join(", "))
}

/// Whether a node is Ready, and its lease says so too.
fn is_back(node: &NodeStanding, now: Timestamp) -> bool {
    node.readiness == Readiness::Ready && node.lease_is_fresh(now)
}

/// Nothing on the node needs a recovery.
const NOTHING_TO_RELEASE: &str = "no pod and no volume there is to be freed";

/// Where most nodes are unreachable, a node without anything to release is recorded as well: the others need its proof.
fn only_proof(node: &str) -> String {
    format!("node {node}: recorded as proof for the recoveries of other nodes; {NOTHING_TO_RELEASE}")
}

/// What a recovery starts with.
struct Considered {
    evidence: Evidence,
    plan: Plan,
    /// Why it has to wait, where the evidence is recorded all the same: it is this node's own proof, which the recoveries
    /// of others may need.
    held: Option<String>,
}

/// What speaks for a recovery, or what against it.
fn consider(
    view: &View<'_>,
    node: &NodeStanding,
    request: &Request,
    policy: &Policy,
    alive: Option<String>,
) -> Result<Considered, End> {
    if let Some(sign) = alive {
        return Err(End::Refused(sign));
    }
    let held = brake::too_many_unreachable(view, policy);
    let mut evidence =
        evidence::find(view, node, request, policy).map_err(|why| End::Refused(held.clone().unwrap_or(why)))?;
    let mut plan = planned(view, node, &evidence, policy).map_err(End::Refused)?;
    if plan.is_empty() {
        if brake::most_unreachable(view).is_none() {
            return Err(End::Refused(format!("node {}: {NOTHING_TO_RELEASE}", node.name)));
        }
        return Ok(Considered { evidence, plan, held: Some(only_proof(&node.name)) });
    }
    let volumes = drivers::unrevoked(view.objects, &plan, policy);
    if !volumes.is_empty() && !evidence.powered_off && view.guards.hold(Guard::PoweredOff) {
        let not_stated = End::PowerOffNotStated { node: node.name.clone(), volumes };
        evidence = evidence::find_powered_off(view, node, request, policy).ok_or(not_stated)?;
        plan = planned(view, node, &evidence, policy).map_err(End::Refused)?;
    }
    match brake::turn(view, node.zone.as_deref(), None, policy) {
        _ if held.is_some() => Ok(Considered { evidence, plan, held }),
        Turn::Held(why) | Turn::Soon(why) => Err(End::Refused(why)),
        Turn::Go => Ok(Considered { evidence, plan, held }),
    }
}

fn planned(view: &View<'_>, node: &NodeStanding, evidence: &Evidence, policy: &Policy) -> Result<Plan, String> {
    let whole = plan(view.objects, view.node, policy).map_err(|e| e.to_string())?;
    if !view.guards.hold(Guard::Covers) {
        return Ok(whole);
    }
    within(view.objects, node, whole, evidence).map_err(|e| e.to_string())
}

/// The record of a recovery that begins; where there is one of the same life, it is taken up again.
fn made(view: &View<'_>, node: &NodeStanding, evidence: Evidence, plan: Plan) -> NodeRecovery {
    let identity = NodeIdentity::of(node);
    let name = identity.record_name();
    let named = record_named(view.objects, &name);
    let before = named.as_ref();
    let fresh = || Map::from_iter([("name".to_owned(), Value::from(name.clone()))]);
    let mut steps = before.map(|b| b.status.steps.clone()).unwrap_or_default();
    steps.push(Took { at: view.now, what: format!("planned: {:?} says that the machine is off", evidence.kind) });
    let mut all = before.map(|b| b.spec.evidence.clone()).unwrap_or_default();
    all.push(evidence);
    // What was collected when the last recovery of this life had ended already may still run there when the node is back.
    // Of one that has ended as Returned its kubelet has said that it runs none of it.
    let plan = match before {
        Some(before) => {
            let undone = before.spec.plan.pods.iter().filter(|_| before.status.phase == Phase::Undone);
            let gone = undone.filter(|pod| follow::object(view.objects, pod).is_none());
            let taken = gone.map(|pod| CondemnedPod { target: Target::Gone, ..pod.clone() });
            continued(plan, &before.spec.plan, taken, false)
        }
        None => plan,
    };
    NodeRecovery {
        api_version: API_VERSION.into(),
        kind: KIND.into(),
        metadata: before.map_or_else(fresh, |b| b.metadata.clone()),
        spec: Spec { node: identity, evidence: all, heard: Heard::of(node), plan, abort: None },
        status: Status { phase: Phase::Planned, steps, ..Status::default() },
    }
}

/// The node is gone, or another has its name. Pods may have outlasted it.
fn void(view: &View<'_>, record: &NodeRecovery) -> Step {
    if let Some(deed) = lowered(view, record) {
        return Step::write(deed);
    }
    let mut record = record.clone();
    record.status.phase = Phase::Void;
    record.status.message = format!("node {} of uid {} is gone", view.node, record.spec.node.uid);
    record.status.steps.push(Took { at: view.now, what: record.status.message.clone() });
    write_record(record)
}

/// The record is written, within the limits of what can be stored.
fn write_record(mut record: NodeRecovery) -> Step {
    limits::bound(&mut record);
    match limits::too_large(&record) {
        None => Step::write(Deed::Record(Box::new(record))),
        Some(why) => Step::refuse(why),
    }
}

/// Why the node must be taken for alive.
pub(crate) fn sign_of_life(node: &NodeStanding, now: Timestamp, guards: Guards) -> Option<String> {
    let name = &node.name;
    if node.readiness == Readiness::Ready && guards.hold(Guard::Silence) {
        return Some(format!("node {name}: its condition Ready is True: its kubelet is alive"));
    }
    if let Some(lease) = node.lease.filter(|lease| lease.is_fresh(now) && guards.hold(Guard::Lease)) {
        return Some(format!(
            "node {name}: lease kube-node-lease/{name} was renewed at {}, which is good for {} s: its kubelet is alive",
            lease.renewed,
            lease.lasts.as_secs()
        ));
    }
    (node.readiness == Readiness::NotReady && guards.hold(Guard::Silence)).then(|| {
        format!(
            "node {name}: its condition Ready is False: its kubelet says so itself, and is alive; once it is silent, the \
             node controller makes that Unknown"
        )
    })
}

/// The pods that are kept from the taint, as long as they are there and nobody deletes them.
fn shields<'a>(view: &'a View<'_>, record: &'a NodeRecovery) -> impl Iterator<Item = (PodSeen<'a>, &'a Shield)> {
    record.spec.plan.left_alone.iter().filter_map(|left| {
        let shield = left.shield.as_ref()?;
        let pod = PodSeen::named(view.objects, &shield.namespace, &shield.name)?;
        (Some(pod.uid()) == left.uid.as_deref() && pod.terminating().is_none()).then_some((pod, shield))
    })
}

/// Takes the first shield down that is still up.
fn lowered(view: &View<'_>, record: &NodeRecovery) -> Option<Deed> {
    shields(view, record).find_map(|(pod, shield)| shield::lower(pod, shield, view.guards))
}

/// A recovery that is under way.
struct Going<'a> {
    view: &'a View<'a>,
    record: &'a NodeRecovery,
    node: NodeStanding,
    request: &'a Request,
    policy: &'a Policy,
}

impl Going<'_> {
    fn next(&self) -> Step {
        let status = &self.record.status;
        let guards = self.view.guards;
        let fence = mark::fence(&self.node, self.record.name());
        let fenced = self.is_marked() || matches!(status.phase, Phase::Fenced | Phase::Released | Phase::Recovered);
        let gone = fenced && self.any_gone();
        let no_way_back = status.no_return_since.is_some() || gone;
        if let Some(over) = mark::over(&self.node, self.record.name()) {
            let gone = over == Over::Fenced && self.any_gone();
            let why = Mark::of(&self.node).and_then(|mark| mark.why);
            return self.close(why.as_deref().unwrap_or("its recovery is over"), no_way_back || gone);
        }
        if self.is_another_life() {
            let why =
                format!("the machine was started anew: its boot id is {}", self.node.boot_id.as_deref().unwrap_or(""));
            return self.close(&why, no_way_back);
        }
        let alive = sign_of_life(&self.node, self.view.now, guards);
        let sign = alive.clone().or_else(|| self.heard());
        let too_late = no_way_back && guards.hold(Guard::NoReturn);
        // A sign of life is not enough where something may still run there that was taken from it.
        let ask =
            (no_way_back || self.record.spec.plan.pods.iter().any(|pod| pod.taken)) && guards.hold(Guard::NoReturn);
        if ask && alive.is_none() && sign.is_some() && self.new_words() {
            return self.renew(status.phase);
        }
        if let Some(sign) = sign.as_deref().filter(|_| !ask) {
            return self.close(sign, no_way_back);
        }
        if !too_late {
            if let Some(abort) = &self.record.spec.abort {
                return self.close(&format!("{} ended it: {}", abort.by, abort.words), false);
            }
            if let Some(abort) = &self.request.abort {
                return self.change(|record| record.spec.abort = Some(abort.clone()));
            }
        }
        if gone && status.no_return_since.is_none() {
            return self.no_way_back();
        }
        if self.request.abort.is_some() {
            let since = status.no_return_since.map(|t| t.to_string()).unwrap_or_default();
            return Step::refuse(format!(
                "node {}: there is no way back since {since}: pods or volumes of it were taken; the taint goes when the node is back",
                self.node.name
            ));
        }
        if sign.is_some() && is_back(&self.node, self.view.now) {
            return self.back(no_way_back);
        }
        match status.phase {
            Phase::Planned | Phase::Held => self.prepare(fence, sign.as_deref()),
            Phase::Fenced => self.free(fence, sign.as_deref()),
            Phase::Released => self.follow(),
            _ => Step { waits: sign.map(|how| self.node_wait(how)).into_iter().collect(), ..Step::end(End::Recovered) },
        }
    }

    /// Whether anything was taken from the node.
    fn any_gone(&self) -> bool {
        follow::any_gone(self.view.objects, &self.node.name, &self.record.spec.plan)
    }

    fn is_marked(&self) -> bool {
        mark::is_marked(&self.node, self.record.name())
    }

    fn is_another_life(&self) -> bool {
        let now = self.node.boot_id.as_deref().unwrap_or_default();
        let then = &self.record.spec.node.boot_id;
        self.view.guards.hold(Guard::Boot) && !now.is_empty() && !then.is_empty() && now != then
    }

    /// What was heard of the node since the evidence was found.
    fn heard(&self) -> Option<String> {
        let later = Heard::of(&self.node) != self.record.spec.heard && self.view.guards.hold(Guard::Heard);
        later
            .then(|| format!("node {}: its kubelet has given a sign of life since this recovery began", self.node.name))
    }

    fn node_wait(&self, how: String) -> Wait {
        Wait { what: format!("node {}", self.node.name), how }
    }

    /// The node is back in the same life: what it ran then may still run.
    fn back(&self, no_way_back: bool) -> Step {
        let why = format!("node {} is back", self.node.name);
        if !self.view.guards.hold(Guard::Return) {
            return self.close(&why, no_way_back);
        }
        let Some(running) = self.view.running else {
            let waits = vec![self.node_wait("back in the same life: its kubelet is asked what it runs".into())];
            return Step { ask_running: true, ..self.say(waits) };
        };
        // What its kubelet runs by an object that nobody deletes is its own again. All else may be what was taken from it.
        let still = follow::strangers(self.view.objects, running);
        let volumes = follow::still_in_use(self.view.objects, &self.node, Some(&self.record.spec.plan));
        if still.is_empty() && !volumes.is_empty() && self.view.guards.hold(Guard::InUse) {
            return Step { ask_running: true, ..self.say(vec![self.node_wait(in_use(&volumes))]) };
        }
        if still.is_empty() {
            return self.close(&format!("{why}, and runs nothing of what was taken from it"), no_way_back);
        }
        let wait = |uid: &str| {
            let pod = self.record.spec.plan.condemned(uid);
            let what = pod.map_or_else(
                || "a pod that is not there any more".into(),
                |p| format!("pod {}/{}", p.namespace, p.name),
            );
            Wait { what, how: format!("uid {uid} still runs on node {}, which is back", self.node.name) }
        };
        Step { ask_running: true, ..self.say(still.into_iter().map(wait).collect()) }
    }

    /// Everything that is ours goes from the node and its pods, and the record is closed.
    fn close(&self, why: &str, no_way_back: bool) -> Step {
        let (record, guards, now) = (self.record, self.view.guards, self.view.now);
        let over = mark::over(&self.node, record.name());
        if over.is_none() && guards.hold(Guard::Bar) {
            // Somebody else may be about to put the taint there, having read all this before: that fails from now on.
            return Step::write(mark::end(&self.node, record, &self.request.who, why, now, guards));
        }
        if !guards.hold(Guard::Bar) && self.is_marked() {
            return Step::write(mark::end(&self.node, record, &self.request.who, why, now, guards));
        }
        if let Some(deed) = lowered(self.view, record) {
            let ended = Mark::of(&self.node).map(|mark| mark.time).filter(|_| over == Some(Over::Fenced));
            if guards.hold(Guard::Shield) && ended.is_some_and(|ended| now.duration_since(ended) < SETTLED) {
                let how = "its taint is gone; its pods stay shielded until every controller must have seen that";
                return self.say(vec![self.node_wait(how.into())]);
            }
            return Step::write(deed);
        }
        let phase = if no_way_back { Phase::Returned } else { Phase::Undone };
        let left = match mark::fence(&self.node, self.record.name()) {
            Fence::Foreign => format!("; the taint {OUT_OF_SERVICE} is somebody else's, and stays"),
            _ => String::new(),
        };
        self.enter(phase, &format!("{why}{left}"))
    }

    fn no_way_back(&self) -> Step {
        let now = self.view.now;
        let collected = |pod: &CondemnedPod| follow::object(self.view.objects, pod).is_none() && !pod.taken;
        let pod = self.record.spec.plan.pods.iter().any(collected);
        let what = if pod { "the first pod was collected" } else { "what it had is being taken from it" };
        self.took(&format!("{what}: there is no way back"), |r| r.status.no_return_since = Some(now))
    }

    /// Before the taint.
    fn prepare(&self, fence: Fence, sign: Option<&str>) -> Step {
        let (record, node, guards) = (self.record, &self.node, self.view.guards);
        // Where it was taken away again, that is for the next phase to find; but not what new evidence has overcome.
        let put = Mark::of(&self.node).filter(|_| self.is_marked()).map(|mark| mark.time);
        if fence == Fence::Ours || put.is_some_and(|put| Some(put) >= record.last_step()) {
            return self.enter(Phase::Fenced, "the taint is there");
        }
        if sign.is_some() {
            return self.say(vec![self.node_wait("it gives signs of life, and is not back yet".into())]);
        }
        if let Some(why) = self.unacceptable() {
            return Step::refuse(why);
        }
        if let Some(evidence) = record.spec.evidence.last().filter(|e| self.is_outdated(e)) {
            return self.find_anew(evidence);
        }
        let held = record.status.phase == Phase::Held;
        match brake::too_many_unreachable(self.view, self.policy) {
            Some(why) if held => return Step::refuse(why),
            Some(why) => return self.enter(Phase::Held, &why),
            None => {}
        }
        if held && record.spec.plan.is_empty() && brake::most_unreachable(self.view).is_some() {
            match self.planned_now() {
                Ok(plan) if plan.is_empty() => return Step::refuse(only_proof(&node.name)),
                Ok(plan) => return self.took("pods or volumes to release were found", |r| r.spec.plan = plan),
                Err(why) => return Step::refuse(why),
            }
        }
        match brake::turn(self.view, node.zone.as_deref(), Some(record.name()), self.policy) {
            Turn::Held(why) if held => return Step::refuse(why),
            Turn::Held(why) => return self.enter(Phase::Held, &why),
            Turn::Soon(how) => return Step::wait(vec![self.node_wait(how)]),
            Turn::Go if held => return self.enter(Phase::Planned, "its turn has come"),
            Turn::Go => {}
        }
        if guards.hold(Guard::Plan) {
            match self.planned_now() {
                Ok(plan) if plan.is_empty() => {
                    let why = "nothing is left there that could be freed";
                    return self.close(why, record.status.no_return_since.is_some());
                }
                Ok(plan) if plan.is_about_the_same(&record.spec.plan) => {}
                Ok(plan) => {
                    let why = "planned anew: the node's pods have changed, or the room for them";
                    return self.took(why, |r| r.spec.plan = plan);
                }
                Err(why) => return Step::refuse(why),
            }
        }
        let mut deeds = shields(self.view, record).filter_map(|(pod, shield)| shield::raise(pod, shield, guards));
        if let Some(deed) = deeds.next().filter(|_| guards.hold(Guard::Shield)) {
            return Step::write(deed);
        }
        if let Some(step) = self.state_power_off().or_else(|| self.delete_before_taint()) {
            return step;
        }
        match fence {
            Fence::Foreign => self.enter(Phase::Fenced, "the taint is there; somebody else has put it there"),
            _ => Step::write(mark::put(node, record, &self.request.who, self.view.now, guards)),
        }
    }

    /// On storage that does not revoke access, nothing is done before the evidence proves that the machine is powered off.
    fn state_power_off(&self) -> Option<Step> {
        let evidence = self.record.spec.evidence.last().filter(|evidence| !evidence.powered_off)?;
        let volumes = drivers::unrevoked(self.view.objects, &self.record.spec.plan, self.policy);
        if volumes.is_empty() || !self.view.guards.hold(Guard::PoweredOff) {
            return None;
        }
        let found = evidence::find_powered_off(self.view, &self.node, self.request, self.policy);
        let better = found.filter(|found| !self.is_outdated(found) && found != evidence);
        Some(match better {
            Some(evidence) => self.took("new evidence proves that the machine is powered off", |record| {
                record.spec.evidence.push(evidence);
            }),
            None => Step::end(End::PowerOffNotStated { node: self.node.name.clone(), volumes }),
        })
    }

    /// On such storage, pods are deleted before the taint is applied. A kubelet never starts a pod that is being deleted, so
    /// a machine that is switched on in the middle of it does not start them again.
    fn delete_before_taint(&self) -> Option<Step> {
        let objects = self.view.objects;
        let there = self.record.spec.plan.pods.iter().filter(|pod| !pod.taken);
        let seen = there.filter_map(|pod| follow::object(objects, pod));
        let mut left = seen.filter(|pod| {
            pod.terminating().is_none() && drivers::has_unrevoked(objects, pod.namespace(), pod.value, self.policy)
        });
        left.next().filter(|_| self.view.guards.hold(Guard::Terminating)).map(|pod| Step::write(self.delete(pod)))
    }

    fn delete(&self, pod: PodSeen<'_>) -> Deed {
        let guards = self.view.guards;
        let held = |guard: Guard, text: &str| if guards.hold(guard) { text.to_owned() } else { String::new() };
        Deed::DeletePod {
            namespace: pod.namespace().into(),
            name: pod.name().into(),
            uid: held(Guard::Uid, pod.uid()),
            resource_version: held(Guard::Uid, pod.resource_version()),
        }
    }

    /// Why the evidence will not do any more: the policy may have become stricter.
    fn unacceptable(&self) -> Option<String> {
        let kind = self.record.spec.evidence.last().map(|evidence| evidence.kind)?;
        (!self.policy.accept.contains(&kind) && self.view.guards.hold(Guard::Evidence)).then(|| {
            format!("node {}: the policy's accept does not list {kind:?}, by which this was begun", self.node.name)
        })
    }

    fn is_outdated(&self, evidence: &Evidence) -> bool {
        self.view.guards.hold(Guard::Words) && self.view.now.duration_since(evidence.said.at) > MAX_EVIDENCE_AGE
    }

    /// Goes on by evidence of now, or not at all.
    fn find_anew(&self, before: &Evidence) -> Step {
        let Said { by, at, .. } = &before.said;
        let found = evidence::find(self.view, &self.node, self.request, self.policy).ok();
        match found.filter(|evidence| !self.is_outdated(evidence)) {
            Some(evidence) => self.took("what proves that the machine is off is looked at anew", |record| {
                record.spec.evidence.push(evidence);
            }),
            None => Step::refuse(format!(
                "node {}: that its machine is off was said by {by} at {at}, and nothing was done since; who begins now has \
                 to make sure again: say --confirm-off \"REASON\", or --abort",
                self.node.name
            )),
        }
    }

    /// The plan as it is made now, of what is left to be done.
    fn planned_now(&self) -> Result<Plan, String> {
        let before = &self.record.spec.plan;
        let evidence = self.record.spec.evidence.last().ok_or("no evidence is recorded")?;
        let plan = planned(self.view, &self.node, evidence, self.policy)?;
        let taken = before.pods.iter().filter(|pod| self.was_taken(pod)).cloned();
        Ok(continued(plan, before, taken, true))
    }

    /// Whether a condemned pod was taken from the node, and is not gone for some other reason.
    fn was_taken(&self, pod: &CondemnedPod) -> bool {
        let collected = self.record.status.no_return_since.is_some();
        pod.taken || (collected && follow::object(self.view.objects, pod).is_none())
    }

    /// The taint is there: pods have to go, and volumes.
    fn free(&self, fence: Fence, sign: Option<&str>) -> Step {
        let (objects, plan) = (self.view.objects, &self.record.spec.plan);
        if fence == Fence::None {
            return self.taint_is_gone();
        }
        let no_execute = self.node.taints.iter().any(|t| t["key"] == OUT_OF_SERVICE && t["effect"] == "NoExecute");
        for pod in plan.pods.iter().filter(|_| sign.is_none()) {
            let Some(seen) = follow::object(objects, pod) else { continue };
            // One that tolerates it for no time at all is evicted when the taints before it say so, be that later.
            let reached = no_execute && !shield::covered(seen.tolerations(), &mark::taint());
            if seen.terminating().is_none() && !reached {
                return Step::write(self.delete(seen));
            }
        }
        let mut waits = follow::pods(objects, plan);
        waits.extend(follow::volumes(objects, &self.node.name, plan));
        if waits.is_empty() {
            return self.enter(Phase::Released, "its pods and volumes are free of it");
        }
        self.say(waits)
    }

    /// Whether somebody has given their word since the last step.
    fn new_words(&self) -> bool {
        self.request.confirm_off.as_ref().is_some_and(|said| Some(said.at) > self.record.last_step())
    }

    /// Goes on by new evidence.
    fn renew(&self, phase: Phase) -> Step {
        let uncovered = |evidence: &Evidence| {
            let plan = &self.record.spec.plan;
            let there = |pod: &&CondemnedPod| follow::object(self.view.objects, pod).is_some();
            let pod = plan.pods.iter().filter(there).find(|pod| !evidence.covers(&pod.uid));
            let volume = plan.volumes.first().filter(|_| evidence.pods.is_some());
            pod.map(|pod| format!("pod {}/{}", pod.namespace, pod.name)).or(volume.map(|v| format!("volume {v}")))
        };
        match evidence::find(self.view, &self.node, self.request, self.policy) {
            Ok(evidence) if self.view.guards.hold(Guard::Covers) && uncovered(&evidence).is_some() => {
                let what = uncovered(&evidence).unwrap_or_default();
                Step::refuse(format!(
                    "node {}: {what}: the evidence ({:?}) does not cover it",
                    self.node.name, evidence.kind
                ))
            }
            Ok(evidence) => self.enter_with(phase, "it goes on, on new evidence", |record| {
                record.spec.evidence.push(evidence);
                record.spec.heard = Heard::of(&self.node);
            }),
            Err(why) => Step::refuse(why),
        }
    }

    /// Somebody has taken the taint away before it had done its work.
    fn taint_is_gone(&self) -> Step {
        if self.new_words() {
            return self.renew(Phase::Planned);
        }
        let why = format!(
            "node {}: somebody has taken the taint {OUT_OF_SERVICE} away before all was free: say --confirm-off again to go \
             on, or --abort",
            self.node.name
        );
        if self.record.status.message != why {
            return self.change(|record| record.status.message.clone_from(&why));
        }
        Step::refuse(why)
    }

    /// Pods and volumes are free: the successors have to be ready.
    fn follow(&self) -> Step {
        let waits = follow::successors(self.view.objects, self.record);
        if waits.is_empty() {
            return self.enter(Phase::Recovered, "all successors are ready; the taint goes when the node is back");
        }
        self.say(waits)
    }

    /// Waits, and has the record say for what; it is written only where that has changed.
    fn say(&self, waits: Vec<Wait>) -> Step {
        let words: Vec<String> = waits.iter().map(|w| format!("{}: {}", w.what, w.how)).collect();
        let message = words.join("; ");
        if self.record.status.message == message {
            return Step::wait(waits);
        }
        Step { waits, ..self.change(|record| record.status.message.clone_from(&message)) }
    }

    fn enter(&self, phase: Phase, why: &str) -> Step {
        self.enter_with(phase, why, |_| {})
    }

    fn enter_with(&self, phase: Phase, why: &str, change: impl FnOnce(&mut NodeRecovery)) -> Step {
        self.took(&format!("{phase:?}: {why}"), |record| {
            record.status.phase = phase;
            record.status.message = why.into();
            change(record);
        })
    }

    fn took(&self, what: &str, change: impl FnOnce(&mut NodeRecovery)) -> Step {
        self.change(|record| {
            record.status.steps.push(Took { at: self.view.now, what: what.into() });
            change(record);
        })
    }

    /// The record, changed; it also learns which pods were being deleted in this life of the machine.
    fn change(&self, change: impl FnOnce(&mut NodeRecovery)) -> Step {
        let mut record = self.record.clone();
        if !self.is_another_life() {
            for pod in &mut record.spec.plan.pods {
                pod.terminating |= follow::object(self.view.objects, pod).is_some_and(|p| p.terminating().is_some());
            }
        }
        change(&mut record);
        write_record(record)
    }
}
