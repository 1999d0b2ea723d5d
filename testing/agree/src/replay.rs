//! The same run in the simulation: it starts from the snapshot, and gets the same actions at the same times.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_kubectl::KubectlCommand;
use stead_model::KubernetesVersion;
use stead_sim::{
    Behaviour, Choices, DeleteOptions, DriverState, Happening, Machine, MachineState, ObjectKind, Settings, SimKey,
    SimObject, Simulation, StorageSettings, Workload, World, Write,
};
use stead_whatif::{Manifests, execute};

use crate::answers::{answers, reaction};
use crate::history::History;
use crate::observation::{EventFacts, Observation, Observer};
use crate::recording::{Deed, Downtime, Header, Recording, What};

/// What the simulation made of a recording.
#[derive(Debug)]
pub struct Replay {
    /// What was observed in the recording.
    pub real: Vec<Observation>,
    /// What was observed in the simulation.
    pub simulated: Vec<Observation>,
    /// The recorded choices that the simulation does not consider possible.
    pub impossible: Vec<String>,
    /// The pods that were ready at the end of the recording and never are in the simulation.
    pub wrong_never: Vec<String>,
}

/// How long the simulation is followed after the end of the recording before a pod counts as never ready.
const NEVER: SignedDuration = SignedDuration::from_hours(2);

/// Replays a recording.
pub fn replay(recording: &Recording) -> Result<Replay, String> {
    let history = History::of(recording);
    let mut simulation = start(recording, &history)?;
    let mut observer = primed(recording);
    let mut deeds = 0;
    for moment in &recording.moments {
        let What::Did { deed, .. } = &moment.what else { continue };
        run_until(&mut simulation, recording.header.time(moment.at))?;
        let refused = perform(&mut simulation, deed);
        observe(&mut simulation, &recording.header, &mut observer);
        deeds += 1;
        observer.request(moment.at, deeds, deed, refused.as_deref());
    }
    run_until(&mut simulation, recording.header.time(recording.header.length))?;
    observe(&mut simulation, &recording.header, &mut observer);
    let impossible = simulation.choices().impossible().iter().map(ToString::to_string).collect();
    let wrong_never = wrong_never(&history, simulation);
    Ok(Replay { real: real(recording, &history), simulated: observer.finish(), impossible, wrong_never })
}

fn run_until(simulation: &mut Simulation, at: Timestamp) -> Result<(), String> {
    simulation.run_until(at).map_err(|error| error.to_string())
}

/// What was observed in a recording.
fn real(recording: &Recording, history: &History) -> Vec<Observation> {
    let mut observer = primed(recording);
    for change in &history.changes {
        let at = seconds(change.at);
        match change.kind() {
            "Event" => {
                if let Some(event) = change.after.as_ref() {
                    real_event(at, event, change.before.as_ref(), &mut observer);
                }
            }
            _ => observer.object(at, change.latest(), change.after.is_none()),
        }
    }
    let mut deeds = 0;
    for moment in &recording.moments {
        if let What::Did { deed, refused, .. } = &moment.what {
            deeds += 1;
            observer.request(moment.at, deeds, deed, refused.as_deref());
        }
    }
    observer.finish()
}

fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

/// An observer that knows the snapshot.
fn primed(recording: &Recording) -> Observer {
    let mut observer = Observer::default();
    for object in &recording.snapshot {
        match object["kind"].as_str() {
            Some("Event") => real_event(0.0, object, None, &mut observer),
            _ => observer.object(0.0, object, false),
        }
    }
    observer.begin();
    observer
}

fn real_event(at: f64, event: &Value, before: Option<&Value>, observer: &mut Observer) {
    let about = &event["involvedObject"];
    let field = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let name = match about["namespace"].as_str().filter(|_| about["kind"] != "Node") {
        Some(namespace) => format!("{namespace}/{}", field(about, "name")),
        None => field(about, "name"),
    };
    // Only the first report of a text is compared: how often it is repeated depends on fractions of a second.
    if before.is_some_and(|before| before["message"] == event["message"]) {
        return;
    }
    let (reason, message, kind) = (field(event, "reason"), field(event, "message"), field(event, "type"));
    let about = format!("{} {name}", field(about, "kind").to_lowercase());
    observer.event(at, &EventFacts { about: &about, reason: &reason, message: &message, kind: &kind });
}

/// Takes over what happened in the simulation.
fn observe(simulation: &mut Simulation, header: &Header, observer: &mut Observer) {
    for (at, happening) in simulation.take_journal() {
        let at = at.duration_since(header.began).as_secs_f64();
        match happening {
            Happening::Reported(event) => {
                let kind = if event.note.warning { "Warning" } else { "Normal" };
                let about = event.note.about.to_string();
                let (reason, message) = (event.note.reason, event.note.message.as_str());
                observer.event(at, &EventFacts { about: &about, reason, message, kind });
            }
            Happening::Changed(change) => {
                let mut object = change.latest().to_json();
                remove_nulls(&mut object);
                observer.object(at, &object, change.after.is_none());
            }
        }
    }
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// The simulation at the time of the snapshot.
fn start(recording: &Recording, history: &History) -> Result<Simulation, String> {
    let header = &recording.header;
    let objects: Result<Vec<SimObject>, String> = recording
        .snapshot
        .iter()
        .map(|object| SimObject::from_json(object).map_err(|error| error.to_string()))
        .collect();
    let mut settings = settings(header);
    if let Some(millis) = reaction(history) {
        settings.timers.reaction = SignedDuration::from_millis(millis);
    }
    let world = world(recording, &settings);
    let mut simulation =
        Simulation::resume(header.began, settings, Choices::recorded(answers(recording, history)), objects?, world);
    for (volume, message) in &header.detach_errors {
        set_detach_error(&mut simulation, volume, Some(message));
    }
    if header.jobs_fail {
        fail_jobs(&mut simulation, recording);
    }
    simulation.follow();
    Ok(simulation)
}

/// The timers and delays of the recording.
fn settings(header: &Header) -> Settings {
    let seconds = |seconds: f64| SignedDuration::try_from_secs_f64(seconds).unwrap_or_default();
    let mut settings = Settings::of(KubernetesVersion::default()).with_stand_ins();
    let cluster = &header.cluster;
    settings.storage = StorageSettings::stand_in();
    settings.kubelet.lease_period = seconds(cluster.heartbeat_seconds);
    settings.workload.start = seconds(cluster.start_seconds);
    settings.workload.ready = seconds(cluster.ready_seconds);
    settings.workload.stop = seconds(cluster.stop_seconds);
    settings.workload.job = seconds(cluster.job_seconds);
    settings.timers.pod_gc_run = header.pod_gc_run;
    if !header.real_timers {
        settings.timers.node_monitor_grace = seconds(8.0);
        settings.timers.node_monitor_period = seconds(0.5);
        settings.timers.default_toleration = seconds(30.0);
        settings.timers.force_detach = Some(seconds(36.0));
        settings.timers.attach_detach_populator = seconds(6.0);
    }
    for (driver, message) in &header.driver_errors {
        settings.storage.drivers.entry(driver.clone()).or_default().state = failing(message);
    }
    settings
}

fn failing(message: &str) -> DriverState {
    DriverState::Failing { message: message.to_owned(), reschedule: false }
}

/// The machines: whether they report is known, and when they renewed their Leases.
fn world(recording: &Recording, settings: &Settings) -> World {
    let mut world = World::default();
    let leases: BTreeMap<&str, Timestamp> = recording
        .snapshot
        .iter()
        .filter(|object| object["kind"] == "Lease")
        .filter_map(|lease| {
            Some((lease["metadata"]["name"].as_str()?, lease["spec"]["renewTime"].as_str()?.parse().ok()?))
        })
        .collect();
    for node in &recording.header.cluster.nodes {
        let state = match recording.header.down.get(&node.name) {
            None => MachineState::Running,
            Some(Downtime::Suspended) => MachineState::Suspended,
            Some(Downtime::Off) => MachineState::Off,
        };
        let now = recording.header.began;
        let renewed = leases.get(node.name.as_str()).copied().unwrap_or(now).min(now);
        let lease_phase = match state {
            // The last period that has begun.
            MachineState::Running => {
                let periods = now.duration_since(renewed).as_nanos() / settings.kubelet.lease_period.as_nanos().max(1);
                renewed + settings.kubelet.lease_period * i32::try_from(periods).unwrap_or_default()
            }
            _ => renewed,
        };
        world.set_machine(&node.name, Machine { state, since: renewed, boots: 0, lease_phase });
    }
    world
}

/// The containers of all Jobs fail.
fn fail_jobs(simulation: &mut Simulation, recording: &Recording) {
    let workload = Workload { behaviour: Behaviour::FailsWith(1), ..Workload::default() };
    for object in &recording.snapshot {
        let kind = match object["kind"].as_str() {
            Some("Job") => ObjectKind::Job,
            Some("CronJob") => ObjectKind::CronJob,
            _ => continue,
        };
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = SimKey::new(kind, text("namespace"), text("name"));
        simulation.change_world(|world, _| world.set_workload(key, workload.clone()));
    }
}

fn set_detach_error(simulation: &mut Simulation, volume: &str, message: Option<&str>) {
    simulation.change_world(|world, now| {
        let mut disk = world.disk(volume).cloned().unwrap_or_default();
        disk.detach_error = message.map(str::to_owned);
        world.set_disk(volume, disk, now);
    });
}

/// Does the same in the simulation. Gives why it was refused.
fn perform(simulation: &mut Simulation, deed: &Deed) -> Option<String> {
    match deed {
        Deed::Kubectl { line, input } => {
            let command = match KubectlCommand::parse(line) {
                Ok(command) => command,
                Err(error) => return Some(error.to_string()),
            };
            let mut manifests = Manifests::default();
            manifests.add("-", input.iter().cloned());
            execute(simulation, &command, &manifests).err().map(|error| error.to_string())
        }
        Deed::Evict { namespace, pod } => {
            let write = Write::Evict(SimKey::pod(namespace, pod), DeleteOptions::default());
            simulation.request(write).err().map(|error| error.to_string())
        }
        Deed::Fail { node, how } => {
            let state = if *how == Downtime::Off { MachineState::Off } else { MachineState::Suspended };
            simulation.fail(node, state).err().map(|error| error.to_string())
        }
        Deed::Heal { node } => simulation.heal(node).err().map(|error| error.to_string()),
        Deed::DetachError { volume, message } => {
            set_detach_error(simulation, volume, message.as_deref());
            None
        }
        Deed::DriverError { driver, message } => {
            simulation.set_driver(driver, message.as_deref().map_or(DriverState::Working, failing));
            None
        }
    }
}

/// The pods that were ready at the end of the recording, and never are in the simulation.
fn wrong_never(history: &History, mut simulation: Simulation) -> Vec<String> {
    let is_ready = |pod: &Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|condition| condition["type"] == "Ready").any(|condition| condition["status"] == "True")
    };
    // Pods of a ReplicaSet have no identity: one of them is as good as any other.
    let group = |pod: &Value| match pod["metadata"]["generateName"].as_str() {
        Some(prefix) => prefix.to_owned(),
        None => pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
    };
    let counted = |pods: &mut dyn Iterator<Item = Value>| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        pods.filter(|pod| pod["kind"] == "Pod" && is_ready(pod))
            .for_each(|pod| *counts.entry(group(&pod)).or_default() += 1);
        counts
    };
    let real = counted(&mut history.end.values().cloned());
    let until = simulation.now() + NEVER;
    let missing = |simulation: &Simulation| -> Vec<String> {
        let pods = simulation.store().of_kind(ObjectKind::Pod).map(|(_, pod)| {
            let mut pod = pod.to_json();
            pod["kind"] = json!("Pod");
            pod
        });
        let simulated = counted(&mut pods.collect::<Vec<_>>().into_iter());
        let lacks = |(group, count): (&String, &usize)| {
            (simulated.get(group).copied().unwrap_or_default() < *count).then(|| group.clone())
        };
        real.iter().filter_map(lacks).collect()
    };
    if missing(&simulation).is_empty() {
        return Vec::new();
    }
    while simulation.now() < until && simulation.next_at().is_some() {
        if let Err(error) = simulation.run_for(SignedDuration::from_secs(60)) {
            return vec![error.to_string()];
        }
        if missing(&simulation).is_empty() {
            return Vec::new();
        }
    }
    missing(&simulation)
}
