//! The leader's work: collects all reports, decides, writes the record and runs commands.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Event;
use stead_pool::{
    Daemon, DecisionInput, HostName, Note, NoteReason, PeerCommand, PeerId, Record, Report, Severity, decide,
};
use tokio::sync::{mpsc, watch};
use tracing::{debug, info, warn};

use crate::cluster::{NotWritten, PoolObjects, RecordView};
use crate::events::{EventSubject, SentNotes, event};
use crate::leader_clock::LeaderClock;
use crate::other_agents::{self, Answers};
use crate::shared::Shared;
use crate::shutdown::is_scaled_away;

/// The interval of decisions after a change, and for how long it is used.
const CHANGING: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// The interval of decisions while there are warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(5);

/// The interval of decisions otherwise.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);

/// How long an agent does not lead after it found that its glusterd is not in the pool.
const STEP_DOWN_TIME: Duration = Duration::from_secs(10);

/// The size of the event queue; further events are only logged.
const EVENT_QUEUE: usize = 64;

/// Decides while this agent leads, for as long as it is polled.
pub(crate) async fn run(shared: Arc<Shared>) {
    let (events, queue) = mpsc::channel(EVENT_QUEUE);
    tokio::join!(run_rounds(&shared, events), post_events(&shared, queue));
}

async fn run_rounds(shared: &Arc<Shared>, events: mpsc::Sender<Event>) {
    let mut leads = shared.leadership.subscribe();
    let mut leader = Leader { sent_notes: SentNotes::default(), clock: LeaderClock::start(), events };
    let mut previous: Option<Inputs> = None;
    let mut changed = Instant::now();
    loop {
        if leads.has_changed().unwrap_or(true) || !*leads.borrow() {
            if leads.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            leader.clock = LeaderClock::start();
        }
        let mut objects = shared.cluster.objects();
        objects.mark_unchanged();
        let inputs = round(shared, &mut leader).await;
        if previous != inputs {
            changed = Instant::now();
            previous = inputs;
        }
        let whole = !shared.notes().iter().any(|note| note.severity == Severity::Warning);
        let pause = match changed.elapsed() {
            age if age < CHANGING.1 => CHANGING.0,
            _ if whole => IDLE_INTERVAL,
            _ => WARNING_INTERVAL,
        };
        let mut observation = shared.observation.subscribe();
        observation.mark_unchanged();
        let news = async {
            tokio::select! {
                _ = objects.changed() => {}
                _ = observation.wait_for(|observation| observation.changed > changed) => {}
            }
            // Many changes come at once; one decision is enough for them.
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = news => {}
            _ = leads.wait_for(|leads| !*leads) => {}
        }
    }
}

/// The inputs and results of a decision, to see whether anything has changed.
#[derive(Debug, PartialEq)]
struct Inputs {
    objects: PoolObjects,
    reports: BTreeMap<u32, Report>,
    record: Option<Record>,
    act: Option<PeerCommand>,
}

/// The state of the leader between two decisions.
struct Leader {
    sent_notes: SentNotes,
    clock: LeaderClock,
    events: mpsc::Sender<Event>,
}

/// Makes and carries out one decision. Returns none if too little is known.
async fn round(shared: &Arc<Shared>, leader: &mut Leader) -> Option<Inputs> {
    let objects = shared.cluster.objects().borrow().clone();
    if let Some(RecordView::Unreadable(why)) = &objects.record {
        let text = format!("the record {} cannot be read, so nothing is done: {why}", shared.settings.record());
        let note = Note { ordinal: None, reason: NoteReason::RecordUnreadable, text, severity: Severity::Warning };
        leader.publish_new(shared, std::slice::from_ref(&note));
        shared.set_notes(vec![note]);
        return None;
    }
    let (wanted, record, pods) = (shared.cluster.wanted()?, objects.record()?, objects.pods.as_ref()?);
    let own = shared.settings.pod.ordinal;
    let (answers, report) = tokio::join!(other_agents::ask_all(shared, &objects), shared.fresh(Duration::from_secs(3)));
    let Answers { mut reports, rejected } = answers;
    reports.insert(own, report);
    shared.metrics.decided(pods.len().saturating_sub(reports.len()));
    let pods: BTreeMap<u32, String> = pods.iter().map(|(ordinal, pod)| (*ordinal, pod.uid.clone())).collect();
    let now = leader.clock.now();
    let record = leader.clock.adjust(record, now);
    let view = DecisionInput { wanted: &wanted, record: &record, reports: &reports, pods: &pods, decider: own, now };
    let mut decision = decide(&view);
    decision.notes.extend(rejected.iter().map(|(ordinal, why)| Note {
        ordinal: Some(*ordinal),
        reason: NoteReason::ReportRejected,
        text: format!("the report of {} is rejected: {why}", wanted.pod(*ordinal)),
        severity: Severity::Warning,
    }));
    debug!(act = ?decision.act, writes = decision.record.is_some(), notes = decision.notes.len(), "decided");
    let inputs = Inputs { objects, record: decision.record.clone(), act: decision.act.clone(), reports };
    shared.set_notes(decision.notes.clone());
    if decision.step_down {
        leader.publish_new(shared, &decision.notes);
        info!("stepping down: this glusterd is not in the pool");
        shared.declines_until.send_replace(Some(Instant::now() + STEP_DOWN_TIME));
        return Some(inputs);
    }
    if let Some(new) = &decision.record {
        if time_left(shared).is_none() {
            return Some(inputs);
        }
        match shared.cluster.write_record(new, wanted.start, inputs.objects.record.as_ref()).await {
            Ok(()) => {}
            Err(NotWritten::Outdated) => {
                debug!("the record has changed: deciding again");
                return Some(inputs);
            }
            Err(NotWritten::Failed(why)) => {
                warn!("writing the record {}: {why}", shared.settings.record());
                return Some(inputs);
            }
        }
    }
    // Published only after the record is written: if the write fails, another agent may have decided otherwise.
    leader.publish_new(shared, &decision.notes);
    if let Some(act) = &decision.act
        && time_left(shared).is_some()
    {
        perform(shared, leader, act).await;
    }
    Some(inputs)
}

/// Returns the time left for an action that starts now, before another agent may lead; none if nothing may be started.
fn time_left(shared: &Shared) -> Option<Duration> {
    let left = shared.leadership.allows(shared.clock.now());
    if left.is_none() {
        debug!("not the leader any more: nothing is done");
    }
    left
}

async fn perform(shared: &Arc<Shared>, leader: &Leader, act: &PeerCommand) {
    let (ordinal, name, done, failed, host, uuid) = match act {
        PeerCommand::Probe { ordinal, host, uuid } => {
            (*ordinal, "probe", NoteReason::Probed, NoteReason::ProbeFailed, host, *uuid)
        }
        PeerCommand::Detach { ordinal, host, uuid } => {
            (*ordinal, "detach", NoteReason::Detached, NoteReason::DetachFailed, host, *uuid)
        }
    };
    // Checked again: the pod may have another identity by now, or be wanted again.
    let as_decided = match act {
        PeerCommand::Probe { .. } => has_identity(shared, ordinal, uuid).await,
        PeerCommand::Detach { .. } => is_known_as(shared, host, uuid).await && has_left(shared, ordinal).await,
    };
    if !as_decided {
        return debug!("{host} is not {uuid} any more, or is wanted again: no peer {name}");
    }
    let Some(limit) = time_left(shared) else { return };
    info!("peer {name} {host}");
    let result = shared.gluster.act(act, limit).await;
    shared.metrics.acted(name, result.is_ok());
    let note = match result {
        Ok(()) => Note {
            ordinal: Some(ordinal),
            reason: done,
            text: format!("peer {name} {host}: done"),
            severity: Severity::Normal,
        },
        Err(error) => {
            warn!("{error:#}");
            Note { ordinal: Some(ordinal), reason: failed, text: format!("{error:#}"), severity: Severity::Warning }
        }
    };
    publish(shared, &leader.events, &note);
    shared.nudge.notify_one();
}

/// Whether the pod with this ordinal still has this identity, according to its agent.
async fn has_identity(shared: &Arc<Shared>, ordinal: u32, uuid: PeerId) -> bool {
    let mut objects = shared.cluster.objects().borrow().clone();
    objects.pods = objects.pods.map(|pods| pods.into_iter().filter(|(other, _)| *other == ordinal).collect());
    let reports = other_agents::ask_all(shared, &objects).await.reports;
    reports.get(&ordinal).is_some_and(|report| report.uuid == Some(uuid))
}

/// Whether the pod with this ordinal is not wanted, according to the StatefulSet read now.
async fn has_left(shared: &Arc<Shared>, ordinal: u32) -> bool {
    shared.cluster.fetch_wanted().await.is_some_and(|wanted| is_scaled_away(&wanted, ordinal))
}

/// Whether this pod's glusterd still knows this identity by this name.
async fn is_known_as(shared: &Arc<Shared>, host: &HostName, uuid: PeerId) -> bool {
    match shared.gluster.peers().await {
        Ok(peers) => peers.iter().any(|peer| peer.uuid == Some(uuid) && peer.hosts.contains(host)),
        Err(error) => {
            debug!("{error:#}");
            false
        }
    }
}

impl Leader {
    /// Logs the new notes and creates events for them.
    fn publish_new(&mut self, shared: &Shared, notes: &[Note]) {
        for note in self.sent_notes.new_notes(notes) {
            publish(shared, &self.events, note);
        }
    }
}

/// Logs a note and queues an event for it.
fn publish(shared: &Shared, events: &mpsc::Sender<Event>, note: &Note) {
    match note.severity {
        Severity::Normal => info!(reason = %note.reason, pod = note.ordinal, "{}", note.text),
        Severity::Warning => warn!(reason = %note.reason, pod = note.ordinal, "{}", note.text),
    }
    let settings = &shared.settings;
    let ordinal = note.ordinal.unwrap_or(settings.pod.ordinal);
    let pod = format!("{}-{ordinal}", settings.pool);
    let uid =
        shared.cluster.objects().borrow().pods.as_ref().and_then(|pods| pods.get(&ordinal)).map(|pod| pod.uid.clone());
    let about = EventSubject { namespace: &settings.namespace, pod: &pod, uid: uid.as_deref() };
    let now = jiff::Timestamp::now();
    let number = u128::try_from(now.as_nanosecond()).unwrap_or_default();
    if let Err(error) = events.try_send(event(&about, &settings.pod.name, note, now, number)) {
        debug!("event {}: {error}", note.reason);
    }
}

/// Sends queued events to the API server, in order.
async fn post_events(shared: &Shared, mut queue: mpsc::Receiver<Event>) {
    while let Some(event) = queue.recv().await {
        if let Err(error) = shared.cluster.event(&event).await {
            debug!("event {:?}: {error}", event.reason);
        }
    }
}

/// Keeps up to date whether this agent is a candidate: its glusterd answers, it can verify the others' reports, and it
/// was not recently found to be outside the pool.
pub(crate) async fn update_candidacy(shared: Arc<Shared>, candidacy: watch::Sender<bool>) {
    let (mut observation, mut declines_until) = (shared.observation.subscribe(), shared.declines_until.subscribe());
    let mut keys = shared.cluster.keys();
    loop {
        let running = observation.borrow_and_update().report.daemon == Daemon::Running;
        let until = *declines_until.borrow_and_update();
        let no_key = shared.settings.key_secret.is_some() && keys.borrow_and_update().missing().is_some();
        let is_candidate = running && !no_key && until.is_none_or(|until| until <= Instant::now());
        candidacy.send_if_modified(|before| std::mem::replace(before, is_candidate) != is_candidate);
        let again = until.map_or(Duration::from_secs(3600), |until| until.saturating_duration_since(Instant::now()));
        tokio::select! {
            () = tokio::time::sleep(again.max(Duration::from_millis(100))) => {}
            _ = observation.changed() => {}
            _ = declines_until.changed() => {}
            _ = keys.changed() => {}
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Mutex;

    use axum::Json;
    use axum::http::{Method, StatusCode, Uri};
    use serde_json::json;
    use stead_election::{ElectionRole, Term};

    use crate::cluster::{PoolPodView, StatefulSetView};
    use crate::test_agent::{B, B_HOST, TestAgent, name};

    use super::*;

    type Asked = Arc<Mutex<Vec<String>>>;

    /// A fake API server that accepts or rejects all writes, and has a StatefulSet with this many replicas.
    async fn api(writes: bool, replicas: u32) -> (String, Asked) {
        let asked = Asked::default();
        let log = asked.clone();
        let answer = move |method: Method, uri: Uri| async move {
            let kind = ["configmaps", "events", "statefulsets"].into_iter().find(|kind| uri.path().contains(kind));
            log.lock().unwrap().push(format!("{method} {}", kind.unwrap_or_default()));
            match method {
                Method::GET => (StatusCode::OK, Json(json!({"spec": {"replicas": replicas}}))),
                _ if writes => (StatusCode::CREATED, Json(json!({"metadata": {"resourceVersion": "2"}}))),
                _ => {
                    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "it exists", "reason": "Conflict", "code": 409});
                    (StatusCode::CONFLICT, Json(status))
                }
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        (address, asked)
    }

    fn leader(agent: &TestAgent) -> (Leader, mpsc::Receiver<Event>) {
        agent.shared.leadership.set(ElectionRole::Leader(Term::Endless));
        let (events, queue) = mpsc::channel(EVENT_QUEUE);
        (Leader { sent_notes: SentNotes::default(), clock: LeaderClock::start(), events }, queue)
    }

    fn objects(replicas: u32) -> PoolObjects {
        PoolObjects {
            set: Some(StatefulSetView { replicas, start: 0, selector: String::new() }),
            pods: Some([(0, PoolPodView { uid: "uid".into(), address: "10.0.0.1".into(), signs: true })].into()),
            record: Some(RecordView::Absent),
        }
    }

    #[tokio::test]
    async fn events_are_created_after_the_record_is_written() {
        for (writes, events) in [(true, 1), (false, 0)] {
            let (address, asked) = api(writes, 1).await;
            let agent = TestAgent::new(&format!("events-{writes}"), &address, None, objects(1)).await;
            let (mut leader, mut queue) = leader(&agent);
            assert!(round(&agent.shared, &mut leader).await.is_some_and(|inputs| inputs.record.is_some()));
            // The notes are available on the page, whether the record was written or not.
            assert_eq!(agent.shared.notes().iter().map(|note| note.reason).collect::<Vec<_>>(), [NoteReason::Founded]);
            assert_eq!((asked.lock().unwrap().clone(), queue.len()), (vec!["POST configmaps".to_owned()], events));
            queue.close();
            post_events(&agent.shared, queue).await;
            assert_eq!(asked.lock().unwrap().len(), 1 + events);
        }
    }

    #[tokio::test]
    async fn a_pod_that_is_wanted_again_is_not_detached() {
        for (replicas, detached) in [(2, false), (1, true)] {
            let (address, asked) = api(true, replicas).await;
            let agent = TestAgent::new(&format!("detach-{replicas}"), &address, Some(3), objects(1)).await;
            let (leader, _queue) = leader(&agent);
            perform(&agent.shared, &leader, &PeerCommand::Detach { ordinal: 1, host: name(B_HOST), uuid: name(B) })
                .await;
            assert_eq!(
                agent.gluster_commands().contains("peer detach"),
                detached,
                "{replicas}: {}",
                agent.gluster_commands()
            );
            assert_eq!(asked.lock().unwrap().clone(), ["GET statefulsets"]);
        }
    }
}
