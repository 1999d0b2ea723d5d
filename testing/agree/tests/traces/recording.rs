//! A recording, and the same in the simulation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_agree::{Observation, single};
use stead_kubectl::KubectlCommand;
use stead_sim::{Choices, Happening, MachineSpec, MachineState, Question, RecordedAnswers, Settings, Simulation};
use stead_whatif::{Manifests, execute};

use crate::scripts::{Act, Doing};

/// The lines of a recording, without the marks of steps.
pub(crate) struct Recording {
    lines: Vec<Value>,
}

/// The nodes and their zones.
const NODES: [(&str, &str); 7] = [
    ("master-0", "zoneA"),
    ("master-1", "zoneB"),
    ("master-2", "zoneC"),
    ("worker-0", "zoneA"),
    ("worker-1", "zoneB"),
    ("worker-2", "zoneC"),
    ("worker-3", "zoneA"),
];

impl Recording {
    pub(crate) fn read(name: &str) -> Recording {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/traces");
        let text = std::fs::read_to_string(folder.join(format!("{name}.jsonl"))).expect("the recording");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        Recording { lines: lines.filter(|line| line["t"].is_number()).collect() }
    }

    /// The time of the last line.
    pub(crate) fn end(&self) -> f64 {
        self.lines.last().and_then(|line| line["t"].as_f64()).unwrap_or_default()
    }

    /// What was recorded.
    pub(crate) fn observations(&self) -> Vec<Observation> {
        let names = volume_names(&self.lines);
        let lines = self.lines.iter().filter_map(|line| observation(line, &names));
        without_repeats(lines)
    }

    /// What depended on fractions of a second: the order of scheduling, who saw what first, how long a stand-in took.
    fn add_races(&self, answers: &mut RecordedAnswers) {
        self.scheduling_order().into_iter().for_each(|pod| answers.add(Question::NextPod, pod));
        let (mut waited, mut tainted, mut unknown) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut running, mut failed): (BTreeMap<&str, f64>, BTreeMap<&str, f64>) = Default::default();
        for line in &self.lines {
            let text = |field: &str| line[field].as_str().unwrap_or_default();
            let (at, on, message) = (line["t"].as_f64().unwrap_or_default(), text("on"), single(text("message")));
            match text("event") {
                "WaitForFirstConsumer" => drop(waited.insert(on)),
                reason if on.starts_with("PersistentVolumeClaim/") && waited.insert(on) => {
                    let claim = format!("openstack/{}", on.trim_start_matches("PersistentVolumeClaim/"));
                    let seen = if reason == "WaitForPodScheduled" { "yes" } else { "selected" };
                    answers.add(Question::LateClaim { claim }, seen);
                }
                "SuccessfulDelete" => {
                    let pod = message.strip_prefix("Delete Pod ").and_then(|rest| rest.split(' ').next());
                    if let Some(pod) = pod.filter(|pod| failed.get(pod).is_some_and(|since| at - since < 1.0)) {
                        answers.add(Question::CollectedByOwner { pod: format!("default/{pod}") }, "yes");
                    }
                }
                _ => {}
            }
            match (text("status"), text("ready")) {
                ("Running", "0/1") => drop(running.insert(text("pod"), at)),
                ("Running", "1/1") => {
                    if let Some(since) = running.remove(text("pod")) {
                        let question =
                            Question::StandInDelay { pod: format!("default/{}", text("pod")), stage: "ready" };
                        answers.add(question, format!("{:.0}", (at - since) * 1000.0));
                    }
                }
                ("Failed", _) => drop(failed.insert(text("pod"), at)),
                _ => {}
            }
            let Some(node) = line["node"].as_str().filter(|_| line["taints"].is_array()) else { continue };
            let is_unknown = line["ready"][0] == "Unknown";
            if is_unknown {
                unknown.insert(node)
            } else {
                unknown.remove(node)
            };
            let lost = json!(["node.kubernetes.io/unreachable", "NoExecute"]);
            if !line["taints"].as_array().into_iter().flatten().any(|taint| *taint == lost) {
                tainted.remove(node);
            } else if tainted.insert(node) {
                answers.add(Question::TaintedNode { zone: String::new() }, node);
                // More than 55 % of the nodes: the pass that finds that stops the zone.
                if unknown.len() * 100 >= NODES.len() * 55 {
                    answers.add(Question::TaintDuringPass { zone: String::new() }, "yes");
                }
            }
        }
    }

    /// The pods in the order of their creation, which is the one of their scheduling.
    fn scheduling_order(&self) -> Vec<String> {
        let scheduled = self.lines.iter().filter(|line| line["event"] == "Scheduled");
        let names = scheduled.filter_map(|line| line["message"].as_str()?.strip_prefix("Successfully assigned "));
        // Only these events tell the namespace of a pod.
        let full_names: BTreeMap<&str, &str> = names
            .filter_map(|text| text.split_once(" to "))
            .filter_map(|(pod, _)| Some((pod.split_once('/')?.1, pod)))
            .collect();
        let (mut known, mut order) = (BTreeSet::new(), Vec::new());
        for (line, pod) in self.lines.iter().filter_map(|line| Some((line, line["pod"].as_str()?))) {
            if line["status"] == "(gone)" {
                known.remove(pod);
            } else if known.insert(pod) {
                order.extend(full_names.get(pod).map(|name| (*name).to_owned()));
            }
        }
        order
    }

    /// What the real components chose: nodes, suffixes of names, hashes of templates.
    fn answers(&self) -> RecordedAnswers {
        let mut answers = RecordedAnswers::default();
        let mut hashes: Vec<String> = Vec::new();
        self.add_races(&mut answers);
        for line in self.lines.iter().filter(|line| line["event"].is_string()) {
            let message = line["message"].as_str().unwrap_or_default();
            match line["event"].as_str() {
                Some("Scheduled") => {
                    if let Some((pod, node)) =
                        message.strip_prefix("Successfully assigned ").and_then(|rest| rest.split_once(" to "))
                    {
                        answers.add(Question::Node { pod: pod.into() }, node);
                    }
                }
                Some("SuccessfulCreate") => {
                    let name = message.strip_prefix("Created pod: ").and_then(|name| name.rsplit_once('-'));
                    if let Some((set, suffix)) = name {
                        answers.add(Question::NameSuffix { prefix: format!("default/{set}-") }, suffix);
                        let (workload, hash) = set.rsplit_once('-').expect("the name of a ReplicaSet");
                        if !hashes.iter().any(|known| known == hash) {
                            hashes.push(hash.to_owned());
                            let workload = format!("deployment default/{workload}");
                            answers.add(Question::TemplateHash { workload }, hash);
                        }
                    }
                }
                _ => {}
            }
        }
        answers
    }
}

/// Volumes by the pod that they were first attached for: they are named after random UIDs.
fn volume_names(lines: &[Value]) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for line in lines.iter().filter(|line| line["event"] == "SuccessfulAttachVolume") {
        let volume = line["message"].as_str().and_then(|text| text.split('"').nth(1)).unwrap_or_default();
        let pod = line["on"].as_str().unwrap_or_default();
        let pod = pod.strip_prefix("Pod/").unwrap_or(pod);
        names.entry(volume.to_owned()).or_insert_with(|| format!("<volume of {pod}>"));
    }
    names
}

fn stable(text: &str, names: &BTreeMap<String, String>) -> String {
    let text = names.iter().fold(text.to_owned(), |text, (name, stable)| text.replace(name, stable));
    // Events about several volumes of one pod are equal but for the volume.
    text.trim_end().to_owned()
}

/// A line of a recording as an observation.
fn observation(line: &Value, names: &BTreeMap<String, String>) -> Option<Observation> {
    let at = line["t"].as_f64()?;
    let (subject, state) = if let Some(pod) = line["pod"].as_str() {
        let state = json!([line["ready"], line["status"], line["node"], line["why"], line["disruption"]]);
        (format!("pod {pod}"), state)
    } else if let Some(volume) = line["attachment"].as_str() {
        let state = json!([line["attached"], line["gone"], line["deleting"], line["error"]]);
        (format!("attachment {} {}", stable(volume, names), line["node"].as_str()?), state)
    } else if let Some(reason) = line["event"].as_str() {
        let (on, message) = (line["on"].as_str()?, stable(single(line["message"].as_str()?), names));
        (format!("event {on} {reason} {message}"), json!("reported"))
    } else {
        let mut taints: Vec<Value> = line["taints"].as_array()?.clone();
        taints.sort_by_key(ToString::to_string);
        (format!("node {}", line["node"].as_str()?), json!([line["ready"], taints]))
    };
    Some(Observation { at, subject, state })
}

fn without_repeats(observations: impl Iterator<Item = Observation>) -> Vec<Observation> {
    let mut last: BTreeMap<String, Value> = BTreeMap::new();
    let mut out = Vec::new();
    for observation in observations {
        let before = last.insert(observation.subject.clone(), observation.state.clone());
        // The first seconds of a recording are those of the control plane's own start.
        if before.as_ref() != Some(&observation.state) && observation.at > 5.0 {
            out.push(observation);
        }
    }
    out
}

/// The times of the stand-in nodes of the recordings.
fn settings() -> Settings {
    let seconds = SignedDuration::from_secs;
    let mut settings = Settings::default().with_stand_ins();
    settings.kubelet.lease_period = seconds(4);
    // A stand-in starts a pod before it has reported the volumes as in use, so the report does not delay it.
    settings.kubelet.status_period = SignedDuration::ZERO;
    // A stand-in that goes on reports at its next beat.
    settings.kubelet.resume = seconds(3);
    settings.storage = stead_sim::StorageSettings::stand_in();
    settings
}

/// Plays a script in the simulation, with the choices of the recording. Gives what was observed, and the choices that were
/// not possible.
pub(crate) fn play(recording: &Recording, script: &[Act]) -> (Vec<Observation>, Vec<String>) {
    let began: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let mut simulation = Simulation::new(began, settings(), Choices::recorded(recording.answers()));
    for driver in [("topolvm.io", false), ("cinder.csi.openstack.org", true)] {
        let object = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": driver.0 },
            "spec": { "attachRequired": driver.1 } });
        create(&mut simulation, &object);
    }
    for (name, zone) in NODES {
        let spec = MachineSpec::named(name)
            .with_label("zone", zone)
            .with_driver("topolvm.io", &["kubernetes.io/hostname"])
            .with_driver("cinder.csi.openstack.org", &["zone"]);
        simulation.add_machine(spec).expect("a new node");
    }
    simulation.follow();
    let mut lines = Vec::new();
    for act in script {
        let at = began + SignedDuration::from_millis((act.at * 1000.0) as i64);
        simulation.run_until(at).expect("within the limits");
        take_lines(&mut simulation, began, &mut lines);
        match &act.doing {
            Doing::Run(line, objects) => {
                let command = KubectlCommand::parse(line).expect(line);
                let mut manifests = Manifests::default();
                manifests.add("-", objects.iter().cloned());
                execute(&mut simulation, &command, &manifests).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
            Doing::Down(node) => simulation.fail(node, MachineState::Suspended).expect("a machine"),
            Doing::Up(node) => simulation.heal(node).expect("a machine"),
            Doing::End => {}
        }
    }
    take_lines(&mut simulation, began, &mut lines);
    let names = volume_names(&lines);
    let observations = without_repeats(lines.iter().filter_map(|line| observation(line, &names)));
    let impossible = simulation.choices().impossible().iter().map(ToString::to_string).collect();
    (observations, impossible)
}

fn create(simulation: &mut Simulation, object: &Value) {
    let object = stead_sim::SimObject::from_json(object).expect("an object");
    simulation.request(stead_sim::Write::Create(object)).expect("it is created");
}

/// What happened, in the form of the recordings.
fn take_lines(simulation: &mut Simulation, began: Timestamp, lines: &mut Vec<Value>) {
    for (at, happening) in simulation.take_journal() {
        let t = at.duration_since(began).as_secs_f64();
        match happening {
            Happening::Reported(event) => {
                let about = &event.note.about;
                lines.push(json!({ "t": t, "event": event.note.reason, "on": format!("{}/{}", about.kind, about.name),
                    "message": event.note.message }));
            }
            Happening::Changed(change) => {
                let object = change.latest().to_json();
                lines.extend(line(t, &object, change.after.is_none()));
            }
        }
    }
}

fn line(t: f64, object: &Value, gone: bool) -> Option<Value> {
    let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
    let conditions = || status["conditions"].as_array().into_iter().flatten();
    let deleting = metadata["deletionTimestamp"].is_string();
    match object["kind"].as_str()? {
        "Pod" => {
            let containers = || status["containerStatuses"].as_array().into_iter().flatten();
            let waiting = containers().filter_map(|c| c["state"]["waiting"]["reason"].as_str()).next_back();
            let word = match status["phase"].as_str().unwrap_or_default() {
                _ if gone => "(gone)",
                _ if deleting => "Terminating",
                phase => status["reason"].as_str().or(waiting).unwrap_or(phase),
            };
            let ready = containers().filter(|c| c["ready"] == true).count();
            let all = spec["containers"].as_array().map_or(0, Vec::len);
            let unscheduled = conditions().find(|c| c["type"] == "PodScheduled" && c["status"] == "False");
            let disruption = conditions().find(|c| c["type"] == "DisruptionTarget");
            Some(json!({ "t": t, "pod": metadata["name"], "ready": format!("{ready}/{all}"), "status": word,
                "node": spec["nodeName"], "why": unscheduled.map(|c| c["message"].clone()),
                "disruption": disruption.map(|c| c["reason"].clone()) }))
        }
        "Node" => {
            let ready: Vec<&Value> = conditions().filter(|c| c["type"] == "Ready").map(|c| &c["status"]).collect();
            let taints = spec["taints"].as_array().into_iter().flatten();
            let taints: Vec<Value> = taints.map(|taint| json!([taint["key"], taint["effect"]])).collect();
            Some(json!({ "t": t, "node": metadata["name"], "ready": ready, "taints": taints }))
        }
        "VolumeAttachment" => Some(json!({ "t": t, "attachment": spec["source"]["persistentVolumeName"],
            "node": spec["nodeName"], "attached": status["attached"], "gone": gone, "deleting": deleting,
            "error": status["attachError"]["message"] })),
        _ => None,
    }
}
